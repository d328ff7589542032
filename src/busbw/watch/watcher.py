"""The loop of a watch.

`ticks` says when to read: at start + n intervals, independent of how long a reading takes, so that
delays do not add up. `Watcher` takes the samples and returns one Watched for each interval.
"""

import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from threading import Event
from typing import Any

from busbw.core.link_samples import HOST, HostLink, HostSample, LinkFlow, WatchInterval
from busbw.core.telemetry import TCP
from busbw.model.rates import CounterRates, flow, flow_of_gone_link, rates
from busbw.watch.verdicts import judge

JUDGED_S = 0.9  # patterns need at least this much time: shorter intervals have too few events


def ticks(
    interval_s: float, stop: Event, count: int | None = None, last: int | None = None
) -> Iterator[int]:
    """Wait for each deadline and yield the number of deadlines missed before it, by a long reading
    or a suspended host.

    Ends after `count` ticks, or with deadline number `last`, or when `stop` is set.
    """
    start = time.monotonic()
    number = yielded = 0
    while (count is None or yielded < count) and (last is None or number < last):
        number += 1
        # Deadlines that have passed, including the last one that was met.
        passed = int((time.monotonic() - start) / interval_s)
        if last is not None:
            passed = min(passed, last)  # later ones do not count
        missed = max(0, passed - number)
        number += missed
        if stop.wait(max(0.0, start + number * interval_s - time.monotonic())):
            return
        yielded += 1
        yield missed


def event_of_signals(undo: ExitStack) -> Event:
    """An event that the first SIGINT or SIGTERM sets, so that output in progress is completed."""
    stop, before = Event(), dict[int, Any]()

    def end(number: int, _frame: object) -> None:
        stop.set()
        signal.signal(number, before[number])

    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, end)
        undo.callback(signal.signal, number, before[number])
    return stop


class Watcher:
    """The links of one host, followed from sample to sample."""

    def __init__(self, host: str, first: HostSample) -> None:
        self._host, self._rates = host, CounterRates()
        self._recent, self._judged = deque([first]), CounterRates()
        self._links: dict[str, HostLink] = {link.name: link for link in first.links}

    def take(
        self, sample: HostSample, missed: int = 0, now: Callable[[], float] = time.time
    ) -> WatchInterval:
        """What happened between the previous sample and this one.

        `missed` is the number of readings left out in between, `now` the clock of the result.
        """
        before = self._recent[-1]
        while len(self._recent) > 1 and sample.at_s - self._recent[1].at_s >= JUDGED_S:
            self._recent.popleft()
        oldest = self._recent[0]
        self._rates = rates(before, sample, self._rates)
        flows = self._flows(before, sample, self._rates)
        judged = flows
        if oldest is not before:
            self._judged = rates(oldest, sample, self._judged)
            judged = self._flows(oldest, sample, self._judged)
        self._recent.append(sample)
        self._links |= {link.name: link for link in sample.links}
        host = self._rates.of(HOST)
        return WatchInterval(
            host=self._host,
            at=datetime.fromtimestamp(now(), UTC).isoformat(timespec="milliseconds"),
            seconds=sample.at_s - before.at_s,
            missed=missed,
            links=flows,
            tcp=self._rates.of(TCP),
            cpu=host["cpu_busy"] / 1000 if "cpu_busy" in host else None,
            free_memory_bytes=int(host["mem_free"]) if "mem_free" in host else None,
            findings=judge(judged),
            unread=list(sample.unread),
        )

    def _flows(
        self, before: HostSample, after: HostSample, link_rates: CounterRates
    ) -> list[LinkFlow]:
        """Flows of the present links, in their order, then of those that are gone."""
        previous_names = {link.name for link in before.links}
        names = {link.name for link in after.links}
        flows = [
            flow(link, link_rates, new=link.name not in previous_names) for link in after.links
        ]
        return flows + [
            flow_of_gone_link(link) for name, link in self._links.items() if name not in names
        ]
