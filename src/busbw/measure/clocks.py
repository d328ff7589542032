"""Offsets between the monotonic clocks of hosts, measured over the control channel.

Ranks pair up in log2(p) rounds as in HCA (Hunold and Carpen-Amarie 2018): in round k rank r + 2^k
learns its offset from rank r, which already knows its own. The fastest of several round trips
bounds the error by half its duration. Drift, at worst about 10 us per second, is ignored because
offsets are measured for every batch.
"""

import time
from functools import lru_cache
from pathlib import Path

from busbw.launch.control import Control

ROUND_TRIPS = 20


@lru_cache(maxsize=1)
def identity() -> str:
    """An id of the monotonic clock that this process shares with others: the booted kernel and
    the time namespace.
    """
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    try:
        return f"{boot} {Path('/proc/self/ns/time').readlink()}"
    except OSError:  # Linux before 5.6
        return boot


class Clocks:
    """The clocks of a job's processes, with a channel for every pair.

    The constructor and `offset_s` are collective.
    """

    def __init__(self, control: Control) -> None:
        self._pairs: list[Control | None] = []  # this process' partner in each round
        if len(set(control.allgather(identity()))) == 1:
            return
        reach = 1
        while reach < control.processes:
            partner = (
                control.process + reach if control.process < reach else control.process - reach
            )
            paired = control.process < 2 * reach and partner < control.processes
            pair = control.split(min(control.process, partner) if paired else control.processes)
            self._pairs.append(pair if paired else None)
            reach *= 2

    def offset_s(self) -> float:
        """Seconds to add to this process' perf_counter to get process 0's; 0.0 if all share one
        clock.
        """
        mine = 0.0
        for pair in self._pairs:
            if pair is not None:
                mine = _learn(pair, mine)
        return mine


def _learn(pair: Control, mine: float) -> float:
    """This process' offset, which process 1 of the pair learns from process 0; `mine` is process
    0's own.
    """
    best, found = float("inf"), mine
    for _ in range(ROUND_TRIPS):
        start = time.perf_counter()
        pair.bcast(None)
        theirs = pair.gather(time.perf_counter())
        trip = time.perf_counter() - start
        if theirs is not None and trip < best:
            best, found = trip, start + trip / 2 - theirs[1]
    offset = sum(pair.bcast((found, mine)))
    return mine if pair.process == 0 else float(offset)
