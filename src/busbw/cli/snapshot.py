"""`busbw snapshot`: one file with everything that the checks read."""

from pathlib import Path

import click

from busbw.check.snapshot import snapshot
from busbw.cli.options.parameters import Seconds
from busbw.cli.streams import answer, talk
from busbw.core.errors import Exit
from busbw.host.limited import GivenUp, given_up, within
from busbw.host.source import Live, Source
from busbw.measure.record import check_writable, save


@click.command("snapshot", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-o", "--output", default="-", show_default=True, help="file to write; - is stdout")
@click.option(
    "--limit",
    "limit_s",
    type=Seconds(),
    default=60.0,
    show_default=True,
    help="seconds for all readings together",
)
@click.option("--force", is_flag=True, help="replace an existing file")
def command(output: str, force: bool, limit_s: float) -> int:
    """Write what the checks read on this machine, for `busbw check --from FILE` elsewhere and for
    support.

    Values that look like secrets are masked. Run it as root if you can: some files are readable
    only by root.
    """
    if output != "-":
        check_writable(Path(output), overwrite=force, what=f"-o {output}")
    text, unread = within(_take, Live(), limit_s=limit_s)
    for reason in unread:
        talk(f"note: {reason}")
    if output == "-":
        answer(text)
        return int(Exit.OK)
    save(text.encode(), Path(output), "make room, or name another file with -o")
    count = len(text.splitlines()) - 1
    talk(f"{output}: {count} readings; busbw check --from {output} checks them")
    return int(Exit.OK)


def _take(source: Source) -> tuple[str, list[str]]:
    """The snapshot, and the reasons why readings are missing."""
    text = snapshot(source)
    lost = given_up(source) or GivenUp()
    reasons = list(lost.silent)
    if lost.over:
        reasons.append(lost.over)
    return text, reasons
