"""Findings of a tournament: slow hosts and pairs, transfers below the pass mark, and what could
not be judged.

Counter increases during transfers, as evidence for a rate: pauses and symbol errors are
different causes.
"""

from collections.abc import Collection, Iterable, Sequence

from busbw.core.counters import BY_NAME, Kind
from busbw.core.finding import Finding, Verdict
from busbw.link import schedule
from busbw.link.slow_endpoints import End, Measured, Solution, solve
from busbw.link.types import TCP, Flow, LinkReport, bits_text

Key = tuple[str, str, str]  # host, port or "tcp", counter
SHOWN = 6


def sums(flows: Iterable[Flow], kinds: Collection[Kind]) -> dict[Key, int]:
    """The increases of counters of these kinds, over all flows."""
    found: dict[Key, int] = {}
    for flow in flows:
        for host, ports in flow.moved.items():
            for port, counters in ports.items():
                for name, by in counters.items():
                    if name in BY_NAME and BY_NAME[name].kind in kinds:
                        found[host, port, name] = found.get((host, port, name), 0) + by
    return found


def evidence(flows: Iterable[Flow]) -> str:
    """The loss, congestion and fault counters that increased most beyond normal; '' if none did."""
    found = sums(flows, {Kind.LOSS, Kind.CONGESTION, Kind.FAULT})
    times = {key: by / BY_NAME[key[2]].notable for key, by in found.items()}
    largest = sorted((key for key in times if times[key] >= 1), key=lambda key: -times[key])[:SHOWN]
    return (
        "meanwhile "
        + ", ".join(
            f"{host} {port} {name} +{found[host, port, name]}" for host, port, name in largest
        )
        if largest
        else ""
    )


HOST = "link.host"  # the finding of a host that was not measured
NAMED = 6  # of a list in a message
FIX = (
    "compare cable, port speed, MTU and error counters with a good host: `ethtool {port}`, `ethtool"
    " -S {port}`, `busbw check`"
)


def findings(report: LinkReport) -> list[Finding]:
    """All findings: hosts and ports that are missing first, then each rail."""
    found = _missing(report)
    for rail in range(len(report.rails)):
        found += _Rail(report, rail).findings()
    return found


def solution(report: LinkReport, rail: int, *, together: bool = False) -> Solution:
    """The slow ends and pairs of a rail; `together`: from transfers in both directions at once."""
    flows = (flow for flow in report.flows if flow.rail == rail and flow.together is together)
    return solve([Measured(flow.sender, flow.receiver, flow.rate) for flow in flows if flow.rate])


def limit(report: LinkReport, flow: Flow) -> float | None:
    """The most data in bytes per second that a flow's link can carry; None if its line rate or
    MTU is unknown.
    """
    ends = report.rails[flow.rail].endpoints
    sender, receiver = ends[flow.sender], ends[flow.receiver]
    if sender is None or receiver is None:
        return None
    spec = report.spec
    return schedule.limit(
        sender, receiver, tcp=spec.method == TCP, mtu=flow.mtu, line_rate=spec.line_rate
    )


def _missing(report: LinkReport) -> list[Finding]:
    found = [
        Finding(HOST, Verdict.UNKNOWN, f"{host.name} was not measured completely: {host.problem}")
        for host in report.hosts
        if host.problem
    ]
    for rail in report.rails:
        names = [
            host.name
            for host, port in zip(report.hosts, rail.endpoints, strict=True)
            if port is None and not host.problem
        ]
        if names:
            found.append(
                Finding(
                    HOST,
                    Verdict.UNKNOWN,
                    f"no port on {rail.name}: {_listed(names)}",
                    fix="name it with --rail",
                )
            )
    return found


class _Rail:
    """The findings of one rail."""

    def __init__(self, report: LinkReport, rail: int) -> None:
        self.report, self.rail, self.name = report, rail, report.rails[rail].name
        self.flows = [flow for flow in report.flows if flow.rail == rail]
        self.slow: set[End] = set()

    def findings(self) -> list[Finding]:
        """Faults, or a pass if all are alike; then the pass mark."""
        bad = self._failed()
        for together in (False, True):
            bad += self._solved(solution(self.report, self.rail, together=together), together)
        bad += self._faults()
        rest = [
            flow
            for flow in self.flows
            if flow.rate and not self.slow & {End(flow.sender, True), End(flow.receiver, False)}
        ]
        marked = self._mark(rest)
        quiet = self._without_latency()
        if bad or not rest or any(one.verdict is Verdict.WARN for one in marked):
            return bad + marked + quiet
        return [self._alike(rest, marked), *marked, *quiet]

    def _failed(self) -> list[Finding]:
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
        dead = (
            {at for flow in failed for at in (flow.sender, flow.receiver)} - fine if fine else set()
        )
        found = []
        for at in sorted(dead):
            error = next(flow.error for flow in failed if at in (flow.sender, flow.receiver))
            message = f"{self._host(at)} exchanges no data with any host on {self.name}: {error}"
            found.append(Finding("link.failed", Verdict.FAIL, message, fix=self._fix(at)))
        rest = [flow for flow in failed if not dead & {flow.sender, flow.receiver}]
        if rest:
            listed = _listed([self._pair(flow.sender, flow.receiver) for flow in rest])
            message = f"{len(rest)} of {len(self.flows)} transfers failed on {self.name}: {listed}"
            found.append(
                Finding(
                    "link.failed",
                    Verdict.FAIL,
                    message,
                    rest[0].error,
                    "check firewall, route and MTU: `ping -M do`",
                )
            )
        return found

    def _solved(self, solved: Solution, together: bool) -> list[Finding]:
        """Slow hosts and slow pairs. With both directions at once, only what was not slow alone."""
        when = " with both directions at once" if together else ""
        flows = [flow for flow in self.flows if flow.together is together]
        found = []
        ends = [one for one in solved.ends if one.end not in self.slow]
        for host in dict.fromkeys(one.end.host for one in ends):
            slow = sorted(
                (one for one in ends if one.end.host == host), key=lambda one: not one.end.sends
            )
            said = " and ".join(
                f"{'sends' if one.end.sends else 'receives'} {bits_text(one.rate)}" for one in slow
            )
            own = [
                flow
                for flow in flows
                if any(host == (flow.sender if one.end.sends else flow.receiver) for one in slow)
            ]
            busy = (
                "; the CPUs of one end were saturated"
                if all(flow.processor_bound for flow in own)
                else ""
            )
            usual = f"the usual rate is {bits_text(solved.usual or 0.0)}"
            message = (
                f"{self._host(host)} is slow on {self.name}{when}: it {said} in {slow[0].pairs}"
                f" pairs, {usual}{busy}"
            )
            found.append(
                Finding("link.host_slow", Verdict.WARN, message, evidence(own), self._fix(host))
            )
        self.slow.update(one.end for one in ends)
        pairs = [
            one
            for one in sorted(solved.pairs, key=lambda one: one.rate)
            if not self.slow & {End(one.sender, True), End(one.receiver, False)}
        ]
        if pairs:
            listed = _listed(
                [f"{self._pair(one.sender, one.receiver)} {bits_text(one.rate)}" for one in pairs]
            )
            slow_pairs = {(one.sender, one.receiver) for one in pairs}
            own = [flow for flow in flows if (flow.sender, flow.receiver) in slow_pairs]
            message = (
                f"slow on {self.name}{when}, although both hosts are fast with others: {listed}"
            )
            fix = (
                "the fault is between them: a switch, a cable between switches, or the path of"
                " their flows"
            )
            found.append(Finding("link.pair_slow", Verdict.WARN, message, evidence(own), fix))
        return found

    def _faults(self) -> list[Finding]:
        """Counters of faults that rose: a link went down, or a sender gave up."""
        return [
            Finding(
                "link.fault",
                Verdict.WARN,
                f"{host} {port} during the test on {self.name}: {name} +{by}"
                f" ({BY_NAME[name].meaning})",
            )
            for (host, port, name), by in sums(self.flows, {Kind.FAULT}).items()
        ]

    def _mark(self, flows: Sequence[Flow]) -> list[Finding]:
        """Transfers below the pass mark; unknown if there is no mark, or if the CPUs limited the
        rate.
        """
        gpu = self.report.spec.gpu is not None
        limits = [(flow, most) for flow in flows if (most := limit(self.report, flow)) is not None]
        share = (
            f"{100 * (schedule.GPU_MARK if gpu else schedule.HOST_MARK):g} % of what the link can"
            " carry"
        )
        found = []
        for bound in (False, True):
            below = [
                one
                for one in limits
                if one[0].processor_bound is bound
                and (one[0].rate or 0.0) < schedule.mark(one[1], gpu=gpu)
            ]
            if not below:
                continue
            worst, most = min(below, key=lambda one: (one[0].rate or 0.0) / one[1])
            slowest = (
                f"{self._pair(worst.sender, worst.receiver)} {bits_text(worst.rate or 0.0)} of"
                f" {bits_text(most)}"
            )
            message = (
                f"{len(below)} of {len(flows)} transfers on {self.name} are below {share}; the"
                f" slowest: {slowest}"
            )
            message += ", but there the CPUs limited the rate, not the link" if bound else ""
            fix = (
                "measure with --test perftest, or with more --streams"
                if bound
                else self._fix(worst.sender)
            )
            found.append(
                Finding(
                    "link.mark",
                    Verdict.UNKNOWN if bound else Verdict.WARN,
                    message,
                    evidence([one for one, _ in below]),
                    fix,
                )
            )
        without = len(flows) - len(limits)
        if without:
            text = (
                f"no pass mark for {without} of {len(flows)} transfers on {self.name}: the line"
                " rate or MTU of a port is unknown"
            )
            found.append(
                Finding(
                    "link.mark",
                    Verdict.UNKNOWN,
                    text,
                    fix="give the line rate in Gbit/s with --line-rate",
                )
            )
        return found

    def _without_latency(self) -> list[Finding]:
        """Pairs that transferred data, but whose small messages could not be timed."""
        failed = [one for one in self.report.latencies if one.rail == self.rail and one.error]
        if not failed:
            return []
        listed = _listed([self._pair(one.a, one.b) for one in failed])
        return [
            Finding(
                "link.latency",
                Verdict.UNKNOWN,
                f"small messages were not timed on {self.name}: {listed}",
                failed[0].error,
            )
        ]

    def _alike(self, flows: Sequence[Flow], marked: Sequence[Finding]) -> Finding:
        solved = solution(self.report, self.rail)
        slowest = f"the slowest transfer has {bits_text(min(flow.rate or 0.0 for flow in flows))}"
        if solved.usual is not None:
            return Finding(
                "link.alike",
                Verdict.PASS,
                f"no slow host or pair on {self.name}: the usual rate is {bits_text(solved.usual)},"
                f" {slowest}",
            )
        if not marked:
            return Finding(
                "link.alike",
                Verdict.PASS,
                f"all transfers on {self.name} reach the pass mark, {slowest}",
            )
        return Finding(
            "link.alike", Verdict.UNKNOWN, f"too few hosts on {self.name} to compare, {slowest}"
        )

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


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMED]) + (
        f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    )
