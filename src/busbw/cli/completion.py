"""`busbw completion`: the script with which a shell completes busbw's command lines, and what it
completes.

Values of options and arguments are completed by the name of the parameter in the code. The types of
parameters are replaced only while the shell asks; no other run imports this module.
"""

from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path

import click
from click.shell_completion import CompletionItem, get_completion_class

from busbw.cli.streams import print_out
from busbw.core.errors import Exit
from busbw.core.extensions import added

# With this variable of click, busbw answers the shell instead of running a command.
VARIABLE = "_BUSBW_COMPLETE"
SHELLS = ("bash", "zsh", "fish")


@click.command("completion", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(context: click.Context, shell: str) -> int:
    """Print the script that makes SHELL complete commands, options, and values: collectives,
    engines, formats, systems, files, runs.

    \b
    bash: busbw completion bash > ~/.local/share/bash-completion/completions/busbw
    zsh:  source <(busbw completion zsh)    in ~/.zshrc, after compinit
    fish: busbw completion fish > ~/.config/fish/completions/busbw.fish

    Without the package bash-completion, add to ~/.bashrc: source <(busbw completion bash)
    """
    shell_class = get_completion_class(shell)
    if shell_class is None:
        raise click.UsageError(f"click completes nothing in {shell}", context)
    completer = shell_class(context.find_root().command, {}, "busbw", VARIABLE)
    print_out(completer.source().strip() + "\n")
    return int(Exit.OK)


Pairs = Iterable[tuple[str, str]]  # a value and what it means, '' if that is plain
NETWORK = (Path("/sys/class/net"), Path("/sys/class/infiniband"))


class Words(click.ParamType[str]):
    """Completes the values that begin like the word; with `separated`, the part after the last
    comma. `files` adds files to them.
    """

    name = "text"

    def __init__(
        self, values: Callable[[], Pairs], *, separated: bool = False, files: bool = False
    ) -> None:
        self.values, self.separated, self.files = values, separated, files

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The completions of an incomplete word."""
        before, comma, last = incomplete.rpartition(",") if self.separated else ("", "", incomplete)
        items = [
            CompletionItem(before + comma + value, help=text)
            for value, text in self.values()
            if value.startswith(last)
        ]
        if not items and self.files:
            return [CompletionItem(incomplete, type="file")]
        return items


def _nothing() -> Pairs:
    return ()


def _rows(module: str, table: str, attribute: str = "name", help: str = "") -> Callable[[], Pairs]:
    """The names in a table of rows, which is imported when it is needed."""

    def pairs() -> Pairs:
        rows = getattr(import_module(module), table)
        return [(getattr(row, attribute), getattr(row, help) if help else "") for row in rows]

    return pairs


def keys(module: str, table: str) -> Callable[[], Pairs]:
    """The keys of a dictionary; its values are their meaning if they are texts."""

    def pairs() -> Pairs:
        items = getattr(import_module(module), table).items()
        return [(key, text if isinstance(text, str) else "") for key, text in items]

    return pairs


def with_words(values: Callable[[], Pairs], *more: str) -> Callable[[], Pairs]:
    """The same values, and more without a meaning."""
    return lambda: [*values(), *((word, "") for word in more)]


def _systems() -> Pairs:
    from busbw.model.clouds import instances
    from busbw.model.gpu_hosts import gpu_hosts

    hosts = [(row.example, row.source) for row in gpu_hosts().values()]
    return hosts + [(row.name, row.source) for row in instances().values()]


def _fabrics() -> Pairs:
    from busbw.model.networks import networks

    return [(row.name, row.source) for row in networks().values()]


def _links() -> Pairs:
    folders = [folder for folder in NETWORK if folder.is_dir()]
    return [(link.name, "") for folder in folders for link in sorted(folder.iterdir())]


def _checks() -> Pairs:
    from busbw.check.registry import ROWS

    return [(name, row.title) for row in ROWS for name in (row.name, row.id)]


def _pages() -> Pairs:
    from busbw.check.registry import ROWS

    return [(row.id, row.title) for row in ROWS]


def _runs() -> Pairs:
    import os

    from busbw.core.errors import BusbwError
    from busbw.core.history import machine_text
    from busbw.history.place import history_file
    from busbw.history.store import opened

    try:
        with opened(history_file(os.environ), create=False) as history:
            runs = history.runs()
    except BusbwError:  # there is no history yet
        return ()
    return [
        (str(run.id), f"{run.start} {run.what or run.collective}, {machine_text(run.machine)}")
        for run in runs
    ]


def _reference_runs() -> Pairs:
    from busbw.cli.config.reference import known_curves
    from busbw.core.errors import BusbwError

    try:
        known = known_curves()
    except BusbwError:  # the user's own table is broken
        return ()
    curves = (*known.own, *known.published)
    return [(run, "") for run in dict.fromkeys(curve.run for curve in curves)]


FILE = Words(_nothing, files=True)
COLLECTIVE = Words(_rows("busbw.core.collectives", "COLLECTIVES"))
LINKS = Words(_links)
RUNS = Words(_runs)
FILES = (
    "file",
    "files",
    "words",
    "results",
    "topo",
    "hostfile",
    "json_name",
    "output",
    "directory",
    "folder",
    "db",
    "html",
    "html_name",
    "key",
    "token_file",
    "checked",
    "pattern_file",
    "command_line",
    "args",
    "expect",
    "config",
    "reference_file",
    "nccl",
    "wheels",
)
# Options with click.Choice complete by themselves.
BY_PARAMETER: dict[str, Words] = {
    **dict.fromkeys(FILES, FILE),
    "name": COLLECTIVE,
    "collective": COLLECTIVE,
    "engine": Words(with_words(_rows("busbw.engines.registry", "ENGINES", help="help"), "auto")),
    "format_name": Words(_rows("busbw.report.registry", "VIEWS", help="help")),
    "system": Words(_systems),
    "fabric": Words(_fabrics),
    "datatype": Words(with_words(_rows("busbw.core.dtypes", "DTYPES"), "all")),
    "routing": Words(keys("busbw.moe.routing", "EXAMPLES")),
    "op": Words(with_words(_rows("busbw.core.redops", "REDOPS"), "all")),
    "source": Words(with_words(_rows("busbw.pattern.registry", "FORMATS", help="title"), "record")),
    "only": Words(_checks),
    "skip": Words(_checks),
    "ifname": LINKS,
    "ports": LINKS,
    "rails": Words(with_words(_links, "all")),
    "ids": RUNS,
}
# Where a name means something else in one command.
BY_COMMAND: dict[tuple[str, str], Words] = {
    ("explain", "file"): Words(_pages, files=True),
    ("manifest", "name"): Words(_nothing),
    ("reference", "name"): Words(_reference_runs, files=True),
    ("reference", "runs"): Words(_reference_runs),
}


def add_completion(command: click.Command, name: str) -> click.Command:
    """Give the parameters of a command and its subcommands types that complete; returns it."""
    by_parameter = BY_PARAMETER
    for others in added("completion"):
        by_parameter = others | by_parameter
    for parameter in command.params:
        key = parameter.name or ""
        words = BY_COMMAND.get((name, key)) or by_parameter.get(key)
        is_flag = getattr(parameter, "is_flag", False)
        if words is not None and not is_flag and not isinstance(parameter.type, click.Choice):
            parameter.type = words
    if isinstance(command, click.Group):
        for part in command.commands.values():
            add_completion(part, name)
    return command
