"""`busbw check --learn` and `--expect`: what a node should have, as a file."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from busbw.check import text as view
from busbw.check.api import STDIN, expected, expected_ids
from busbw.check.expect.file import Expect, Text
from busbw.check.expect.learn import learned
from busbw.check.expect.spec import Expectations
from busbw.check.expect.text import text
from busbw.check.types import CheckReport
from busbw.cli.options.parameters import is_given, not_empty
from busbw.cli.options.shared import Decorator, fail_on_option, options
from busbw.cli.streams import print_err, print_out
from busbw.core.errors import Exit, NoMeasurement, UsageError
from busbw.core.finding import CheckRow, Verdict
from busbw.core.sizes import counted
from busbw.core.version import __version__
from busbw.host.limited import within
from busbw.host.snapshot import recorded
from busbw.host.source import LiveMachine

HOSTS = ("hosts", "hostfile")
LEARNS_WITH = ("learn", "accept_faults", "files", "limit_s", "output")

expect_options: Decorator = options(
    click.option(
        "--expect",
        default="",
        callback=not_empty,
        metavar="FILE",
        help="also compare with what a node should have; - = stdin",
    ),
    click.option(
        "--learn",
        is_flag=True,
        help="print such a file, from this machine or the snapshot of --from",
    ),
    click.option(
        "--accept-faults", is_flag=True, help="with --learn: also from a machine that fails checks"
    ),
    click.option("--force", is_flag=True, help="with --save: replace existing files"),
    fail_on_option,
)


def refuse_without(*, learn: bool, save: bool) -> None:
    """UsageError for --accept-faults that lacks --learn, and for --force that lacks --save."""
    if learn:
        raise UsageError("--accept-faults is for --learn", "add --learn")
    if save:
        raise UsageError("--force is for --save", "add --save FILE")


def load_expected(name: str, rows: Sequence[CheckRow], *, node: bool) -> Expect | None:
    """The file that --expect names, with the expectations of these rows; UsageError if it has an
    error.

    On a node of --hosts the file comes as JSON over stdin, with its name and the day.
    """
    if node and name:
        return Expect(msgspec.json.decode(sys.stdin.buffer.read(), type=Text), expected_ids(rows))
    return expected("/dev/stdin" if name == STDIN else name, rows)


def learn(files: Sequence[str], limit_s: float, *, accept_faults: bool) -> int:
    """Print what this node, or that of a snapshot, has as a file for --expect. If it fails checks,
    print these on stderr instead: exit code 1.
    """
    _refuse_ignored(files)
    name = files[0] if files else ""
    if files:
        report, expectations = learned(recorded(Path(name)), name)
    else:
        report, expectations = within(learned, LiveMachine(), limit_s=limit_s)
    faults = [finding for finding in report.findings if finding.verdict is Verdict.FAIL]
    if faults and not accept_faults:
        number = counted(len({finding.id for finding in faults}), "check")
        print_err(view.findings(faults, everything=False))
        print_err(
            f"error: nothing is learned from {report.host}: {number} failed\n\n"
            "hint: learn from a good node, or add --accept-faults"
        )
        return int(Exit.BAD)
    if expectations == Expectations():
        raise NoMeasurement(
            f"{report.host}: nothing could be read that a node can be expected to have",
            "run it on a GPU node, as root",
        )
    print_out(text(expectations, _origin(report)))
    print_err(view.summary(report.findings).strip())
    return int(Exit.OK)


def _refuse_ignored(files: Sequence[str]) -> None:
    """UsageError for options that --learn does not read, and for several snapshots."""
    command = click.get_current_context().command
    parameters = {parameter.name: parameter for parameter in command.params}
    others = [name for name in parameters if name and name not in LEARNS_WITH and is_given(name)]
    for name in others:
        option = max(parameters[name].opts, key=len)
        hint = f"leave out {option}"
        if name in HOSTS:
            hint = (
                "ssh HOST busbw check --learn > node.toml, with a good node as HOST; then all:"
                f" busbw check {option} ... --expect node.toml"
            )
        raise UsageError(f"--learn does not read {option}", hint)
    if len(files) > 1:
        raise UsageError(
            f"--learn reads one node, not {len(files)}", "name one snapshot: --from good.jsonl"
        )


def _origin(report: CheckReport) -> str:
    day = f" on {report.at[:10]}" if report.at else ""
    return f"Learned from {report.host}{day} by busbw {__version__}."
