"""What the total of a recorded application rests on."""

from busbw.core.sizes import counted
from busbw.model.overlap import Ratios
from busbw.model.pattern_overlap import Overlap

MAX_PAIRS, ROUNDING = 4, 1e-9
ADDED = "calls are added up one after the other"
UNTIMED = "a record with times, as of busbw capture --timed, tells whether they ran together"
OVERLAPPING = "all overlapping, limited by the longest chain and by links that they share,"


def overlap_note(overlapped: Overlap, average: str) -> str:
    """How the calls were added up; `average` says of which ranks."""
    pairs = sorted(map(pair_text, overlapped.together))
    ran = f"calls ran together ({', '.join(pairs[:MAX_PAIRS])}{', ...' * (len(pairs) > MAX_PAIRS)})"
    total = overlapped.total
    if total.most_s <= total.least_s * (1 + ROUNDING):
        how = f"{ran}: the total has the ratios of --together" if pairs else ADDED
        return f"{how}, {average}: what overlaps with computation costs less"
    known = ran if pairs else "calls ran at the same time"
    if overlapped.untimed:
        without = f"{overlapped.untimed} of {counted(overlapped.calls, 'call')}"
        known = f"which calls overlap is unknown, as {without} have no time on the GPU"
    note = f"{known}: the total is from {OVERLAPPING} to one after the other, {average}"
    if overlapped.shared_nics:
        note += "; NICs that several ranks share are counted there, and not in the rows"
    return note


def unused_notes(overlapped: Overlap, ratios: Ratios) -> list[str]:
    """Measured ratios that leave a range: their functions are not known to have run together."""
    if overlapped.untimed:
        pairs = sorted(map(pair_text, ratios))
        return [f"--together {pair}: the longest total remains; {UNTIMED}" for pair in pairs]
    unused = sorted(pair_text(pair) for pair in ratios if pair not in overlapped.together)
    return [f"--together {pair}: they did not run together" for pair in unused]


def pair_text(pair: frozenset[str]) -> str:
    """`all_gather+all_reduce`, also for two of one kind."""
    names = sorted(pair)
    return "+".join(names if len(names) > 1 else names * 2)
