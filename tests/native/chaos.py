"""A seeded sequence of faults on the rails of two hosts: what breaks, when and for how long, and
which process is stopped.

One rail always stays intact, so that all traffic has a route.
"""

import random
import signal
import time
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from peers import Peer
from rails import Rails

COURSE_S = 5.0
FOR_GOOD = 100.0  # beyond the end of the sequence
SIZES = {
    "large": [1 << 20],
    "small": [8, 4096, 16384],
    "mixed": [0, 8, 1000, 16384, 16385, 70_000, 300_000, 1 << 20],
}
MAX_MESSAGES = 2000


def flows(
    rng: random.Random, comms: dict[str, list[tuple[int, int]]], nbytes: int
) -> dict[str, list[dict[str, Any]]]:
    """The traffic of each connection: one kind of message for each.

    `comms` has the ends of connections by sender.
    """
    traffic: dict[str, list[dict[str, Any]]] = {"a": [], "b": []}
    for sender, pairs in comms.items():
        receiver = "b" if sender == "a" else "a"
        for sent, received in pairs:
            sizes = rng.choice(list(SIZES.values()))
            drawn = [rng.choice(sizes) for _ in range(MAX_MESSAGES)]
            enough = next(
                (n for n in range(MAX_MESSAGES) if sum(drawn[:n]) >= nbytes), MAX_MESSAGES
            )
            messages = [[size, number] for number, size in enumerate(drawn[:enough])]
            traffic[sender].append({"comm": sent, "way": "send", "messages": messages})
            traffic[receiver].append({"comm": received, "way": "recv", "messages": messages})
    return traffic


@dataclass
class Course:
    """The events. `log` describes them, to find the reason of a stall."""

    rng: random.Random
    rails: Rails
    count: int
    peers: dict[str, Peer]
    log: list[str] = field(default_factory=list)
    _broken: dict[int, tuple[str, float]] = field(default_factory=dict)
    _whole: int = 0
    _stays: bool = False

    def begin(self) -> int:
        """Connections may be opened with a rail that is broken: they then have no streams over it
        and need the intact one until the end.

        Returns the number of their rails.
        """
        self._begun = time.monotonic()
        if self.rng.random() < 0.5:
            self._break()
            self._stays = True
        return self.count - len(self._broken)

    def run(self) -> None:
        """Run for COURSE_S. What is broken at the end stays broken."""
        self._begun = time.monotonic()
        time.sleep(self.rng.uniform(0.0, 0.1))
        self._stop(and_break=True)  # while windows are small
        while time.monotonic() - self._begun < COURSE_S:
            time.sleep(self.rng.uniform(0.02, 0.8))
            for rail, (way, end) in list(self._broken.items()):
                if end < time.monotonic():
                    self._ways()[way][1](rail)
                    self._note(f"rail {rail} is back")
                    del self._broken[rail]
            drawn = self.rng.random()
            if drawn < 0.25:
                self._stop(and_break=drawn < 0.12)
            elif drawn < 0.75:
                self._break()
            elif not self._broken and not self._stays:
                self._whole = self.rng.randrange(self.count)

    def _ways(self) -> dict[str, tuple[Any, Any]]:
        """Ways to break a rail, and how to repair it."""
        rails = self.rails
        ways = {
            f"set down by host {host}": (
                partial(rails.down, host=host),
                partial(rails.up, host=host),
            )
            for host in (0, 1)
        }
        ways |= {
            f"cut at host {host}": (partial(rails.cut, at=(host,)), rails.mend) for host in (0, 1)
        }
        return {
            **ways,
            "cut": (rails.cut, rails.mend),
            "a black hole": (rails.blackhole, rails.pass_again),
        }

    def _break(self) -> None:
        rail = self.rng.choice([rail for rail in range(self.count) if rail != self._whole])
        if rail in self._broken:
            return
        ways = self._ways()
        way, lasts_s = self.rng.choice(list(ways)), self.rng.choice([0.1, 0.5, 2.0, 5.0, FOR_GOOD])
        ways[way][0](rail)
        self._broken[rail] = way, time.monotonic() + lasts_s
        self._note(f"rail {rail} is {way} for {lasts_s:g} s")

    def _stop(self, *, and_break: bool) -> None:
        """Stop a process for a moment. A rail may break just then, while its windows are closed."""
        name, lasts_s = self.rng.choice(list(self.peers)), self.rng.choice([0.02, 0.1, 0.5, 1.5])
        process = self.peers[name].process
        process.send_signal(signal.SIGSTOP)
        self._note(f"{name} stands still for {lasts_s:g} s")
        time.sleep(lasts_s)
        if and_break:
            self._break()
            time.sleep(0.1)
        process.send_signal(signal.SIGCONT)

    def _note(self, event: str) -> None:
        self.log.append(f"{time.monotonic() - self._begun:.2f} s: {event}")
