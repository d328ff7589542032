"""The findings of backends beside each other."""

from collections.abc import Iterator

from busbw.backends.types import GRAPH, BackendsResult, Choice
from busbw.backends.verdicts import beaten, ratio_text, slower_on_all
from busbw.core.finding import RunFinding, Verdict
from busbw.core.sizes import format_size

DATA, SLOWER = "backends_data", "backends_slower"
# of the reference page: verdict and meaning
BACKENDS_FINDINGS = {
    DATA: (Verdict.FAIL, "of `busbw backends`: a backend gave wrong data"),
    SLOWER: (
        Verdict.WARN,
        "of `busbw backends`: the default is surely slower than another backend by over 10 %; with"
        " `--rail`, a backend over all NICs than over one of them",
    ),
}


def findings(result: BackendsResult) -> list[RunFinding]:
    """What the rows say, most important first."""
    return [*_wrong(result), *_slower(result)]


def _wrong(result: BackendsResult) -> Iterator[RunFinding]:
    """Each backend and mode with wrong data, at its first size."""
    first: dict[tuple[str, str], int] = {}
    for row in result.rows:
        for time in row.times:
            if time.cell is not None and time.cell.wrong:
                first.setdefault((time.backend, time.mode), row.size_bytes)
    for (backend, mode), size in first.items():
        message = f"{backend} gave wrong data at {format_size(size)}, {_mode(mode)}"
        yield RunFinding(DATA, Verdict.FAIL, message)


def _slower(result: BackendsResult) -> Iterator[RunFinding]:
    found = [(result.default, choice) for choice in beaten(result)]
    if result.rails:
        found = slower_on_all(result)
    for name, choice in found:
        message = (
            f"{name} is slower than {choice.backend} {_times(choice)} {_from_to(choice)},"
            f" {_mode(choice.mode)}"
        )
        yield RunFinding(SLOWER, Verdict.WARN, message)


def _mode(mode: str) -> str:
    """`eager`, `in CUDA graphs`."""
    return "in CUDA graphs" if mode == GRAPH else "eager"


def _times(choice: Choice) -> str:
    low, high = map(ratio_text, choice.ratio or (1.0, 1.0))
    return f"by {high}x" if low == high else f"by {low}x to {high}x"


def _from_to(choice: Choice) -> str:
    first, last = format_size(choice.first_bytes), format_size(choice.last_bytes)
    return f"at {first}" if first == last else f"from {first} to {last}"
