"""A tournament between hosts: starts a node on each, measures pairs in rounds, and judges the
results.
"""

import contextlib
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from datetime import datetime
from types import TracebackType
from typing import Self, TypeVar

from busbw.core.errors import NoMeasurement, UsageError
from busbw.core.host_ranges import by_reason, listed
from busbw.core.version import __version__
from busbw.host.endpoints import Endpoint
from busbw.host.process import allow_open_files
from busbw.launch import remote
from busbw.launch.node import RemoteNode
from busbw.launch.signal_handlers import interrupt_deferred
from busbw.link import findings, schedule
from busbw.link import pair as messages
from busbw.link.pair import PairEnd, PairTest
from busbw.link.perftest import BUILD
from busbw.link.schedule import Pair, disjoint, pairs_without, rounds
from busbw.link.types import PERFTEST, LinkHost, LinkReport, LinkSpec, PairFlow

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Warn = Callable[[str], None]
WITHOUT = "the other hosts are measured without it"
MAX_STARTING = remote.MAX_AGENTS
MAX_FAILED_PAIRS = 3  # pairs, each in both directions
WRITING_SHARE = 0.1
POLL_S = 0.02
MAX_REPEATED_PAIRS = 32  # slow pairs that are measured once more


def now() -> str:
    """The time of day with its zone."""
    return datetime.now().astimezone().isoformat(timespec="seconds")


class Tournament:
    """Measures all pairs of `hosts`.

    `save` gets the report after every pair, `warn` gets warnings at once.

    Use it as a context manager, which closes all nodes. `report` has the results so far, also after
    Ctrl-C.
    """

    def __init__(
        self, hosts: Sequence[str], spec: LinkSpec, save: Callable[[LinkReport], None], warn: Warn
    ) -> None:
        if len(hosts) < 2:
            raise UsageError(
                f"--hosts {listed(hosts)}: a link needs two hosts",
                "give two or more, like --hosts h1,h2",
            )
        self.report = LinkReport(
            spec=spec, busbw=__version__, start=now(), hosts=[LinkHost(name) for name in hosts]
        )
        self._spec, self._save, self._warn = spec, save, warn
        self._nodes: dict[int, RemoteNode] = {}
        self._lock = threading.Lock()
        self._ended = False
        self._next_save = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close all nodes, judge, and save."""
        with self._lock:
            self._ended = True
        nodes = list(self._nodes.values())
        _map_threads(RemoteNode.close, nodes, len(nodes))
        self.report.end = now()
        self.report.findings = findings.findings(self.report)
        self._save(self.report)

    def run(self, launch_limit_s: float) -> None:
        """Start the nodes and measure.

        NoMeasurement if fewer than two hosts answer or they share no network.
        """
        descriptions = self._start(launch_limit_s)
        hosts = self.report.hosts
        names = [host.name for host in hosts]
        if len(descriptions) < 2:
            problems = "; ".join(by_reason(self._problems()))
            raise NoMeasurement(
                f"{len(descriptions)} of {len(names)} hosts answered: {problems}",
                "does `ssh HOST true` work on each?",
            )
        ports: list[list[Endpoint]] = [[] for _ in hosts]
        for at, description in descriptions.items():
            ports[at] = description.endpoints
        if self._spec.method == PERFTEST:
            self._check(ports)
            for at, host_ports in enumerate(ports):
                ports[at] = [port for port in host_ports if port.device]
        self.report.rails = schedule.choose(self._spec.rails, ports, names)
        for rail in range(len(self.report.rails)):
            for pairs in rounds(len(names), self._spec.rounds):
                self._round(rail, pairs)
        for rail in range(len(self.report.rails)):
            for pairs in disjoint(self._slow_pairs(rail)):
                self._round(rail, pairs, again=True)
            self._compare_directions(rail)
        self.report.complete = True

    def _start(self, limit_s: float) -> dict[int, messages.Description]:
        """Start a node on each host and ask for its ports; the report has the problem of each."""
        allow_open_files()

        def start(at: int) -> messages.Description | None:
            host = self.report.hosts[at]
            try:
                node = RemoteNode(host.name, remote.busbw("link", "--node"))
                with self._lock:
                    ended = self._ended
                    self._nodes[at] = node
                if ended:  # by Ctrl-C, which closed the others
                    node.close()
                request = messages.Describe(self._spec.method == PERFTEST)
                return node.ask(request, messages.Description, limit_s)
            except NoMeasurement as error:
                self._exclude(at, error)
                return None

        answers = _map_threads(start, range(len(self.report.hosts)), MAX_STARTING)
        descriptions = {at: answer for at, answer in enumerate(answers) if answer is not None}
        if len(descriptions) > 1:
            for text in by_reason(self._problems()):
                self._warn(f"warning: {text}; {WITHOUT}")
        for at, description in descriptions.items():
            host = self.report.hosts[at]
            host.hostname = description.hostname
            host.busbw = description.busbw
            host.perftest = description.perftest
        return descriptions

    def _problems(self) -> dict[str, str]:
        """Why hosts are not measured, by name."""
        return {host.name: host.problem for host in self.report.hosts if host.problem}

    def _exclude(self, at: int, error: NoMeasurement) -> bool:
        """Keep why a host is not measured; False if that is known already."""
        host = self.report.hosts[at]
        with self._lock:
            if host.problem or self._ended:
                return False
            host.problem = error.message.removeprefix(f"{host.name}: ")
        return True

    def _lose(self, at: int, error: NoMeasurement) -> None:
        """A host fails during the test."""
        if self._exclude(at, error):
            host = self.report.hosts[at]
            self._warn(f"warning: {host.name}: {host.problem}; {WITHOUT}")

    def _check(self, ports: schedule.Ports) -> None:
        """NoMeasurement if a host lacks perftest, an RDMA device, or the requested GPU support."""
        for host, host_ports in zip(self.report.hosts, ports, strict=True):
            if host.problem:
                continue
            if host.perftest is None:
                raise NoMeasurement(
                    f"{host.name}: ib_write_bw is not installed",
                    "install perftest on all hosts, or use --test tcp",
                )
            if self._spec.gpu is not None and not host.perftest.gpu:
                raise NoMeasurement(
                    f"{host.name}: ib_write_bw {host.perftest.version} was built without CUDA (no"
                    " --use_cuda)",
                    BUILD,
                )
            if not any(port.device for port in host_ports):
                raise NoMeasurement(
                    f"{host.name}: no RDMA device has an interface with an IPv4 address",
                    "use --test tcp",
                )

    def _round(self, rail: int, pairs: Sequence[Pair], *, again: bool = False) -> None:
        """Measure pairs at the same time.

        `again`: replace earlier results if the new rate is higher.
        """
        pairs = pairs_without(pairs, self._excluded(rail))
        _map_threads(lambda pair: self._measure(rail, pair, again), pairs, len(pairs))

    def _excluded(self, rail: int) -> list[int]:
        """Hosts that were lost, have no port on the rail, or failed in MAX_FAILED_PAIRS pairs
        without a single success.
        """
        endpoints = self.report.rails[rail].endpoints
        failed, fine = Counter[int](), set[int]()
        for flow in self.report.flows:
            if flow.rail == rail and flow.rate is None:
                failed.update((flow.sender, flow.receiver))
            elif flow.rail == rail:
                fine.update((flow.sender, flow.receiver))
        hopeless = {
            at for at, count in failed.items() if count >= 2 * MAX_FAILED_PAIRS and at not in fine
        }
        return [
            at
            for at, host in enumerate(self.report.hosts)
            if host.problem or endpoints[at] is None or at in hopeless
        ]

    def _measure(self, rail: int, pair: Pair, again: bool) -> None:
        a, b = (self._place(rail, at) for at in pair)
        test = PairTest(self._spec, rail)
        flows = test.flows(a, b)
        connected = any(flow.rate for flow in flows)
        latencies = [test.latency(a, b)] if connected and not again else []
        for place in (a, b):
            if place.node.lost is not None:
                self._lose(place.host, place.node.lost)
        with self._lock:
            if self._ended:
                return
            if again:
                self._replace(flows)
            else:
                self.report.flows += flows
                self.report.latencies += latencies
            self._save_if_due()

    def _save_if_due(self) -> None:
        """Save, unless that would take more than WRITING_SHARE of the time, as with many hosts."""
        start_s = time.monotonic()
        if start_s >= self._next_save:
            self._save(self.report)
            self._next_save = time.monotonic() + (time.monotonic() - start_s) / WRITING_SHARE

    def _place(self, rail: int, at: int) -> PairEnd:
        port = self.report.rails[rail].endpoints[at]
        assert port is not None  # hosts without a port were excluded
        return PairEnd(at, self._nodes[at], port)

    def _slow_pairs(self, rail: int) -> list[Pair]:
        """Slow pairs of hosts that are not slow: other traffic may have disturbed them."""
        flows = findings.solution(self.report, rail).pairs
        pairs = [
            (min(flow.sender, flow.receiver), max(flow.sender, flow.receiver)) for flow in flows
        ]
        return list(dict.fromkeys(pairs))[:MAX_REPEATED_PAIRS]

    def _compare_directions(self, rail: int) -> None:
        """Repeat the only pair of a rail, as long as one of its directions is slower each time.

        Each direction is the first in every other run.
        """
        for number in range(1, findings.DIRECTION_RUNS):
            found = findings.directions(self.report, rail)
            if found is None:
                return
            a, b = sorted((found[0].sender, found[0].receiver))
            self._round(rail, [(b, a) if number % 2 else (a, b)], again=True)

    def _replace(self, flows: Sequence[PairFlow]) -> None:
        """Put each flow in the place of the earlier one if its rate is higher; keeps all rates."""
        places = {
            (flow.rail, flow.sender, flow.receiver, flow.together): at
            for at, flow in enumerate(self.report.flows)
        }
        for flow in flows:
            at = places[flow.rail, flow.sender, flow.receiver, flow.together]
            earlier = self.report.flows[at]
            better = flow if (flow.rate or 0.0) > (earlier.rate or 0.0) else earlier
            better.rates = [*(earlier.rates or [earlier.rate or 0.0]), flow.rate or 0.0]
            self.report.flows[at] = better


def _map_threads(
    work: Callable[[Item], Answer], items: Sequence[Item], threads: int
) -> list[Answer]:
    """The answers of `work` for all items, in their order, from at most `threads` threads.

    Ctrl-C ends the wait; calls that still run end when their nodes are closed.
    """
    waiting = deque(enumerate(items))
    answers: dict[int, Answer] = {}
    errors: list[Exception] = []

    def take() -> None:
        with contextlib.suppress(IndexError):  # none is left
            while True:
                at, item = waiting.popleft()
                try:
                    answers[at] = work(item)
                except Exception as error:  # noqa: BLE001 - raised below
                    errors.append(error)

    with interrupt_deferred() as interrupts:
        for _ in range(min(threads, len(items))):
            threading.Thread(target=take, daemon=True).start()
        while len(answers) + len(errors) < len(items) and not interrupts:
            time.sleep(POLL_S)
        waiting.clear()
    if interrupts:
        raise KeyboardInterrupt
    if errors:
        raise errors[0]
    return [answers[at] for at in range(len(items))]
