"""The readers of several hosts (`busbw.job.live.node`): asked for what is new in each look.

A host that does not answer delays no look. Clocks of hosts are not compared: when a process ended
is known as far as the times between requests and answers tell.
"""

import math
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import msgspec

from busbw.core import program
from busbw.core.errors import NoMeasurement
from busbw.core.host_ranges import by_reason
from busbw.host.process import allow_open_files
from busbw.job.live.files import HostNews, turn_at
from busbw.job.live.node import Look
from busbw.launch import remote
from busbw.launch.node import RemoteNode

MODULE = "busbw.job.live.node"
WAIT_S = 0.5  # of a look for its answers; later ones are taken in the next look
SILENT_S = 3.0  # without an answer: what was known before is not said of now
CLOCK_S = 0.002  # processes on two hosts end one after the other if their clocks are known so well
EXCHANGES = 60  # that tell the difference of two clocks, which drift


@dataclass(slots=True)
class _Clock:
    """The bounds of how much this host's clock is ahead of another one's."""

    bounds: "deque[tuple[float, float]]" = field(default_factory=lambda: deque(maxlen=EXCHANGES))

    def here_s(self, other_s: float) -> float | None:
        """A time of the other clock; None if it is not known within CLOCK_S."""
        low = max((low for low, _ in self.bounds), default=-math.inf)
        high = min((high for _, high in self.bounds), default=math.inf)
        return other_s + (low + high) / 2 if high - low <= 2 * CLOCK_S else None


@dataclass(slots=True)
class _RemoteReader:
    name: str
    since_s: float  # when it answered last, or was asked first
    node: RemoteNode | None = None
    answer: "Future[bytes] | None" = None  # to come
    asked_s: float = 0.0
    came_s: float = 0.0  # the answer, as the thread saw that reads it
    news: HostNews | None = None
    problem: str = ""  # why it is not asked any more
    clock: _Clock = field(default_factory=_Clock)

    def note_time(self, _answer: object) -> None:
        self.came_s = time.monotonic()


class JobHosts:
    """The readers of the folder on the hosts with these names.

    Use it as a context manager, which ends them.
    """

    def __init__(self, names: Sequence[str], folder: Path) -> None:
        self._folder = str(folder.absolute())
        self._hosts = {name: _RemoteReader(name, time.monotonic()) for name in names}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the readers."""
        nodes = [host.node for host in self._hosts.values() if host.node]
        with ThreadPoolExecutor(max(1, len(nodes))) as pool:
            list(pool.map(RemoteNode.close, nodes))

    def start(self, limit_s: float) -> None:
        """Start the readers, and wait for the first answers; NoMeasurement without any."""
        allow_open_files()
        hosts = list(self._hosts.values())
        for first in range(0, len(hosts), remote.MAX_AGENTS):
            batch = hosts[first : first + remote.MAX_AGENTS]
            for host in batch:
                self._ask(host, (), None)
            wait([host.answer for host in batch if host.answer], limit_s)
            for host in batch:
                self._take(host)
                if host.answer:
                    host.problem = f"no answer within {limit_s:g} s"
        if not any(host.news for host in hosts):
            problems = {host.name: host.problem for host in hosts}
            raise NoMeasurement(
                f"none of the hosts answered: {'; '.join(by_reason(problems))}",
                "does `ssh HOST true` work on each?",
            )

    def read(self, wanted: Mapping[str, Collection[int]]) -> dict[str, HostNews]:
        """What is new, by host, of those that answer; `wanted` are ranks of other hosts to read
        too.
        """
        asked, turn = [], turn_at(time.monotonic())
        for host in self._hosts.values():
            if not (host.answer or host.news or host.problem):
                self._ask(host, wanted.get(host.name, ()), turn)
                asked.append(host.answer)
        wait([answer for answer in asked if answer], WAIT_S)
        found = {}
        for host in self._hosts.values():
            self._take(host)
            if host.news:
                found[host.name], host.news = host.news, None
        return found

    def silent(self) -> dict[str, tuple[float, str]]:
        """The hosts that do not answer: since how many seconds, and why."""
        now_s = time.monotonic()
        found = {}
        for host in self._hosts.values():
            since_s = now_s - host.since_s
            if host.problem or since_s > SILENT_S:
                found[host.name] = since_s, host.problem or "no answer"
        return found

    def _ask(self, host: _RemoteReader, wanted: Collection[int], turn: int | None) -> None:
        try:
            if host.node is None:
                host.node = RemoteNode(host.name, program.module_command(MODULE))
            host.asked_s = time.monotonic()
            host.answer = host.node.begin(Look(self._folder, list(wanted), turn))
            host.answer.add_done_callback(host.note_time)
        except NoMeasurement as error:
            self._lose(host, error)

    def _take(self, host: _RemoteReader) -> None:
        """The answer, if it has come."""
        if host.node is None or host.answer is None or not host.answer.done():
            return
        try:
            news = host.node.result(host.answer, HostNews, 0)
        except NoMeasurement as error:
            self._lose(host, error)
            return
        host.answer, host.since_s = None, time.monotonic()
        host.clock.bounds.append((host.asked_s - news.now_s, host.came_s - news.now_s))
        ends_s = {rank: host.clock.here_s(end_s) for rank, end_s in news.ends_s.items()}
        known = {rank: end_s for rank, end_s in ends_s.items() if end_s is not None}
        host.news = msgspec.structs.replace(news, ends_s=known)

    def _lose(self, host: _RemoteReader, error: NoMeasurement) -> None:
        host.answer, host.problem = None, error.message.removeprefix(f"{host.name}: ")
