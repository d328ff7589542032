"""Reference pages of the command line: the options of both frontends, and the help of every
command.
"""

import click
from markdown_table import code, table

from busbw.cli.getopt import usage
from busbw.cli.main import cli
from busbw.cli.options.sampling import CLASSIC_ONLY
from busbw.core.options import BY_FIELD, MAX_OPERATIONS, OPTIONS, Option
from busbw.core.sizes import format_size

WIDTH = 100


def options() -> str:
    """Every sweep option with its spelling and default in both frontends, then those of `busbw
    run` only.
    """
    run = {param.name: param for param in command_of("run").params}
    rows = [
        (
            _run_names(run.get(row.field)),
            _compat_names(row),
            _default(row, row.default_for_run),
            _default(row, row.default),
            row.allowed,
            row.help,
        )
        for row in OPTIONS
    ]
    classic = [code(BY_FIELD[name].name(strict=True)) for name in CLASSIC_ONLY]
    own = [
        (_run_names(param), param.help or "")
        for param in run.values()
        if isinstance(param, click.Option) and param.name not in BY_FIELD
    ]
    return (
        "All sweep options are in one table, `core/options.py`. The compat frontend has"
        " nccl-tests' letters, names and defaults. `busbw run` has these letters too; the number of"
        " ranks is `-np`, as in mpirun.\n\n"
        f"In `busbw run`, {', '.join(classic)} need"
        " `--timing classic`. If `--iters` is not given, precise timing takes as many iterations"
        " as needed.\n\n"
        "`busbw run` rejects values that are not listed; the compat frontend"
        f" accepts them if nccl-tests does. Both reject more than {MAX_OPERATIONS} iterations times"
        " aggregated operations.\n\n"
        "Sizes are bytes, or a number with K, M or G, which are powers of 1024: `8`, `64K`,"
        " `1.5G`.\n\n"
        + table(
            ("busbw run", "compat", "default of run", "default of compat", "values", "meaning"),
            rows,
        )
        + "Options with an empty first cell exist only in the compat frontend. Its `-J` corresponds"
        " to `--json` in `busbw run`, in another format.\n\n## Only in `busbw run`\n\n"
        + table(("option", "meaning"), own)
    )


def _compat_names(row: Option) -> str:
    return f"{code('-' + row.short)}, {code('--' + row.long)}"


def _run_names(param: click.Parameter | None) -> str:
    if param is None:
        return ""
    return ", ".join(
        code(name)
        for name in sorted(param.opts, key=lambda name: (name.startswith("--"), "_" in name))
    )


def _default(row: Option, value: object) -> str:
    if row.compat_only and value != row.default:
        return ""
    return format_size(int(str(value))) if row.kind == "size" else str(value) or "none"


def commands() -> str:
    """The output of --help, for every command and for the compat frontend."""
    text = f"## busbw\n\n{_block(_help(cli, 'busbw'))}"
    for name in cli.list_commands(click.Context(cli)):
        text += f"## busbw {name}\n\n{_block(_help(command_of(name), f'busbw {name}'))}"
        own = command_of(name)
        for part in own.list_commands(click.Context(own)) if isinstance(own, click.Group) else []:
            text += (
                f"### busbw {name}"
                f" {part}\n\n"
                f"{_block(_help(own.commands[part], f'busbw {name} {part}'))}"
            )
    return (
        text + "## all_reduce_perf and the others of `busbw"
        f" compat`\n\n{_block(usage('all_reduce_perf').expandtabs(4).rstrip())}"
    )


def command_of(name: str) -> click.Command:
    """The command of this name."""
    found = cli.get_command(click.Context(cli), name)
    if found is None:
        raise LookupError(f"busbw has no command {name}")
    return found


def _help(command: click.Command, name: str) -> str:
    context = click.Context(
        command, info_name=name, terminal_width=WIDTH, **command.context_settings
    )
    return command.get_help(context)


def _block(text: str) -> str:
    return f"```text\n{text}\n```\n\n"
