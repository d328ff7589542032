"""`busbw snapshot`: one file with everything that the checks read."""

from pathlib import Path
from typing import TextIO

import click

from busbw.check.snapshot import snapshot
from busbw.cli.streams import answer, talk
from busbw.core.errors import UsageError
from busbw.core.exits import Exit
from busbw.host.source import Live


@click.command("snapshot", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-o", "--output", default="-", show_default=True, help="file to write; - is stdout")
@click.option("--force", is_flag=True, help="replace an existing file")
def command(output: str, force: bool) -> int:
    """Write what the checks read on this machine, for `busbw check --from FILE` elsewhere and for support.

    Values that look like secrets are masked. Run it as root if you can: some files are readable only by root.
    """
    text = snapshot(Live())
    if output == "-":
        answer(text)
        return int(Exit.OK)
    try:
        with open(output, "w" if force else "x", encoding="utf-8") as file:  # noqa: PTH123 - Path.write_text has no mode x
            _write(file, text)
    except FileExistsError as error:
        raise UsageError(f"-o {output}: the file exists", "use --force to replace it") from error
    except OSError as error:
        raise UsageError(f"-o {output}: {error.strerror}", "name a file that can be written") from error
    talk(f"{output}: {len(text.splitlines()) - 1} readings; busbw check --from {output} checks them")
    return int(Exit.OK)


def _write(file: TextIO, text: str) -> None:
    """All of it, or no file: a part would look like the snapshot of another machine."""
    try:
        file.write(text)
        file.flush()
    except OSError:
        if Path(file.name).is_file():  # no device
            Path(file.name).unlink()
        raise
