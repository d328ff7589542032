"""Findings of a tournament: slow hosts and pairs, transfers below the pass mark, and what could
not be judged.
"""

import statistics
from collections.abc import Sequence

from busbw.core.counters import CounterKind, counters_by_name
from busbw.core.finding import RunFinding, Verdict
from busbw.core.host_ranges import by_reason, listed
from busbw.link import schedule
from busbw.link.evidence import evidence, sums
from busbw.link.slow_endpoints import MIN_GAP, End, PairRate, Solution, solve
from busbw.link.types import TCP, LinkReport, PairFlow, bits_text

HOST = "link.host"  # the finding of a host that was not measured
MAX_NAMED = 6  # of a list in a message
FIX = (
    "compare cable, port speed, MTU and error counters with a good host: `ethtool {port}`, `ethtool"
    " -S {port}`, `busbw check`"
)
# Of each direction of two hosts. That all of 4 are slower than all of 4 others has, by chance, a
# probability of 2 in 70.
DIRECTION_RUNS = 4
CPUS_LIMITED = "; but there the CPUs limited the rate, not the link"
SAME_MTU = "give all of them one MTU: `ip link set dev PORT mtu 9000`"
ABOVE = 1.05  # of what a link can carry: more is no noise, so its rate is not the real one
FEWER_CPUS = "measure with --test perftest, or with more --streams"


def findings(report: LinkReport) -> list[RunFinding]:
    """All findings: hosts and ports that are missing first, then each rail."""
    result = _missing(report)
    for rail in range(len(report.rails)):
        result += _RailFindings(report, rail).findings()
    return result


def solution(report: LinkReport, rail: int, *, together: bool = False) -> Solution:
    """The slow ends and pairs of a rail; `together`: from transfers in both directions at once."""
    flows = (flow for flow in report.flows if flow.rail == rail and flow.together is together)
    return solve([PairRate(flow.sender, flow.receiver, flow.rate) for flow in flows if flow.rate])


def limit(report: LinkReport, flow: PairFlow) -> float | None:
    """The bytes of data per second that a flow's link can carry; None without line rate or MTU."""
    endpoints = report.rails[flow.rail].endpoints
    sender, receiver = endpoints[flow.sender], endpoints[flow.receiver]
    if sender is None or receiver is None:
        return None
    spec = report.spec
    return schedule.limit(
        sender, receiver, tcp=spec.method == TCP, mtu=flow.mtu, line_rate=spec.line_rate
    )


def directions(report: LinkReport, rail: int) -> tuple[PairFlow, PairFlow] | None:
    """The slow and the fast direction of the only pair of a rail without a pass mark; None if they
    are alike, or if any transfer of one is as slow as one of the other.
    """
    flows = [flow for flow in report.flows if flow.rail == rail and not flow.together]
    if len(flows) != 2 or any(not flow.rate or limit(report, flow) for flow in flows):
        return None
    slow, fast = sorted(flows, key=lambda flow: flow.rate or 0.0)
    of_slow, of_fast = _rates(slow), _rates(fast)
    alike = statistics.median(of_slow) > (1 - MIN_GAP) * statistics.median(of_fast)
    if alike or max(of_slow) >= min(of_fast):
        return None
    return slow, fast


def _rates(flow: PairFlow) -> list[float]:
    return flow.rates or [flow.rate or 0.0]


def _missing(report: LinkReport) -> list[RunFinding]:
    problems = {host.name: host.problem for host in report.hosts if host.problem}
    result = [
        RunFinding(HOST, Verdict.UNKNOWN, f"not measured completely: {text}")
        for text in by_reason(problems)
    ]
    for rail in report.rails:
        names = [
            host.name
            for host, port in zip(report.hosts, rail.endpoints, strict=True)
            if port is None and not host.problem
        ]
        if names:
            message = f"no port on {rail.name}: {listed(names)}"
            result.append(RunFinding(HOST, Verdict.UNKNOWN, message, fix="name it with --rail"))
    return result


class _RailFindings:
    """The findings of one rail."""

    def __init__(self, report: LinkReport, rail: int) -> None:
        self.report, self.rail, self.name = report, rail, report.rails[rail].name
        self.flows = [flow for flow in report.flows if flow.rail == rail]
        self.slow: set[End] = set()

    def findings(self) -> list[RunFinding]:
        """Faults, or a pass if all are alike; then the pass mark."""
        faults = self._failed()
        for together in (False, True):
            solved = solution(self.report, self.rail, together=together)
            faults += self._slow_hosts(solved, together)
            faults += self._slow_pairs(solved, together)
        faults += self._slow_direction()
        faults += self._faults()
        judged = [flow for flow in self.flows if flow.rate and not self.slow & _ends(flow)]
        marked = self._mark(judged)
        rest = [*self._mtus(), *self._without_latency()]
        if faults or not judged or any(finding.verdict is Verdict.FAIL for finding in marked):
            return faults + marked + rest
        return [self._alike(judged, marked), *marked, *rest]

    def _failed(self) -> list[RunFinding]:
        """Transfers without a rate.

        A host that failed with all others gets one finding. Lost hosts have their own finding.
        """
        lost = {at for at, host in enumerate(self.report.hosts) if host.problem}
        failed = [
            flow
            for flow in self.flows
            if flow.rate is None and not lost & {flow.sender, flow.receiver}
        ]
        fine = {at for flow in self.flows if flow.rate for at in (flow.sender, flow.receiver)}
        dead = {at for flow in failed for at in (flow.sender, flow.receiver)} - fine
        if not fine:  # no host is better than the others
            dead.clear()
        result = []
        for at in sorted(dead):
            error = next(flow.error for flow in failed if at in (flow.sender, flow.receiver))
            message = f"{self._host(at)} exchanges no data with any host on {self.name}: {error}"
            result.append(RunFinding("link.failed", Verdict.FAIL, message, fix=self._fix(at)))
        others = [flow for flow in failed if not dead & {flow.sender, flow.receiver}]
        if others:
            pairs = _join_names([self._pair(flow.sender, flow.receiver) for flow in others])
            message = f"{len(others)} of {len(self.flows)} transfers failed on {self.name}: {pairs}"
            fix = "check firewall, route and MTU: `ping -M do`"
            result.append(RunFinding("link.failed", Verdict.FAIL, message, others[0].error, fix))
        return result

    def _slow_hosts(self, solved: Solution, together: bool) -> list[RunFinding]:
        """Slow hosts. With both directions at once, only ends that were not slow in one direction.

        Adds the slow ends to `self.slow`.
        """
        result = []
        levels = [level for level in solved.ends if level.end not in self.slow]
        for host in dict.fromkeys(level.end.host for level in levels):
            slow = [level for level in levels if level.end.host == host]
            slow.sort(key=lambda level: not level.end.sends)
            rates = " and ".join(
                f"{'sends' if level.end.sends else 'receives'} {bits_text(level.rate)}"
                for level in slow
            )
            slow_ends = {level.end for level in slow}
            flows = [
                flow for flow in self.flows if flow.together is together and slow_ends & _ends(flow)
            ]
            message = (
                f"{self._host(host)} is slow on {self.name}{_when(together)}:"
                f" it {rates} in {slow[0].pairs} pairs,"
                f" the usual rate is {bits_text(solved.usual or 0.0)}"
            )
            verdict, fix = Verdict.FAIL, self._fix(host)
            if all(flow.cpus_explain(solved.least) for flow in flows):
                message, verdict, fix = message + CPUS_LIMITED, Verdict.UNKNOWN, FEWER_CPUS
            result.append(RunFinding("link.host_slow", verdict, message, evidence(flows), fix))
        self.slow.update(level.end for level in levels)
        return result

    def _slow_pairs(self, solved: Solution, together: bool) -> list[RunFinding]:
        """One finding for all slow pairs of ends that are not slow themselves."""
        pairs = [pair for pair in solved.pairs if not self.slow & _ends(pair)]
        if not pairs:
            return []
        pairs.sort(key=lambda pair: pair.rate)
        slowest = _join_names(
            [f"{self._pair(pair.sender, pair.receiver)} {bits_text(pair.rate)}" for pair in pairs]
        )
        slow_pairs = {(pair.sender, pair.receiver) for pair in pairs}
        flows = [
            flow
            for flow in self.flows
            if flow.together is together and (flow.sender, flow.receiver) in slow_pairs
        ]
        message = (
            f"slow on {self.name}{_when(together)}, although both hosts are fast with others:"
            f" {slowest}"
        )
        fix = (
            "the fault is between them: a switch, a cable between switches, or the path of their"
            " flows"
        )
        verdict = Verdict.FAIL
        if all(flow.cpus_explain(solved.least) for flow in flows):
            message, verdict, fix = message + CPUS_LIMITED, Verdict.UNKNOWN, FEWER_CPUS
        return [RunFinding("link.pair_slow", verdict, message, evidence(flows), fix)]

    def _slow_direction(self) -> list[RunFinding]:
        """The slow direction of the only pair, if it is slower in each of DIRECTION_RUNS runs."""
        slow, fast = directions(self.report, self.rail) or (None, None)
        if slow is None or fast is None or len(slow.rates) < DIRECTION_RUNS:
            return []
        sender, receiver = (self.report.hosts[at].name for at in (slow.sender, slow.receiver))
        message = (
            f"{sender} -> {receiver} is slower than {receiver} -> {sender} on {self.name}:"
            f" at most {bits_text(max(slow.rates))}, the other at least"
            f" {bits_text(min(fast.rates))}, in {len(slow.rates)} transfers each"
        )
        verdict, fix = Verdict.FAIL, self._fix_of_two([slow])
        if slow.cpus_explain(min(fast.rates)):
            message, verdict, fix = message + CPUS_LIMITED, Verdict.UNKNOWN, FEWER_CPUS
        return [RunFinding("link.direction_slow", verdict, message, evidence([slow]), fix)]

    def _fix_of_two(self, slow: Sequence[PairFlow]) -> str:
        """Where to look for the slow one of two hosts, of which nothing tells which it is."""
        first, second = slow[0].sender, slow[0].receiver
        doubt = "receives slowly"
        if any(flow.sender == second for flow in slow):
            (first, second), doubt = sorted((first, second)), "is the slow one"
        other = self.report.hosts[second].name
        return f"{self._fix(first)}; or {other} {doubt}: a third host tells which"

    def _mtus(self) -> list[RunFinding]:
        """Ports of the rail with different MTUs."""
        ports = zip(self.report.hosts, self.report.rails[self.rail].endpoints, strict=True)
        mtus = {host.name: str(port.mtu) for host, port in ports if port and port.mtu}
        if len(set(mtus.values())) < 2:
            return []
        message = f"the MTUs of the ports on {self.name} differ: {'; '.join(by_reason(mtus))}"
        return [RunFinding("link.mtu", Verdict.WARN, message, fix=SAME_MTU)]

    def _faults(self) -> list[RunFinding]:
        """Counters of faults that rose: a link went down, or a sender gave up."""
        return [
            RunFinding(
                "link.fault",
                Verdict.WARN,
                f"{host} {port} during the test on {self.name}: {name} +{increase}"
                f" ({counters_by_name()[name].meaning})",
            )
            for (host, port, name), increase in sums(self.flows, {CounterKind.FAULT}).items()
        ]

    def _mark(self, flows: Sequence[PairFlow]) -> list[RunFinding]:
        """Transfers below the pass mark; unknown without a mark, or if the CPUs were the limit."""
        gpu = self.report.spec.gpu is not None
        below: list[tuple[PairFlow, float]] = []  # with the limit of the link
        unmarked: list[PairFlow] = []
        for flow in flows:
            carried = limit(self.report, flow)
            if carried is None:
                unmarked.append(flow)
            elif (flow.rate or 0.0) < schedule.mark(carried, gpu=gpu):
                below.append((flow, carried))
        result = []
        for bound in (False, True):
            marked = [
                (flow, carried)
                for flow, carried in below
                if flow.cpus_explain(schedule.mark(carried, gpu=gpu)) is bound
            ]
            if marked:
                result.append(self._below_mark(marked, len(flows), bound=bound))
        if unmarked:
            message = (
                f"no pass mark for {len(unmarked)} of {len(flows)} transfers on {self.name}:"
                " the line rate or MTU of a port is unknown"
            )
            fix = "give the line rate, like --line-rate 100Gbit/s"
            limited = sum(flow.waited_for_cpus for flow in unmarked)
            if limited:
                message += f"; the CPUs limited the rate of {limited}, so the link may be faster"
                fix += f"; or {FEWER_CPUS}"
            result.append(RunFinding("link.mark", self._without_mark, message, fix=fix))
        return result

    @property
    def _without_mark(self) -> Verdict:
        """The verdict where no mark applies: unknown, unless the hosts are compared."""
        compared = solution(self.report, self.rail).usual is not None
        return Verdict.SKIP if compared else Verdict.UNKNOWN

    @property
    def _carrier(self) -> str:
        """Whose rate the pass mark follows from: that of the link, of the lab, or a given one."""
        ports = [port for port in self.report.rails[self.rail].endpoints if port is not None]
        if self.report.spec.line_rate and any(port.in_lab or not port.rate for port in ports):
            return "the given --line-rate"
        return "the lab's rate" if any(port.in_lab for port in ports) else "the link"

    def _below_mark(
        self, below: Sequence[tuple[PairFlow, float]], count: int, *, bound: bool
    ) -> RunFinding:
        """The finding of flows below the mark, each with its limit, out of `count`; `bound`: the
        CPUs limited their rates.
        """
        gpu = self.report.spec.gpu is not None
        percent = 100 * (schedule.GPU_MARK if gpu else schedule.HOST_MARK)
        worst, carried = min(below, key=lambda pair: (pair[0].rate or 0.0) / pair[1])
        message = (
            f"{len(below)} of {count} transfers on {self.name} are below {percent:g} % of what"
            f" {self._carrier} can carry; the slowest: {self._pair(worst.sender, worst.receiver)}"
            f" {bits_text(worst.rate or 0.0)} of {bits_text(carried)}"
        )
        verdict, fix = Verdict.FAIL, self._fix(worst.sender)
        if len({at for flow in self.flows for at in (flow.sender, flow.receiver)}) == 2:
            fix = self._fix_of_two([flow for flow, _ in below])
        if bound:
            message += CPUS_LIMITED
            verdict = self._without_mark
            fix = FEWER_CPUS
        return RunFinding("link.mark", verdict, message, evidence([flow for flow, _ in below]), fix)

    def _without_latency(self) -> list[RunFinding]:
        """Pairs that transferred data, but whose small messages could not be timed."""
        failed = [
            latency
            for latency in self.report.latencies
            if latency.rail == self.rail and latency.error
        ]
        if not failed:
            return []
        pairs = _join_names([self._pair(latency.a, latency.b) for latency in failed])
        return [
            RunFinding(
                "link.latency",
                Verdict.UNKNOWN,
                f"small messages were not timed on {self.name}: {pairs}",
                failed[0].error,
            )
        ]

    def _alike(self, flows: Sequence[PairFlow], marked: Sequence[RunFinding]) -> RunFinding:
        solved = solution(self.report, self.rail)
        rate = bits_text(min(flow.rate or 0.0 for flow in flows))
        slowest = f"the slowest transfer has {rate}{self._above_limit(flows)}"
        if solved.usual is not None:
            return RunFinding(
                "link.alike",
                Verdict.PASS,
                f"no slow host or pair on {self.name}: the usual rate is {bits_text(solved.usual)},"
                f" {slowest}",
            )
        if not marked:
            mark = f"the pass mark of {self._carrier}"
            message = f"all transfers on {self.name} reach {mark}, {slowest}"
            return RunFinding("link.alike", Verdict.PASS, message)
        return RunFinding(
            "link.alike", Verdict.UNKNOWN, f"too few hosts on {self.name} to compare, {slowest}"
        )

    def _above_limit(self, flows: Sequence[PairFlow]) -> str:
        """`; 2 of 2 exceed the 297 Mbit/s that the given --line-rate can carry`, or nothing."""
        limits = [(flow.rate or 0.0, limit(self.report, flow)) for flow in flows]
        above = [carried for rate, carried in limits if carried and rate > ABOVE * carried]
        text = f"; {len(above)} of {len(flows)} exceed the {bits_text(min(above, default=0.0))}"
        text += f" that {self._carrier} can carry, so the real rate is higher"
        return text if above else ""

    def _host(self, at: int) -> str:
        """The host as the user named it, with its hostname if that differs."""
        host = self.report.hosts[at]
        same = host.hostname.partition(".")[0] in ("", host.name.partition(".")[0])
        return host.name if same else f"{host.name} ({host.hostname})"

    def _pair(self, sender: int, receiver: int) -> str:
        return f"{self.report.hosts[sender].name} -> {self.report.hosts[receiver].name}"

    def _fix(self, at: int) -> str:
        port = self.report.rails[self.rail].endpoints[at]
        return f"on {self.report.hosts[at].name}: {FIX.format(port=port.name if port else 'PORT')}"


def _ends(flow: PairFlow | PairRate) -> set[End]:
    return {End(flow.sender, True), End(flow.receiver, False)}


def _when(together: bool) -> str:
    return " with both directions at once" if together else ""


def _join_names(names: Sequence[str]) -> str:
    text = ", ".join(names[:MAX_NAMED])
    return f"{text} and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else text
