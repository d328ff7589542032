"""How far the monotonic clocks of hosts are apart, measured over the control channel.

Ranks pair up in log2(p) rounds as in HCA (Hunold and Carpen-Amarie 2018): in round k rank r + 2^k learns from rank r, which knows its own
distance from rank 0. A pair exchanges messages back and forth; the quickest round trip bounds the error by half its duration. Drift is
left out: clocks are compared anew for every batch, and drift apart by about 10 us a second at worst.
"""

import time
from functools import lru_cache
from pathlib import Path

from busbw.launch.control import Control

ROUND_TRIPS = 20


@lru_cache(maxsize=1)
def identity() -> str:
    """What processes have in common that share one monotonic clock: the booted kernel, and the time namespace."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = Path("/proc/self/ns/time").readlink()
    except OSError:  # no such namespace before Linux 5.6
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot} {namespace}"


class Clocks:
    """The clocks of a job's processes; made once, with a channel for every pair, and asked for each batch. Both are collective."""

    def __init__(self, control: Control) -> None:
        self._pairs: list[Control | None] = []  # this process' partner in each round
        if len(set(control.allgather(identity()))) == 1:
            return
        reach = 1
        while reach < control.size:
            partner = control.rank + reach if control.rank < reach else control.rank - reach
            paired = control.rank < 2 * reach and partner < control.size
            pair = control.split(min(control.rank, partner) if paired else control.size)
            self._pairs.append(pair if paired else None)
            reach *= 2

    def offset_s(self) -> float:
        """Seconds to add to this process' perf_counter for process 0's; 0.0 where all share one clock."""
        mine = 0.0
        for pair in self._pairs:
            if pair is not None:
                mine = _learn(pair, mine)
        return mine


def _learn(pair: Control, mine: float) -> float:
    """Process 0 of the pair tells its clock and its own offset, and gets its value back; the other one's offset is returned to it."""
    best, found = float("inf"), mine
    for _ in range(ROUND_TRIPS):
        start = time.perf_counter()
        pair.bcast(None)
        theirs = pair.gather(time.perf_counter())
        trip = time.perf_counter() - start
        if theirs is not None and trip < best:
            best, found = trip, start + trip / 2 - theirs[1]
    told = pair.bcast((found, mine))
    return mine if pair.rank == 0 else told[0] + told[1]
