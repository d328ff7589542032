"""Findings from samples: late ranks, hosts that enqueue slowly, slow links, imprecise medians."""

import statistics
from collections import Counter

from busbw.core.cells import Figure
from busbw.core.finding import Verdict
from busbw.core.result import Cell, Device, Link, Result
from busbw.core.sizes import counted, format_size
from busbw.model.fabric import gb
from busbw.model.rule import Conclusion, Find, Rule, Run
from busbw.model.series import duration, repeated, sampled, where_text
from busbw.stats.intervals import nearest_rank

LATE_SHARE = 0.05  # of an operation's time, if a clock shows the starts
# where starts are inferred from durations: over a network, ranks leave a fence up to a fifth of an
# operation apart
LATE_SHARE_QUEUED = 0.5
SLOW_HOST = 2.0  # times the others' time to enqueue
LATE_S = 1e-6  # less is within the accuracy of clocks and schedulers
# several time slices of a scheduler: ranks that share a core wait less for each other
TURN_S = 20e-3
LATE_ALONE = 0.5  # all other ranks differ by at most this share of the late rank's delay
LATE_CELLS = 0.5  # of all cells
SLOW_LINK = 0.6  # of the upper quartile over all pairs
# a pair that is slow only because it waits for the late rank loses at most 1.1 times that rank's
# delay
WAITED = 1.1
ENDS = {"budget": "time limit reached", "unstable": "samples did not settle"}
NAMED = 4  # pairs in a message


def _crowded(run: Run) -> Conclusion | None:
    """More processes than cores: they take turns, so that a late rank or slow pair does not
    indicate a fault.
    """
    result = run.result
    hosts = Counter(
        host for host, _ in {(device.host, device.process) for device in result.world.devices}
    )
    cpus = {host.hostname: host.cpus for host in result.topology.hosts}
    crowded = [host for host, processes in hosts.items() if 0 < cpus.get(host, 0) < processes]
    if not crowded:
        return None
    host = crowded[0]
    more = f" (and on {counted(len(crowded) - 1, 'other host')})" if len(crowded) > 1 else ""
    message = (
        f"more ranks than cores: {hosts[host]} rank processes share {counted(cpus[host], 'core')}"
        f" on {host}{more}"
    )
    evidence = (
        "ranks that wait for a core delay the others, so small delays and slow links cannot be"
        " attributed to a rank"
    )
    fix = f"run at most one rank process per core on {host}, or use a machine with more cores"
    return Conclusion(Verdict.WARN, message, evidence, fix)


def who(device: Device) -> str:
    """`rank 2 on h2 (GPU 0 at 0000:00:06)`, or `rank 2 on h2` for a CPU."""
    return f"rank {device.rank} on {device.host}" + (
        f" (GPU {device.index} at {device.bus})" if device.bus else ""
    )


def latest(cell: Cell, share: float = LATE_SHARE) -> tuple[int, float] | None:
    """The late rank of a cell, and its delay in seconds relative to the median of the others;
    None if no rank stands out.
    """
    late = cell.late_s or []
    if len(late) < 2:
        return None
    rank = max(range(len(late)), key=late.__getitem__)
    others = [value for other, value in enumerate(late) if other != rank]
    by = late[rank] - statistics.median(others)
    alone = max(others) - min(others) <= LATE_ALONE * by
    return (rank, by) if alone and by >= max(LATE_S, share * (cell.op_s or cell.time_s)) else None


def late_rank(result: Result) -> tuple[int, list[tuple[Figure, float]]] | None:
    """The rank that is late in half of all cells or more, with these cells and its delays in
    seconds; None if there is none.
    """
    timed = sampled(result)
    share = LATE_SHARE_QUEUED if any(figure.cell.launches_s for figure in timed) else LATE_SHARE
    seen = [(figure, found) for figure in timed if (found := latest(figure.cell, share))]
    if not seen:
        return None
    rank, cells = Counter(rank for _, (rank, _) in seen).most_common(1)[0]
    own = [(figure, by) for figure, (one, by) in seen if one == rank]
    return (rank, own) if cells >= LATE_CELLS * len(timed) else None


def _late(run: Run) -> Conclusion | None:
    result = run.result
    found = late_rank(result)
    if found is None:
        return None
    rank, seen = found
    worst, by = max(seen, key=lambda pair: pair[1])
    name = next(
        (who(device) for device in result.world.devices if device.rank == rank), f"rank {rank}"
    )
    usual = statistics.median(by for _, by in seen)
    if usual < TURN_S and _crowded(run):
        return None
    message = (
        f"{name} is late: it starts operations {duration(usual)} after the others, in {len(seen)}"
        f" of {len(sampled(result))} cells"
    )
    alone_s = worst.cell.op_s or worst.time_s
    evidence = (
        f"{duration(by)} at {where_text(worst)}, where the operation takes {duration(alone_s)}"
        " without the wait"
    )
    fix = "look for other processes on its host's CPU or GPU: `top`, `nvidia-smi`"
    return Conclusion(Verdict.WARN, message, evidence, fix)


def _slow_host(run: Run) -> Conclusion | None:
    """A process that takes much longer than the others to enqueue an operation."""
    result = run.result
    processes = [
        costs for figure in sampled(result) if (costs := figure.cell.launches_s) and len(costs) > 1
    ]
    if not processes:
        return None
    usual = [statistics.median(times) for times in zip(*processes, strict=True)]
    slowest = max(range(len(usual)), key=usual.__getitem__)
    others = statistics.median(time for process, time in enumerate(usual) if process != slowest)
    if usual[slowest] < SLOW_HOST * others:
        return None
    name = next(
        (who(device) for device in result.world.devices if device.process == slowest),
        f"process {slowest}",
    )
    message = (
        f"the host of {name} is slow: it takes {duration(usual[slowest])} to enqueue an operation,"
        f" others {duration(others)}"
    )
    fix = (
        "check for other processes on its CPU, and its clock and power settings: `top`, `cpupower"
        " frequency-info`"
    )
    return Conclusion(Verdict.WARN, message, "medians over all cells, as in the launch column", fix)


def usual_bandwidth(links: list[Link]) -> float:
    """The upper quartile of pairs: with few ranks, most pairs include the slow rank."""
    return nearest_rank(sorted(link.bandwidth for link in links), 75)


def slow_rank(links: list[Link]) -> int | None:
    """The rank whose best pair is far below the worst pair without it; None if there is none."""
    for rank in {link.a for link in links} | {link.b for link in links}:
        own = [link.bandwidth for link in links if rank in (link.a, link.b)]
        rest = [link.bandwidth for link in links if rank not in (link.a, link.b)]
        if rest and max(own) < SLOW_LINK * min(rest):
            return rank
    return None


def _slow_pairs(result: Result) -> list[Link]:
    """Pairs that are far below the usual bandwidth; none if all of them include the late rank
    and lose no more time than its delay.
    """
    if len(result.links) < 3:
        return []
    usual, late = usual_bandwidth(result.links), late_rank(result)
    slow = [link for link in result.links if link.bandwidth < SLOW_LINK * usual]
    if late and all(late[0] in (link.a, link.b) for link in slow):
        most = WAITED * statistics.median(by for _, by in late[1])
        return (
            [] if all(link.time_s * (1 - link.bandwidth / usual) < most for link in slow) else slow
        )
    return slow


def _links(run: Run) -> Conclusion | None:
    links = run.result.links
    if not links or _slow_pairs(run.result):
        return None
    usual, worst = gb(usual_bandwidth(links)), gb(min(link.bandwidth for link in links))
    return Conclusion(
        Verdict.PASS,
        f"no slow link: {len(links)} pairs exchange {usual} GB/s each way, the slowest {worst}",
    )


def _slow_link(run: Run) -> Conclusion | None:
    """Slow pairs; if all pairs of one rank are far slower than any other pair, the link of that
    rank.
    """
    result = run.result
    slow = _slow_pairs(result)
    if not slow:
        return None
    hosts = {device.rank: device for device in result.world.devices}
    culprit = slow_rank(result.links)
    worst = min(slow, key=lambda link: link.bandwidth)
    size = format_size(round(worst.bandwidth * worst.time_s))
    usual = gb(usual_bandwidth(result.links))
    evidence = (
        f"exchange of {size} each way by one pair at a time: {gb(worst.bandwidth)} GB/s; upper"
        f" quartile over all pairs: {usual}"
    )
    if culprit is not None:
        device = hosts[culprit]
        part = (
            f"host {device.host}"
            if len({device.host for device in hosts.values()}) > 1
            else who(device)
        )
        message = (
            f"the link of {part} is slow: all its pairs are far below the others, the slowest at"
            f" {gb(worst.bandwidth)} GB/s"
        )
    else:
        named = ", ".join(
            f"{who(hosts[link.a])} with {who(hosts[link.b])}" for link in slow[:NAMED]
        )
        message = f"{len(slow)} of {len(result.links)} pairs of ranks are slow: {named}" + (
            " ..." if len(slow) > NAMED else ""
        )
    return Conclusion(Verdict.WARN, message, evidence, _link_fix(result, hosts, slow))


def _link_fix(result: Result, hosts: dict[int, Device], slow: list[Link]) -> str:
    """The remedy for what connects the slow pairs: a network, GPU links, or memory."""
    if any(hosts[link.a].host != hosts[link.b].host for link in slow):
        return "check cable, port speed and error counters: `ethtool`, `ibstat`"
    if result.library.engine == "sim" or any(hosts[link.a].bus for link in slow):
        return (
            "check how these GPUs are connected: `nvidia-smi topo -m`, `nvidia-smi nvlink --status`"
        )
    return "the ranks exchange data through memory: check which cores they run on with `lscpu -e`"


def _uncertain(run: Run) -> Conclusion | None:
    timed, sampling = sampled(run.result), run.result.spec.sampling
    precision = sampling.precision if sampling else 0.0
    imprecise = [
        figure for figure in timed if figure.cell.stopped in ENDS and figure.half_width > precision
    ]
    if not imprecise:
        return None
    wide = max(imprecise, key=lambda figure: figure.half_width)
    message = (
        f"requested precision of {100 * precision:.3g} % not reached in {len(imprecise)} of"
        f" {len(timed)} cells; least precise: {where_text(wide)}, {_share_text(wide.half_width)}"
        f" after {counted(wide.n, 'sample')}"
    )
    reasons = Counter(figure.cell.stopped for figure in imprecise)
    evidence = ", ".join(
        f"{ENDS[reason]} in {counted(count, 'cell')}" for reason, count in reasons.items()
    )
    fix = (
        "allow more time with --max-time, or " if reasons["budget"] else ""
    ) + "stop other jobs on the machine"
    return Conclusion(Verdict.WARN, message, evidence, fix)


def _share_text(share: float) -> str:
    if share > 9.99:
        return "no interval" if share == float("inf") else "more than 999 %"
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"


def _two_modes(run: Run) -> Conclusion | None:
    split = [figure for figure in sampled(run.result) if figure.cell.modes_s]
    if not split:
        return None
    low, high = split[0].cell.modes_s or (0.0, 0.0)
    clusters = f"samples of {counted(len(split), 'cell')} fall into two groups"
    message = (
        f"{clusters}; at {where_text(split[0])} their medians are {duration(low)} and"
        f" {duration(high)}"
    )
    fix = (
        "do not rely on the median of such a cell; look for alternating paths or clocks, or other"
        " jobs"
    )
    return Conclusion(Verdict.WARN, message, fix=fix)


def _between(run: Run) -> Conclusion | None:
    """With --repeats: the differences between medians of repeats, and the interval within one
    repeat.
    """
    groups = [figures for figures in repeated(run.result).values() if len(figures) > 1]
    if not groups:
        return None
    spreads = [
        (figures[-1].cell.time_s - figures[0].cell.time_s) / figures[0].cell.time_s
        for figures in groups
    ]
    within = [
        2 * figure.half_width
        for figures in groups
        for figure in figures
        if figure.cell.low_s is not None
    ]
    most, worst = max(zip(spreads, groups, strict=True), key=lambda pair: pair[0])
    middle = _share_text(statistics.median(spreads))
    most_text = f"{_share_text(most)} at {where_text(worst[0])}"
    message = (
        f"medians of {len(worst)} repeats differ by {middle} in the median cell, and by at most"
        f" {most_text}"
    )
    evidence = (
        "within one repeat, the median width of intervals is"
        f" {_share_text(statistics.median(within))}"
        if within
        else ""
    )
    return Conclusion(Verdict.PASS, message, evidence)


def _timed(find: Find) -> Find:
    """Only for precise timing."""
    return lambda run: (
        find(run) if run.result.spec.sampling is not None and run.result.rows else None
    )


def _uncrowded(find: Find) -> Find:
    """Only if each rank process has a core: findings on one rank or pair."""
    return _timed(lambda run: None if _crowded(run) else find(run))


RULES = (
    Rule(
        "crowded",
        (Verdict.WARN,),
        "more ranks than cores on a host: slow links and hosts are not reported, late ranks only"
        " from 20 ms on",
        _timed(_crowded),
    ),
    Rule(
        "late_rank",
        (Verdict.WARN,),
        "one rank starts operations later than all others in half of all cells or more: host, GPU"
        " and delay",
        _timed(_late),
    ),
    Rule(
        "slow_host",
        (Verdict.WARN,),
        "a process takes twice as long as the others to enqueue an operation",
        _uncrowded(_slow_host),
    ),
    Rule(
        "slow_link",
        (Verdict.WARN,),
        "pairs of ranks that exchange data at less than 60 % of the upper quartile of pairs, one"
        " pair at a time; or the host or rank whose pairs are all slow",
        _uncrowded(_slow_link),
    ),
    Rule(
        "links",
        (Verdict.PASS,),
        "no pair is slow (three ranks or more; after the sweep, one rank per host where there are"
        " several hosts)",
        _timed(_links),
    ),
    Rule(
        "uncertain",
        (Verdict.WARN,),
        "cells that did not reach the requested precision, and the least precise one",
        _timed(_uncertain),
    ),
    Rule(
        "two_modes",
        (Verdict.WARN,),
        "cells whose samples fall into two groups, so that their median means little",
        _timed(_two_modes),
    ),
    Rule(
        "repeats",
        (Verdict.PASS,),
        "with `--repeats`: how much medians differ between newly created communicators",
        _timed(_between),
    ),
)
