"""`busbw versions`: is a newer release of NCCL as fast as an older one."""

from collections.abc import Callable, Sequence
from pathlib import Path

import click

from busbw.cli.ab_runs import OptionSet, Sweep, Turns, dry_run
from busbw.cli.options.judging import judging_options
from busbw.cli.options.nccl import wheels_option
from busbw.cli.streams import print_err, print_out
from busbw.cli.terminal import width
from busbw.core import json_codec
from busbw.core.collectives import collective
from busbw.core.errors import Exit, UsageError
from busbw.core.release_matrix import ReleaseMatrix
from busbw.core.sizes import counted
from busbw.history import release_matrix
from busbw.stats.judging import Limits
from busbw.stats.release_matrix import judge, rounds_needed

DEFAULT_COLLECTIVE = "all_reduce"
OWN_OPTIONS = ("--nccl", "--wheels", "--json")
FORMATS: dict[str, Callable[[ReleaseMatrix], str]] = {
    "text": lambda matrix: release_matrix.text(matrix, width()),
    "markdown": release_matrix.markdown,
    "json": json_codec.indented,
}


@click.command("versions", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("words", nargs=-1, metavar="RELEASE RELEASE... [-- COLLECTIVE... OPTIONS]")
@wheels_option
@click.option(
    "--rounds",
    type=click.IntRange(2, 100),
    help="times to run each release and collective in turn  [default: as few as can show a"
    " difference]",
)
@judging_options
@click.option(
    "--format",
    "format_name",
    type=click.Choice(list(FORMATS)),
    default="text",
    show_default=True,
    help="output on stdout",
)
def command(
    words: tuple[str, ...],
    wheels: Path | None,
    rounds: int | None,
    tolerance: float,
    confidence: float,
    format_name: str,
) -> int:
    """Compare releases of NCCL with the first one: which sizes have become slower.

    A release is three numbers, or the path of a library. After -- come one or several collectives
    (all_reduce if none is named) and options of busbw run, the same for all. Releases run in turn,
    each with busbw run --nccl; the runs are kept in the history.
    """
    releases, collectives, options = split_words(words)
    limits = Limits(tolerance, confidence)
    rounds = rounds or rounds_needed((len(releases) - 1) * len(collectives), limits)
    of_wheels = ["--wheels", str(wheels)] if wheels else []
    turns = Turns(
        [OptionSet(release, ["--nccl", release, *of_wheels]) for release in releases],
        [Sweep(name, [name, *options]) for name in collectives],
        leave_out_failed=True,
    )
    refusal = _refusal(turns)
    if refusal:
        return refusal
    count = len(releases) * len(collectives) * rounds
    print_err(f"{counted(count, 'run')}: {counted(rounds, 'round')} of each release and collective")
    turns.run(rounds)
    matrix = matrix_of(turns, limits)
    print_out(FORMATS[format_name](matrix))
    if matrix.is_worse():
        return int(Exit.BAD)
    return int(Exit.OK if matrix.is_judged() and not turns.failed else Exit.UNKNOWN)


def split_words(words: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
    """The releases, the collectives and the options of `busbw run`.

    UsageError for fewer than two releases, one that is named twice, unknown collectives, and
    options that are set here.
    """
    left = list(words)
    releases = _take(left, lambda word: word[:1].isdigit() or "/" in word)
    names = _take(left, lambda word: not word.startswith("-")) or [DEFAULT_COLLECTIVE]
    collectives = [collective(name).name for name in names]
    if len(releases) < 2:
        raise UsageError(
            f"{counted(len(releases), 'release')} to compare",
            "name two or more, the oldest first: busbw versions 2.28.9 2.32.3",
        )
    for named in (releases, collectives):
        twice = next((name for name in named if named.count(name) > 1), None)
        if twice:
            raise UsageError(f"{twice} is named twice", "name it once")
    own = next((word for word in left if word.partition("=")[0] in OWN_OPTIONS), None)
    if own:
        raise UsageError(
            f"{own} among the options of busbw run: busbw versions sets it itself",
            "give releases and --wheels before --",
        )
    return releases, collectives, left


def _take(words: list[str], belongs: Callable[[str], bool]) -> list[str]:
    """Remove the first words, as far as they belong; returns them."""
    taken = []
    while words and belongs(words[0]):
        taken.append(words.pop(0))
    return taken


def _refusal(turns: Turns) -> int:
    """The exit code of `busbw run` for options that it refuses, or a release that cannot be had,
    before anything is measured; 0 if there is nothing to refuse.
    """
    keys = [(side, turns.sweeps[0]) for side in turns.sides]
    keys += [(turns.sides[0], sweep) for sweep in turns.sweeps[1:]]
    return next(filter(None, (dry_run(side, sweep) for side, sweep in keys)), 0)


def matrix_of(turns: Turns, limits: Limits) -> ReleaseMatrix:
    """What the rounds show."""
    collectives = [sweep.name for sweep in turns.sweeps]
    releases = [side.name for side in turns.sides]
    return judge(
        collectives,
        releases,
        {(collectives[at], releases[on]): runs for (at, on), runs in turns.results.items()},
        {(collectives[at], releases[on]): why for (at, on), why in turns.failures.items()},
        limits,
    )
