"""`busbw check command`: what is wrong with a launcher's command line, found without running it."""

import sys

import click

from busbw.check.command import lint
from busbw.check.command import text as command_text
from busbw.check.machine import Machine
from busbw.cli.options.shared import fail_on_option, format_option
from busbw.cli.streams import print_json, print_out
from busbw.cli.terminal import width
from busbw.core.errors import UsageError
from busbw.core.finding import Verdict, exit_of
from busbw.core.given_file import MAX_TEXT_BYTES, read_stream
from busbw.host.limited import within
from busbw.host.source import LiveMachine

LIMIT_S = 60.0  # to read the facts of this machine


@click.command(
    "command",
    context_settings={"help_option_names": ["-h", "--help"], "allow_interspersed_args": False},
)
@click.argument("words", metavar="LINE...", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--no-machine",
    is_flag=True,
    help="use no facts of this machine: for a line meant for other hosts",
)
@click.option(
    "--all", "everything", is_flag=True, help="also print what passed and what does not apply"
)
@fail_on_option
@format_option
def command(
    words: tuple[str, ...], no_machine: bool, everything: bool, fail_on: Verdict, format_name: str
) -> int:
    """Find faults in a command line of mpirun, srun, torchrun or nccl-tests, without running it.

    LINE is the command as you would type it, after -- or in one pair of quotes; a script; or - for
    stdin. If the launcher is on this machine, busbw uses and prints its Open MPI version,
    interfaces, GPUs, ports and variables.
    """
    script = _stdin() if words == (lint.STDIN,) else ""
    if no_machine:
        report = lint.report(words, script, None)
    else:
        report = within(
            lambda source: lint.report(words, script, Machine(source)),
            LiveMachine(),
            limit_s=LIMIT_S,
        )
    if format_name == "json":
        print_json(report)
    else:
        print_out(command_text.text(report, width(), everything=everything))
    findings = [finding for line in report.lines for finding in line.findings]
    return int(exit_of((found.verdict for found in findings if not found.optional), fail_on))


def _stdin() -> str:
    """All of stdin; '' if it is closed."""
    try:
        return read_stream(sys.stdin.buffer, MAX_TEXT_BYTES).decode("utf-8") if sys.stdin else ""
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise UsageError(f"stdin: {reason}", "give a script, or a command line after --") from error
