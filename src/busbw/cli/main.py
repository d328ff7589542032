"""The entry point: selects the frontend, and turns errors into messages and exit codes. Subcommands are imported when used."""

import contextlib
import os
import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path

import click

from busbw.cli.streams import ReaderGone, bug, guarded_stdout, stop_writing, talk
from busbw.core.errors import BusbwError, UsageError
from busbw.core.exits import Exit
from busbw.core.version import __version__

COMMANDS = {
    "check": "Check that a machine, or every node of a cluster, is set up right.",
    "snapshot": "Save what the checks read, for support and for other machines.",
    "run": "Measure a collective and verify its data.",
    "train": "Train a model on synthetic samples, alone and with each method of gradient exchange.",
    "plan": "Recommend the gradient exchange that hides the network and loses least.",
    "capture": "Record what an application sends.",
    "replay": "Run what an application sends, without the application.",
    "horovodrun": "Start a Horovod script on several ranks, like horovodrun.",
    "compat": "Install commands named all_reduce_perf, ... that behave like nccl-tests.",
    "show": "Print a result, or output of nccl-tests, in any format.",
    "report": "Write results as one HTML page: plots, table, machine, findings.",
    "pattern": "Print what an application sent: read NCCL logs, traces and dumps.",
    "compare": "Compare two results: same, slower, faster or ambiguous.",
    "ideal": "Print how fast a collective could be on a system, by algorithm.",
    "predict": "Predict times by size, number of hosts, or recorded application.",
    "explain": "Name the algorithm behind a busbw, and the load of each link.",
    "history": "Record results, list and plot them, and check a run against earlier ones.",
    "watch": "Show what the links of this host carry, and what their counters say.",
    "manifest": "Print a job for Kubernetes or Slurm, or what checks and watches their nodes.",
    "link": "Measure the links between hosts, and name slow hosts and pairs.",
    "lab": "Emulate several hosts on this machine.",
    "env": "Print the variables that make any NCCL program use busbw's plugins.",
    "engines": "List the engines, and what the unavailable ones need.",
}
_PERF = re.compile(r"^(\w+?)_perf(_mpi)?$")


class _Lazy(click.Group):
    """Imports a subcommand's module on first use, so that `busbw --version` is instant."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"busbw.cli.{cmd_name}").command
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not ctx.resilient_parsing:
            close = [f"did you mean '{name}'? " for name in get_close_matches(args[0], COMMANDS, n=1)]
            raise UsageError(f"no such command '{args[0]}'", "".join(close) + "busbw --help lists all commands")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "--version", prog_name="busbw")
def cli() -> None:
    """Measure collectives between GPUs, verify their data, and compare the speed with what the links can carry."""


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `busbw` and, under names like all_reduce_perf, of the compat commands. Returns the exit code."""
    program, *args = sys.argv if argv is None else argv
    with contextlib.suppress(RuntimeError):  # the user has no home directory
        os.environ.setdefault("HOME", str(Path.home()))  # services lack it, and Open MPI does not start without it
    if _PERF.match(Path(program).name):
        from busbw.cli.perf import perf

        return perf(program, args)
    return guarded(args)


def guarded(args: Sequence[str]) -> int:
    """Run a subcommand; errors become a message, a hint and an exit code."""
    try:
        with guarded_stdout():
            code = cli.main(list(args), prog_name="busbw", standalone_mode=False)
        return int(code or 0)
    except click.exceptions.Abort:
        return int(Exit.INTERRUPTED)
    except click.ClickException as error:
        return _usage(error, args)
    except BusbwError as error:
        talk(error.render())
        return int(error.exit)
    except KeyboardInterrupt:
        return int(Exit.INTERRUPTED)
    except ReaderGone:
        stop_writing()
        return int(Exit.OK)
    except Exception as error:  # noqa: BLE001 - any other exception is a bug
        return bug(error)


def _usage(error: click.ClickException, args: Sequence[str]) -> int:
    context = getattr(error, "ctx", None)
    # For an option without its value click does not name the command.
    command = context.command_path if context else " ".join(["busbw", *(arg for arg in args[:1] if arg in COMMANDS)])
    help_only = isinstance(error, click.exceptions.NoArgsIsHelpError)
    talk(error.format_message() if help_only else f"error: {error.format_message()}\n\nhint: {command} --help")
    return int(Exit.USAGE)


def entry() -> None:
    """The console script."""
    sys.exit(main())
