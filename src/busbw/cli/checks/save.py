"""`busbw check --save FILE`: one file with everything that the checks read."""

from collections.abc import Sequence
from pathlib import Path

import click

from busbw.check.api import snapshot_file
from busbw.check.snapshot import snapshot
from busbw.cli.options.parameters import given_options, not_empty
from busbw.cli.streams import print_err, print_out
from busbw.core.errors import UsageError
from busbw.host.limited import GivenUp, given_up, within
from busbw.host.snapshot import parse_archive
from busbw.host.source import LiveMachine, Source
from busbw.measure.record import check_writable, save

STDOUT = "-"
# Parameters of `busbw check` that --save cannot honor: it reads machines that answer now, once.
EXCLUDED = ("files", "load_s", "watch_s", "differences", "learn", "listed")

save_option = click.option(
    "--save",
    metavar="FILE",
    default="",
    callback=not_empty,
    help="also write all that was read, for --from on any machine; secrets are masked; - = stdout,"
    " without checks; with --hosts a folder, for a file of each host",
)


def save_snapshot(file: str, limit_s: float, *, force: bool) -> Source:
    """Read everything that the checks read on this machine, and write it to a file or stdout.

    Returns the recorded machine, which the checks then judge. UsageError if the file exists and
    `force` is not given.
    """
    if file != STDOUT:
        check_writable(Path(file), overwrite=force, what=f"--save {file}")
    text, unread = within(_take, LiveMachine(), limit_s=limit_s)
    for reason in unread:
        print_err(f"note: {reason}")
    data = text.encode()
    if file == STDOUT:
        print_out(text)
    else:
        save(data, Path(file), "make room, or name another file with --save")
        count = len(text.splitlines()) - 1
        print_err(f"{file}: {count} readings; busbw check --from {file} checks them")
    return parse_archive(data, file)


def prepare_folder(folder: str, hosts: Sequence[str], *, force: bool) -> None:
    """Make the folder for snapshots of these hosts; UsageError if it cannot be, or if it has one of
    them and `force` is not given.
    """
    if folder == STDOUT:
        raise UsageError(
            "--save -: of several hosts there are several snapshots", "name a folder: --save w1"
        )
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"--save {folder}: {error.strerror}", "with --hosts, name a folder: --save w1"
        ) from error
    for host in hosts:
        file = snapshot_file(folder, host)
        check_writable(file, overwrite=force, what=f"--save {folder}: {file.name}")


def refuse_others() -> None:
    """UsageError for an option of the command line that excludes --save."""
    if options := ", ".join(given_options(EXCLUDED)):
        raise UsageError(
            f"{options} with --save: --save reads machines that answer now, once",
            f"leave out {options}",
        )


def _take(source: Source) -> tuple[str, list[str]]:
    """The snapshot, and the reasons why readings are missing."""
    text = snapshot(source)
    lost = given_up(source) or GivenUp()
    reasons = list(lost.silent)
    if lost.over:
        reasons.append(lost.over)
    return text, reasons
