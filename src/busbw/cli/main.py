"""The command line: which face was called, and how errors leave it. Subcommands are imported when they are used."""

import contextlib
import os
import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path

import click

from busbw.cli.streams import ReaderGone, answering, bug, stop_writing, talk
from busbw.core.errors import BusbwError, UsageError
from busbw.core.exits import Exit
from busbw.core.version import __version__

COMMANDS: tuple[tuple[str, str], ...] = (
    ("run", "Measure a collective and verify its data."),
    ("train", "Train a model on synthetic samples: its rate alone, and with each way to exchange gradients."),
    ("plan", "Say which way to exchange gradients hides the network here, and loses least."),
    ("horovodrun", "Start a script of Horovod's on several ranks, as horovodrun does."),
    ("compat", "Make commands named all_reduce_perf, ... that behave as nccl-tests does."),
    ("show", "Print a result again, in any format; reads nccl-tests' output too."),
    ("report", "Write results as one HTML page: plots, table, machine, findings."),
    ("compare", "Compare two results: same, slower, faster or ambiguous."),
    ("history", "Keep results, list and plot them, and say whether a run differs from the last ones."),
    ("manifest", "Print a job for Kubernetes or Slurm."),
    ("env", "Print the variables that make any program's NCCL use busbw's plugins."),
    ("engines", "Which engines can run here, and what the others lack."),
)
_PERF = re.compile(r"^(\w+?)_perf(_mpi)?$")


class _Lazy(click.Group):
    """Imports a subcommand's module on first use, so that `busbw --version` stays instant."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name, _ in COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in dict(COMMANDS):
            return None
        command: click.Command = import_module(f"busbw.cli.{cmd_name}").command
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        names = dict(COMMANDS)
        if args[0] not in names and not ctx.resilient_parsing:
            close = [f"did you mean '{name}'? " for name in get_close_matches(args[0], names, n=1)]
            raise UsageError(f"no such command '{args[0]}'", "".join(close) + "busbw --help lists all commands")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS))


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "--version", prog_name="busbw")
def cli() -> None:
    """How fast the links between your GPUs are, how fast they should be, and why they are not."""


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `busbw` and, through a link's name, of the compat face. Returns the exit code."""
    program, *words = sys.argv if argv is None else argv
    with_home()
    if _PERF.match(Path(program).name):
        from busbw.cli.perf import perf

        return perf(program, words)
    return guarded(words)


def with_home() -> None:
    """Set HOME where it is not, as in services: Open MPI does not start without."""
    with contextlib.suppress(RuntimeError):  # nobody knows where it is
        os.environ.setdefault("HOME", str(Path.home()))


def guarded(words: Sequence[str]) -> int:
    """Run a subcommand; errors become a line, a hint and an exit code."""
    try:
        with answering():
            code = cli.main(list(words), prog_name="busbw", standalone_mode=False)
        return int(code or 0)
    except click.exceptions.Abort:
        return int(Exit.INTERRUPTED)
    except click.ClickException as error:
        return _usage(error, words)
    except BusbwError as error:
        talk(error.render())
        return int(error.exit)
    except KeyboardInterrupt:
        return int(Exit.INTERRUPTED)
    except ReaderGone:
        stop_writing()
        return int(Exit.OK)
    except Exception as error:  # noqa: BLE001 - the last resort, by design
        return bug(error)


def _usage(error: click.ClickException, words: Sequence[str]) -> int:
    context = getattr(error, "ctx", None)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        talk(error.format_message())
        return int(Exit.USAGE)
    # Where an option lacks its value click does not say whose it is.
    command = context.command_path if context else " ".join(["busbw", *(word for word in words[:1] if word in dict(COMMANDS))])
    talk(f"error: {error.format_message()}\n\nhint: {command} --help")
    return int(Exit.USAGE)


def entry() -> None:
    """The console script."""
    sys.exit(main())
