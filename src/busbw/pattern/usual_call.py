"""Which of different calls under one number is the usual one, from the calls before it.

Two ranks that differ say nothing about who is wrong. The calls of a training repeat: a rank that
made what usually follows left a call out, and one that made the usual call with another size is the
only one that is unlike before.
"""

from collections.abc import Mapping, Sequence
from itertools import takewhile

REPEATS = 3  # of the same calls, which shows what is usual


def usual(before: Sequence[str]) -> tuple[str, str]:
    """What usually comes after these calls, in words, and what after that; '' if the last ones do
    not repeat.

    Of several periods, as of steps and of metrics each tenth step, the one that goes back furthest.
    """
    best, furthest = 0, 0
    for period in range(1, len(before) // REPEATS + 1):
        last = before[-REPEATS * period :]
        if last[period:] != last[:-period]:
            continue
        length = _repeated(before, period)
        if length > furthest:
            best, furthest = period, length
    if not best:
        return "", ""
    last = before[-best:]
    return last[0], last[1 % best]


def _repeated(before: Sequence[str], period: int) -> int:
    """How many of the last calls are those of a period before."""
    later, earlier = reversed(before), reversed(before[:-period])
    pairs = zip(later, earlier, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def before(number: int, texts: Mapping[int, str]) -> list[str]:
    """The calls with the numbers before this one, as far as all of them are known."""
    known: list[str] = []
    while number - 1 - len(known) in texts:
        known.append(texts[number - 1 - len(known)])
    return known[::-1]


def left_out(made: Mapping[int, str], usual_call: str, following: str) -> list[int]:
    """The ranks that left out the usual call: they made what follows it, and all others it."""
    if usual_call == following:
        return []
    others = {rank for rank, call in made.items() if call == usual_call}
    ahead = {rank for rank, call in made.items() if call == following}
    return sorted(ahead) if others and len(others) + len(ahead) == len(made) else []


def resized(made: Mapping[int, str], usual_call: str) -> list[int]:
    """The ranks that made the usual call with another size or type, while others made it as before.

    Calls are in words: the function comes before ` of `.
    """
    if usual_call not in made.values():
        return []
    function = usual_call.partition(" of ")[0]
    unlike = {rank: call for rank, call in made.items() if call != usual_call}
    is_same = all(call.partition(" of ")[0] == function for call in unlike.values())
    return sorted(unlike) if is_same else []
