"""`busbw check trend`: which link's errors grew unlike those of the others, from snapshots."""

import click

from busbw.check.trend import text as view
from busbw.check.trend.report import trend
from busbw.cli.file_kinds import note_unread
from busbw.cli.options.shared import fail_on_option, format_option
from busbw.cli.streams import print_json, print_out
from busbw.cli.terminal import width
from busbw.core.finding import Verdict, exit_of


@click.command("trend", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("files", nargs=-1, required=True, metavar="SNAPSHOT...")
@fail_on_option
@format_option
def command(files: tuple[str, ...], fail_on: Verdict, format_name: str) -> int:
    """Compare snapshots of several times: how the errors of each NVLink, port and PCIe device grew,
    and which link differs from the others.

    Snapshots of any number of hosts may be given, or folders of them, in any order: each has its
    host and time. A link that differs is a warning. The checks of links judge what rose since a
    host's last boot, as --since of busbw check does.
    """
    for name in files:
        note_unread(name)
    report = trend(files)
    if format_name == "json":
        print_json(report)
    else:
        print_out(view.text(report, width()))
    return int(exit_of(report.verdicts(), fail_on))
