"""An option means the same in every command: its help says so in the same words."""

import re
from collections import defaultdict
from collections.abc import Iterator

import click
import pytest

from busbw.cli.main import cli, guarded
from busbw.core.options import OPTIONS

# What the help of an option says in every command, as a regular expression: of each spelling whose
# help differs between commands.
MEANINGS = {
    "--backends": "^compare these: ",
    "--capture-steps": "after so many steps|steps to record",
    "--check-options": "^options of busbw check",
    "--collective": "collective",
    "--compare": "^methods",
    "--confidence": "^confidence level",
    "--counts": "^alltoallv: bytes of each pair of ranks",
    "--datatype": "^element type",
    "--engine": "who moves the data",
    "--expect": "what a node should have; - = stdin",
    "--force": "replace",
    "--format": "^output on stdout",
    "--gpus": "^GPUs (of|used on) each host",
    "--gpus-per-node": "GPUs (to request|of)",
    "--hosts": "^hosts .*h1",
    "--html": "^write .* to this file",
    "--ifname": "interface",
    "--image": "^container image with busbw",
    "--interval": "^time between",
    "--iters": "^timed iterations",
    "--last": "^runs to .*, at most",
    "--launch-limit": "^seconds until",
    "--limit": "^give up after this time",
    "--listen": "metrics",
    "--max-time": "^target time per size",
    "--maxbytes": "^largest size",
    "--minbytes": "^smallest size",
    "--name": "name of|of this name",
    "--nccl": "^release of NCCL",
    "--nodes": "numbers? of hosts",
    "--output": "write .*to this (file|folder)",
    "--pattern": "a capture",
    "--rail": "interface, (an )?RDMA device or (CIDR|a network)",
    "--ran": "how ranks are connected",
    "--ranks": "^number of ranks",
    "--repeats": "^times to",
    "--rounds": "times to .* in turn",
    "--rows": "rows of the table",
    "--seconds": "^seconds to measure",
    "--sim": "^parameters of the sim engine",
    "--size": "^message size|size whose busbw",
    "--stepfactor": "^factor between sizes",
    "--steps": "^training steps",
    "--system": "GPUs?",
    "--table": "^which table of",
    "--tolerance": "largest difference treated as equal",
    "--warmup": "^untimed steps before each",
    "-b": "^smallest size",
    "-d": "^element type",
    "-e": "^largest size",
    "-f": "^factor between sizes",
}
COMPATIBLE = "horovodrun"  # has Horovod's options
LETTERS = {"-h", "-v", *(f"-{row.short}" for row in OPTIONS)}
KINDS = {"time": "time", "share": "share", "rate": "rate"}
NUMBERS = ("integer", "integer range", "float range", "counts")


def options_of(group: click.Group, path: str) -> Iterator[tuple[str, click.Option]]:
    """All options of all commands that are shown, each with the command's name."""
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        where = f"{path} {name}"
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden and name != COMPATIBLE:
                yield where, option
        if isinstance(command, click.Group):
            yield from options_of(command, where)


def kind(option: click.Option) -> str:
    """What the value of an option is: nothing, a number, a time, ..., or text."""
    if option.is_flag:
        return "flag"
    name = option.type.name
    return "number" if name in NUMBERS else KINDS.get(name, "text")


def by_spelling() -> dict[str, list[tuple[str, click.Option]]]:
    found = defaultdict(list)
    for where, option in options_of(cli, "busbw"):
        for spelling in (*option.opts, *option.secondary_opts):
            found[spelling].append((where, option))
    return found


SPELLINGS = by_spelling()
SHARED = sorted(name for name, uses in SPELLINGS.items() if len({o.help for _, o in uses}) > 1)


@pytest.mark.parametrize("spelling", SHARED)
def test_an_option_means_the_same_in_all_commands(spelling: str) -> None:
    meaning = MEANINGS.get(spelling, "no meaning is stated for it")
    others = [
        f"{where} {spelling}: {option.help}"
        for where, option in SPELLINGS[spelling]
        if not re.search(meaning, option.help or "")
    ]
    assert not others, (
        f"{spelling} means '{meaning}' (MEANINGS): give another option another name, or say the"
        " same in its help"
    )
    kinds = {kind(option): where for where, option in SPELLINGS[spelling]}
    assert len(kinds) == 1, f"{spelling} takes values of several kinds: {kinds}; rename one"


def test_meanings_are_stated_only_where_the_help_differs() -> None:
    assert sorted(MEANINGS) == SHARED


def test_letters_are_those_of_nccl_tests_in_all_commands() -> None:
    """A letter that nccl-tests has means that in busbw, and no other is used."""
    letters = {name for name in SPELLINGS if re.fullmatch("-[A-Za-z]", name)}
    assert letters <= LETTERS
    for row in OPTIONS:
        fields = {option.name for _, option in SPELLINGS.get(f"-{row.short}", ())}
        assert fields <= {row.field, *PREDICT.get(row.field, ())}


# The parameters of `busbw predict` for fields of a sweep.
PREDICT = {"min_bytes": ("smallest",), "max_bytes": ("largest",), "step_factor": ("factor",)}


def test_few_iterations_without_ranks_are_noted(capsys: pytest.CaptureFixture[str]) -> None:
    sim = ["run", "all_reduce", "--engine", "sim", "-b", "1K", "-e", "1K", "--no-history", "-n"]
    note = "note: -n 4 is the number of iterations; that of ranks is -np\n"
    assert guarded([*sim, "4"]) == 0 and note in capsys.readouterr().err
    assert guarded([*sim, "4", "-np", "2"]) == 0 and note not in capsys.readouterr().err
