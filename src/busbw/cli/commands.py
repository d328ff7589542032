"""The table of all commands. `--help`, the manual pages and the reference are made from it.

A new command is a row here, a module of its name in this package, whose `command` is what click
runs, and three examples in examples.json. Extensions add rows and examples of their own.
"""

from dataclasses import dataclass
from functools import cache

import click

from busbw.core.extensions import added

MEASURE = "Measure"
MODEL = "Explain and predict"
CHECK = "Check and watch"
TRAIN = "Applications, training and tuning"
RESULTS = "Results"
SET_UP = "Set up"
PURPOSES = (MEASURE, MODEL, CHECK, TRAIN, RESULTS, SET_UP)  # in the order of --help
EXAMPLES = "examples.json"

Examples = dict[str, str]  # what each does, and the command to type


@dataclass(frozen=True, slots=True)
class CommandRow:
    """One command. `tables` is whether it prints tables, and so has --wide. Its module is that of
    its name in `package`, where its examples are too.
    """

    name: str
    purpose: str
    help: str
    tables: bool = True
    package: str = "busbw.cli"

    def examples(self, part: str = "") -> Examples:
        """The examples of the command itself, or of a subcommand."""
        return _examples(self.package)[f"{self.name} {part}".rstrip()]

    def parts(self) -> dict[str, Examples]:
        start = f"{self.name} "
        return {
            path.removeprefix(start): examples
            for path, examples in _examples(self.package).items()
            if path.startswith(start)
        }


BY_NAME: dict[str, CommandRow] = {
    row.name: row
    for row in (
        CommandRow("run", MEASURE, "Measure a collective and verify its data."),
        CommandRow(
            "backends",
            MEASURE,
            "Find the fastest implementation of a collective at each size, in CUDA graphs too.",
        ),
        CommandRow(
            "overlap",
            MEASURE,
            "Measure a collective and other work at the same time: what each costs the other.",
        ),
        CommandRow(
            "moe", MEASURE, "Measure dispatch and combine of a mixture of experts, and verify them."
        ),
        CommandRow(
            "link", MEASURE, "Measure the links between hosts, and name slow hosts and pairs."
        ),
        CommandRow(
            "compat",
            MEASURE,
            "Install commands named all_reduce_perf, ... that behave like nccl-tests.",
            tables=False,
        ),
        CommandRow(
            "predict", MODEL, "Predict how fast a collective or a recorded application should be."
        ),
        CommandRow(
            "explain", MODEL, "Name the algorithm behind a busbw, and the load of each link."
        ),
        CommandRow(
            "reference", MODEL, "List published runs and your own, and compare a result with them."
        ),
        CommandRow(
            "check", CHECK, "Check that a machine, or every node of a cluster, is set up right."
        ),
        CommandRow(
            "watch", CHECK, "Show what the links of this host carry, and what their counters say."
        ),
        CommandRow("capture", TRAIN, "Record what an application sends."),
        CommandRow("replay", TRAIN, "Run what an application sends, without the application."),
        CommandRow(
            "tune", TRAIN, "Find faster algorithms, protocols and channels for NCCL, by size."
        ),
        CommandRow(
            "show",
            RESULTS,
            "Print any file of busbw, nccl-tests or an application's communication.",
        ),
        CommandRow("compare", RESULTS, "Compare two results: same, slower, faster or ambiguous."),
        CommandRow(
            "versions", RESULTS, "Compare releases of NCCL: which sizes have become slower."
        ),
        CommandRow(
            "history",
            RESULTS,
            "List and plot the runs so far, and check a run against earlier ones.",
        ),
        CommandRow(
            "report",
            RESULTS,
            "Write results as one HTML page: plots, tables, machines, findings.",
            tables=False,
        ),
        CommandRow("lab", SET_UP, "Emulate several hosts on this machine."),
        CommandRow("deploy", SET_UP, "Copy busbw to other hosts as a single file."),
        CommandRow(
            "completion",
            SET_UP,
            "Print the script that makes bash, zsh or fish complete busbw's command lines.",
            tables=False,
        ),
        CommandRow(
            "manifest",
            SET_UP,
            "Print a job for Kubernetes or Slurm, or files that check and monitor nodes.",
            tables=False,
        ),
        CommandRow("help", SET_UP, "Print the whole help of a command.", tables=False),
    )
}


def commands() -> list[CommandRow]:
    """All rows by purpose, also those of extensions."""
    rows = [*BY_NAME.values(), *(row for rows in added("commands") for row in rows)]
    return sorted(rows, key=lambda row: PURPOSES.index(row.purpose))


def command_row(name: str) -> CommandRow | None:
    """The row of a command; extensions are asked for names that busbw itself does not have."""
    return BY_NAME.get(name) or next((row for row in commands() if row.name == name), None)


def with_examples(command: click.Command, row: CommandRow) -> click.Command:
    """The command of this row. Its help, and that of its subcommands, gets its exit codes after
    the description, and ends with examples.
    """
    parts = command.commands if isinstance(command, click.Group) else {}
    for name, part in {"": command, **parts}.items():
        _add_exit_codes(part, f"{row.name} {name}".rstrip(), row.package)
        _add_examples(part, row, name)
    return command


def _add_exit_codes(command: click.Command, path: str, package: str) -> None:
    """Have the command read its exit codes when its help is printed."""

    def format_help_text(context: click.Context, formatter: click.HelpFormatter) -> None:
        from busbw.cli.exit_codes import exit_text

        type(command).format_help_text(command, context, formatter)
        if text := exit_text(path, package):
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(text)

    command.format_help_text = format_help_text  # type: ignore[method-assign,assignment]


def _add_examples(command: click.Command, row: CommandRow, part: str) -> None:
    """Have the command read its examples when its help is printed."""
    plain = command.format_epilog

    def format_epilog(context: click.Context, formatter: click.HelpFormatter) -> None:
        command.epilog = examples_text(row.examples(part))
        plain(context, formatter)

    command.format_epilog = format_epilog  # type: ignore[method-assign,assignment]


def examples_text(examples: Examples) -> str:
    """The examples in lines that click does not wrap: a comment, then the command."""
    lines = [f"  # {meaning}\n  {command}" for meaning, command in examples.items()]
    return "\b\nExamples:\n" + "\n".join(lines)


@cache
def _examples(package: str) -> dict[str, Examples]:
    """The examples of a package's commands, and of subcommands as `check launch`."""
    import json
    from pkgutil import get_data

    data = get_data(package, EXAMPLES)
    assert data is not None
    examples: dict[str, Examples] = json.loads(data)
    return examples
