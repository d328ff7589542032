"""What a tournament shows: slow ends and pairs, what is below the pass mark, and what could not be judged."""

import math
from collections.abc import Iterable, Sequence

from busbw.core.counters import BY_NAME, Kind
from busbw.core.finding import Finding, Verdict
from busbw.core.linking import TCP, Flow, LinkReport, bits_text
from busbw.link import payload
from busbw.link.solver import Measured, Solution, solve

HOST = "link.host"  # the finding of a host that was not measured
NAMED = 6  # of a list in a message
FIX = "compare cable, port speed, MTU and error counters with a good host: `ethtool {port}`, `ethtool -S {port}`, `busbw check`"


def findings(report: LinkReport) -> list[Finding]:
    """All findings: hosts and ports that are missing first, then each rail."""
    found = _missing(report)
    for rail in range(len(report.rails)):
        found += _rail(report, rail)
    return found


def solution(report: LinkReport, rail: int) -> Solution:
    """The slow ends and pairs of a rail, from transfers without one in the opposite direction."""
    return solve([Measured(flow.sender, flow.receiver, flow.rate) for flow in _flows(report, rail) if flow.rate and not flow.together])


def limit(report: LinkReport, flow: Flow) -> float | None:
    """The most data in bytes per second that a flow's link can carry; None if its line rate or MTU is unknown."""
    ends = report.rails[flow.rail].endpoints
    sender, receiver = ends[flow.sender], ends[flow.receiver]
    if sender is None or receiver is None:
        return None
    spec = report.spec
    return payload.limit(sender, receiver, tcp=spec.method == TCP, mtu=flow.mtu, line_rate=spec.line_rate)


def _flows(report: LinkReport, rail: int) -> list[Flow]:
    return [flow for flow in report.flows if flow.rail == rail]


def _missing(report: LinkReport) -> list[Finding]:
    found = [
        Finding(HOST, Verdict.UNKNOWN, f"{host.name} was not measured, or not to the end: {host.problem}")
        for host in report.hosts
        if host.problem
    ]
    for rail in report.rails:
        names = [host.name for host, port in zip(report.hosts, rail.endpoints, strict=True) if port is None and not host.problem]
        if names:
            found.append(Finding(HOST, Verdict.UNKNOWN, f"no port on {rail.name}: {_listed(names)}", fix="name it with --rail"))
    return found


def _rail(report: LinkReport, rail: int) -> list[Finding]:
    flows, solved = _flows(report, rail), solution(report, rail)
    bad = _failed(report, rail, flows) + _ends(report, rail, solved) + _pairs(report, rail, solved) + _faults(report, rail, flows)
    slow = {(one.end.host, one.end.sends) for one in solved.ends}
    rest = [flow for flow in flows if flow.rate and (flow.sender, True) not in slow and (flow.receiver, False) not in slow]
    marked = _mark(report, rail, rest)
    if bad or not rest or any(one.verdict is Verdict.WARN for one in marked):
        return bad + marked
    return _alike(report, rail, rest, solved) + marked


def _failed(report: LinkReport, rail: int, flows: Sequence[Flow]) -> list[Finding]:
    """Transfers without a rate; hosts without any transfer are named alone."""
    failed = [flow for flow in flows if flow.rate is None and not _lost(report, flow)]
    fine = {at for flow in flows if flow.rate for at in (flow.sender, flow.receiver)}
    dead = {at for flow in failed for at in (flow.sender, flow.receiver)} - fine
    found = []
    for at in sorted(dead if fine else ()):
        errors = [flow.error for flow in failed if at in (flow.sender, flow.receiver)]
        message = f"{_name(report, at)} exchanges no data with any host on {report.rails[rail].name}: {errors[0]}"
        found.append(Finding("link.failed", Verdict.FAIL, message, fix=_fix(report, rail, at)))
    rest = [flow for flow in failed if not fine or not {flow.sender, flow.receiver} & dead]
    if rest:
        listed = _listed([_way(report, flow.sender, flow.receiver) for flow in rest])
        message = f"{len(rest)} of {len(flows)} transfers failed on {report.rails[rail].name}: {listed}"
        found.append(Finding("link.failed", Verdict.FAIL, message, rest[0].error, "is a firewall, route or MTU in the way? `ping -M do`"))
    return found


def _lost(report: LinkReport, flow: Flow) -> bool:
    """Whether one of the hosts was lost, which is a finding of its own."""
    return any(report.hosts[at].problem for at in (flow.sender, flow.receiver))


def _ends(report: LinkReport, rail: int, solved: Solution) -> list[Finding]:
    assert solved.usual is not None or not solved.ends
    found = []
    for host in dict.fromkeys(one.end.host for one in solved.ends):
        ways = [one for one in solved.ends if one.end.host == host]
        said = " and ".join(
            f"{'sends' if one.end.sends else 'receives'} {bits_text(one.rate)} at most in {one.pairs} pairs"
            for one in sorted(ways, key=lambda one: not one.end.sends)
        )
        own = [flow for flow in _flows(report, rail) if any(host == (flow.sender if one.end.sends else flow.receiver) for one in ways)]
        message = f"{_name(report, host)} is slow on {report.rails[rail].name}: it {said}; usual is {bits_text(solved.usual or 0.0)}"
        message += "; the processors of one end had no time left" if own and all(flow.processor_bound for flow in own) else ""
        found.append(Finding("link.host_slow", Verdict.WARN, message, _counted(own), _fix(report, rail, host)))
    return found


def _pairs(report: LinkReport, rail: int, solved: Solution) -> list[Finding]:
    if not solved.pairs:
        return []
    slow = sorted(solved.pairs, key=lambda one: one.rate)
    listed = _listed([f"{_way(report, one.sender, one.receiver)} {bits_text(one.rate)}" for one in slow])
    ways = {(one.sender, one.receiver) for one in slow}
    own = [flow for flow in _flows(report, rail) if (flow.sender, flow.receiver) in ways]
    message = f"slow on {report.rails[rail].name} although both hosts are fast with others: {listed}"
    fix = "the fault is between them: a switch, a cable between switches, or the path that their flows take"
    return [Finding("link.pair_slow", Verdict.WARN, message, _counted(own), fix)]


def _faults(report: LinkReport, rail: int, flows: Sequence[Flow]) -> list[Finding]:
    """Counters of faults that rose: a link went down, or a sender gave up."""
    sums = _sums(flows, {Kind.FAULT})
    return [
        Finding(
            "link.fault",
            Verdict.WARN,
            f"{host} {port} during the test on {report.rails[rail].name}: {name} +{by} ({BY_NAME[name].meaning})",
        )
        for (host, port, name), by in sums.items()
    ]


def _mark(report: LinkReport, rail: int, flows: Sequence[Flow]) -> list[Finding]:
    """Transfers below the pass mark; unknown where the processors, not the link, set the rate, or where the mark is unknown."""
    name, gpu = report.rails[rail].name, report.spec.gpu is not None
    limits = [(flow, most) for flow in flows if (most := limit(report, flow)) is not None]
    if not flows or not limits:
        text = f"no pass mark for {name}: a line rate or MTU is unknown, so its hosts are compared with each other alone"
        return [Finding("link.mark", Verdict.UNKNOWN, text, fix="give the line rate in Gbit/s with --line-rate")] if flows else []
    below = [(flow, most) for flow, most in limits if (flow.rate or 0.0) < payload.mark(most, gpu=gpu)]
    share = f"{100 * (payload.GPU_MARK if gpu else payload.HOST_MARK):g} % of what the link can carry"
    found = []
    for bound, verdict in ((False, Verdict.WARN), (True, Verdict.UNKNOWN)):
        some = [(flow, most) for flow, most in below if flow.processor_bound is bound]
        if not some:
            continue
        worst, most = min(some, key=lambda one: (one[0].rate or 0.0) / one[1])
        message = (
            f"{len(some)} of {len(limits)} transfers on {name} are below {share}; the slowest: "
            f"{_way(report, worst.sender, worst.receiver)} {bits_text(worst.rate or 0.0)} of {bits_text(most)}"
        )
        message += ", but there the processors set the rate, not the link" if bound else ""
        fix = "measure with --test perftest, or with more --streams" if bound else _fix(report, rail, worst.sender)
        found.append(Finding("link.mark", verdict, message, _counted([flow for flow, _ in some]), fix))
    return found


def _alike(report: LinkReport, rail: int, flows: Sequence[Flow], solved: Solution) -> list[Finding]:
    name, slowest = report.rails[rail].name, min(flow.rate or 0.0 for flow in flows)
    if solved.usual is not None:
        message = f"no slow host or pair on {name}: usual is {bits_text(solved.usual)}, the slowest transfer {bits_text(slowest)}"
        return [Finding("link.alike", Verdict.PASS, message)]
    if all(limit(report, flow) is not None and not flow.processor_bound for flow in flows):
        return [Finding("link.alike", Verdict.PASS, f"all transfers on {name} reach the pass mark, the slowest {bits_text(slowest)}")]
    return [Finding("link.alike", Verdict.UNKNOWN, f"too few hosts on {name} to compare: the slowest transfer is {bits_text(slowest)}")]


def _counted(flows: Iterable[Flow]) -> str:
    """What counters of loss and congestion rose by, the largest first; '' if none did."""
    sums = _sums(flows, {Kind.LOSS, Kind.CONGESTION, Kind.FAULT})
    notable = {key: by for key, by in sums.items() if by >= BY_NAME[key[2]].notable}
    largest = sorted(notable, key=lambda key: -math.log(notable[key] / BY_NAME[key[2]].notable))[:NAMED]
    return "meanwhile " + ", ".join(f"{host} {port} {name} +{notable[host, port, name]}" for host, port, name in largest) if largest else ""


def _sums(flows: Iterable[Flow], kinds: set[Kind]) -> dict[tuple[str, str, str], int]:
    sums: dict[tuple[str, str, str], int] = {}
    for flow in flows:
        for host, ports in flow.moved.items():
            for port, counters in ports.items():
                for name, by in counters.items():
                    if name in BY_NAME and BY_NAME[name].kind in kinds:
                        sums[host, port, name] = sums.get((host, port, name), 0) + by
    return sums


def _name(report: LinkReport, at: int) -> str:
    """The host as the user named it, with its own name where that differs."""
    host = report.hosts[at]
    return (
        f"{host.name} ({host.hostname})" if host.hostname and host.hostname.partition(".")[0] != host.name.partition(".")[0] else host.name
    )


def _way(report: LinkReport, sender: int, receiver: int) -> str:
    return f"{report.hosts[sender].name} -> {report.hosts[receiver].name}"


def _fix(report: LinkReport, rail: int, at: int) -> str:
    port = report.rails[rail].endpoints[at]
    return f"on {report.hosts[at].name}: {FIX.format(port=port.name if port else 'PORT')}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
