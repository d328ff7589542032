"""The entry point: selects the frontend, and turns errors into messages and exit codes.
Subcommands are imported when they are used.
"""

import contextlib
import os
import re
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import click

from busbw.cli.commands import PURPOSES, command_row, commands, with_examples
from busbw.cli.config.option import config_option
from busbw.cli.streams import ReaderGone, bug, guarded_stdout, print_err, stop_writing
from busbw.cli.terminal import add_color, color_option
from busbw.core.errors import BusbwError, Exit, UsageError, did_you_mean
from busbw.core.extensions import ACCEL, COMMANDS_OF_ACCEL, INSTALL_ACCEL
from busbw.core.garbage import collect_seldom
from busbw.core.settings import LOG_VARIABLE
from busbw.core.version import __version__

_COMPAT_HINT = "nccl-tests' options are for commands of `busbw compat DIR`, not a link to busbw"
_PERF = re.compile(r"^(\w+?)_perf(_mpi)?$")


class _Lazy(click.Group):
    """Imports a subcommand's module on first use, so that `busbw --version` is instant."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [row.name for row in commands()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        row = command_row(cmd_name)
        if row is None:
            return None
        from busbw.cli.config.commands import add_config
        from busbw.cli.terminal import add_wide
        from busbw.cli.verbose import add_verbose

        command = with_examples(import_module(f"{row.package}.{cmd_name}").command, row)
        add_config(command, cmd_name)
        if row.tables:
            add_wide(command)
        add_color(command)
        add_verbose(command)
        if ctx.resilient_parsing:  # a shell asks for completions
            from busbw.cli.completion import add_completion

            return add_completion(command, cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if command_row(args[0]) is None and not ctx.resilient_parsing:
            raise _no_such_command(args[0])
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        all_rows = commands()
        widest = max(len(row.name) for row in all_rows)
        for purpose in PURPOSES:
            rows = [row for row in all_rows if row.purpose == purpose]
            with formatter.section(purpose):
                formatter.write_dl([(row.name.ljust(widest), row.help) for row in rows])


def _no_such_command(name: str) -> UsageError:
    if name in COMMANDS_OF_ACCEL:
        return UsageError(f"{name} is a command of {ACCEL}, which is not installed", INSTALL_ACCEL)
    names = [row.name for row in commands()]
    hint = did_you_mean(name, names, "busbw --help lists all commands")
    return UsageError(f"no such command '{name}'", hint)


@click.group(
    cls=_Lazy,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="`busbw COMMAND --help` has each command's options, and examples.",
)
@config_option
@color_option
@click.version_option(__version__, "--version", prog_name="busbw")
def cli() -> None:
    """Measure collectives between GPUs, verify their data, and compare the speed with what the
    links can carry.
    """


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `busbw` and, by its name, of the compat commands. Returns the exit code."""
    program, *args = sys.argv if argv is None else argv
    with contextlib.suppress(RuntimeError):  # the user has no home directory
        # Services lack the variable, and Open MPI does not start without it.
        os.environ.setdefault("HOME", str(Path.home()))
    if LOG_VARIABLE in os.environ:
        from busbw.core import log

        try:
            log.from_environment()
        except UsageError as error:
            print_err(error.render())
            return int(error.exit)
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
        print_err(error.render())
        return int(error.exit)
    except KeyboardInterrupt:
        return int(Exit.INTERRUPTED)
    except ReaderGone:
        stop_writing()
        return int(Exit.OK)
    except Exception as error:  # noqa: BLE001 - any other exception is a bug
        return bug(error)


def _usage(error: click.ClickException, args: Sequence[str]) -> int:
    message = error.format_message()
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        print_err(message)
        return int(Exit.USAGE)
    context = getattr(error, "ctx", None)
    if context:
        command = context.command_path
    else:  # an option without its value: click does not name the command
        command = " ".join(["busbw", *(arg for arg in args[:1] if command_row(arg))])
    hint = f"{command} --help"
    if isinstance(error, click.NoSuchOption):
        if command == "busbw":
            hint += f"; {_COMPAT_HINT}"
        elif context and error.option_name == "-o" and _has(context.command, "--format"):
            file = "--output FILE" if _has(context.command, "--output") else "> FILE"
            hint = f"{command} --format json for JSON, {file} for a file"
    print_err(f"error: {message}\n\nhint: {hint}")
    return int(Exit.USAGE)


def _has(command: click.Command, option: str) -> bool:
    return any(option in parameter.opts for parameter in command.params)


def _forget_unhandled_interrupt() -> None:
    """Have Python end with the given exit code, and not by SIGINT.

    Python notes a KeyboardInterrupt that leaves code run by exec, as importing a dataclass does,
    and then ends by the signal, though it was caught. Only code that exec runs to its end clears
    the note.
    """
    exec("pass")


def entry() -> None:
    """The console script."""
    collect_seldom()
    code = main()
    if code == Exit.INTERRUPTED:
        # One more Ctrl-C while the interpreter ends would end it by that signal.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _forget_unhandled_interrupt()
    sys.exit(code)
