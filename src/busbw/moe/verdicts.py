"""Which backend is the fastest at each number of tokens, and whether that is sure."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from statistics import median
from typing import NamedTuple

from busbw.core.result import moments
from busbw.moe.types import MoeRow
from busbw.stats.fastest import fastest, slower


class FastestMoe(NamedTuple):
    """The fastest backend at a number of tokens, with those that may be as fast. `ratio` is the
    time of the next one over its own.
    """

    tokens: int
    names: tuple[str, ...]
    ratio: float


def by_tokens(rows: Iterable[MoeRow]) -> list[FastestMoe]:
    """A verdict for each number of tokens at which two or more backends have right data.

    `rows` are those of one direction, in ascending order.
    """
    found = []
    for tokens, same in groupby(rows, lambda row: row.tokens):
        times = {row.backend: _observations(row) for row in same if not row.wrong}
        if len(times) > 1:
            best, alike = fastest(times)
            following = sorted(times, key=lambda name: median(times[name]))[1]
            ratio = slower(times, best, following).ratio
            found.append(FastestMoe(tokens, tuple(sorted((best, *alike))), ratio))
    return found


def spans_text(found: Sequence[FastestMoe]) -> str:
    """`deepep at 128 to 1024 tokens (1.31x to 2.04x), alltoallv or deepep at 2048 tokens`."""
    texts = []
    for names, same in groupby(found, lambda one: one.names):
        span = list(same)
        first, last = span[0].tokens, span[-1].tokens
        text = f"{' or '.join(names)} at {first}{f' to {last}' if last > first else ''} tokens"
        texts.append(text if len(names) > 1 else f"{text} ({_ratios_text(span)})")
    return ", ".join(texts)


def _ratios_text(span: Sequence[FastestMoe]) -> str:
    low, high = (f"{pick(one.ratio for one in span):.2f}x" for pick in (min, max))
    return low if low == high else f"{low} to {high}"


def _observations(row: MoeRow) -> list[float]:
    """One of each moment that the printed time counts, as samples of one moment are alike."""
    whole = row.whole
    return moments(whole.samples_s, whole.visits, whole.dropped) or [whole.time_s]
