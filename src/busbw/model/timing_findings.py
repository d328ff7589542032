"""What the samples say: a rank that comes late, a host that enqueues slowly, links that are slow, sizes whose median is not known. Pure."""

import statistics
from collections import Counter

from busbw.core.cells import Figure
from busbw.core.finding import Verdict
from busbw.core.result import Cell, Device, Link, Result
from busbw.core.sizes import format_size
from busbw.model.figures import reach, repeated, sampled
from busbw.model.rule import Conclusion, Find, Rule, Run

LATE_SHARE = 0.05  # of an operation's time, where starts are read from a clock
LATE_SHARE_QUEUED = 0.5  # where they follow from durations behind a fence: over a network ranks leave that up to a fifth apart
SLOW_HOST = 2.0  # times what other processes take to enqueue
LATE_S = 1e-6  # less is within what clocks and schedulers do
TURN_S = 20e-3  # several time slices of a scheduler: what ranks that share a core wait for each other is less
LATE_ALONE = 0.5  # no other rank is later than this share of the latest one
LATE_CELLS = 0.5  # of all cells
SLOW_LINK = 0.6  # of the usual pair's bandwidth
WAITED = 1.1  # times what a rank is late by: what its pairs lack where that is all they wait for, and both are measured
ENDS = {"budget": "time limit reached", "unstable": "samples did not settle"}
NAMED = 4  # at most, in one sentence


def _crowded(run: Run) -> Conclusion | None:
    """More processes than cores: they take turns, so that a late rank or a slow pair says nothing about that rank or that pair."""
    result = run.result
    hosts = Counter(host for host, _ in {(device.host, device.process) for device in result.world.devices})
    cpus = {host.hostname: host.cpus for host in result.topology.hosts}
    crowded = [host for host, processes in hosts.items() if 0 < cpus.get(host, 0) < processes]
    if not crowded:
        return None
    host = crowded[0]
    more = f" (and on {len(crowded) - 1} more hosts)" if len(crowded) > 1 else ""
    message = f"more ranks than cores: {hosts[host]} rank processes share {cpus[host]} core{'s' if cpus[host] > 1 else ''} on {host}{more}"
    evidence = "ranks that wait for a core delay the others, so that small delays and slow links cannot be attributed to a rank"
    fix = f"run at most {cpus[host]} rank processes on {host}, or measure on a machine with more cores"
    return Conclusion(Verdict.WARN, message, evidence, fix)


def who(device: Device) -> str:
    """`rank 2 on h2 (GPU 0 at 0000:00:06)`, `rank 2 on h2` for a CPU."""
    return f"rank {device.rank} on {device.host}" + (f" (GPU {device.index} at {device.bus})" if device.bus else "")


def latest(cell: Cell, share: float = LATE_SHARE) -> tuple[int, float] | None:
    """The rank that is late in a cell, and by how many seconds more than the others usually are; None where no rank stands out."""
    late = cell.late_s or []
    if len(late) < 2:
        return None
    rank = max(range(len(late)), key=late.__getitem__)
    others = [value for other, value in enumerate(late) if other != rank]
    by = late[rank] - statistics.median(others)
    alone = max(others) - min(others) <= LATE_ALONE * by
    return (rank, by) if alone and by >= max(LATE_S, share * (cell.op_s or cell.time_s)) else None


def late_rank(result: Result) -> tuple[int, list[tuple[Figure, float]]] | None:
    """The rank that is late in most cells, in which, and by how many seconds; None where there is none."""
    share = LATE_SHARE_QUEUED if any(figure.cell.launches_s for figure in sampled(result)) else LATE_SHARE
    seen = [(figure, found) for figure in sampled(result) if (found := latest(figure.cell, share))]
    if not seen:
        return None
    rank, cells = Counter(rank for _, (rank, _) in seen).most_common(1)[0]
    own = [(figure, by) for figure, (one, by) in seen if one == rank]
    return (rank, own) if cells >= LATE_CELLS * len(sampled(result)) else None


def _late(run: Run) -> Conclusion | None:
    result = run.result
    found = late_rank(result)
    if found is None:
        return None
    rank, seen = found
    worst, by = max(seen, key=lambda pair: pair[1])
    device = next((device for device in result.world.devices if device.rank == rank), None)
    name = who(device) if device else f"rank {rank}"
    usual = statistics.median(by for _, by in seen)
    if usual < TURN_S and _crowded(run):
        return None
    message = f"{name} is late: it starts operations {usual * 1e6:.3g} us after the others, in {len(seen)} of {len(sampled(result))} cells"
    where = f"{format_size(worst.row.size_bytes)} {worst.placement}"
    evidence = f"{by * 1e6:.3g} us at {where}, where the operation takes {_us(worst.cell)} without the wait"
    fix = "look for other processes on that host's processor or GPU: `top`, `nvidia-smi`"
    return Conclusion(Verdict.WARN, message, evidence, fix)


def _us(cell: Cell) -> str:
    return f"{(cell.op_s or cell.time_s) * 1e6:.4g} us"


def _slow_host(run: Run) -> Conclusion | None:
    """A process that takes much longer than the others to enqueue: what a program that does not hold its queue back will wait for."""
    result = run.result
    processes = [figure.cell.launches_s for figure in sampled(result) if len(figure.cell.launches_s or []) > 1]
    if not processes:
        return None
    usual = [statistics.median(times) for times in zip(*(times or [] for times in processes), strict=True)]
    slowest = max(range(len(usual)), key=usual.__getitem__)
    others = statistics.median(time for process, time in enumerate(usual) if process != slowest)
    if usual[slowest] < SLOW_HOST * others:
        return None
    device = next((device for device in result.world.devices if device.process == slowest), None)
    name = who(device) if device else f"process {slowest}"
    message = f"the host of {name} is slow: it takes {usual[slowest] * 1e6:.3g} us to enqueue an operation, others {others * 1e6:.3g}"
    fix = "check for other processes on its processor, and its clock and power settings: `top`, `cpupower frequency-info`"
    return Conclusion(Verdict.WARN, message, "median over all cells of the launch column", fix)


def usual_bandwidth(links: list[Link]) -> float:
    """The upper quartile: with few ranks most pairs hold the slow one."""
    ordered = sorted(link.bandwidth for link in links)
    return ordered[-(-3 * len(ordered) // 4) - 1]


def slow_links(links: list[Link]) -> list[Link]:
    """Pairs that are far below the usual one."""
    if len(links) < 3:
        return []
    usual = usual_bandwidth(links)
    return [link for link in links if link.bandwidth < SLOW_LINK * usual]


def slow_rank(links: list[Link]) -> int | None:
    """The rank whose best pair is far below the worst pair without it; others may differ among themselves."""
    for rank in {link.a for link in links} | {link.b for link in links}:
        own = [link.bandwidth for link in links if rank in (link.a, link.b)]
        rest = [link.bandwidth for link in links if rank not in (link.a, link.b)]
        if rest and max(own) < SLOW_LINK * min(rest):
            return rank
    return None


def _unexplained(result: Result) -> list[Link]:
    """The slow pairs; none where their wait is that for a late rank."""
    slow = slow_links(result.links)
    return [] if slow and _waited_for(result, slow, usual_bandwidth(result.links)) else slow


def _links(run: Run) -> Conclusion | None:
    links = run.result.links
    if not links or _unexplained(run.result):
        return None
    usual, worst = usual_bandwidth(links), min(links, key=lambda link: link.bandwidth)
    return Conclusion(
        Verdict.PASS, f"no slow link: {len(links)} pairs exchange {_gb(usual)} GB/s each way, the slowest {_gb(worst.bandwidth)}"
    )


def _slow_link(run: Run) -> Conclusion | None:
    """Slow pairs; where all pairs of one rank are far slower than any other pair, it is that rank's own link."""
    result = run.result
    slow = _unexplained(result)
    if not slow:
        return None
    usual = usual_bandwidth(result.links)
    hosts = {device.rank: device for device in result.world.devices}
    culprit = slow_rank(result.links)
    worst = min(slow, key=lambda link: link.bandwidth)
    size = format_size(round(worst.bandwidth * worst.time_s))
    evidence = f"pairs alone, {size} each way: {_gb(worst.bandwidth)} GB/s against {_gb(usual)} usually"
    if culprit is not None:
        device = hosts[culprit]
        place = f"host {device.host}" if len({device.host for device in hosts.values()}) > 1 else who(device)
        message = f"the link of {place} is slow: all its pairs reach only {_gb(worst.bandwidth)} GB/s or little more"
    else:
        named = ", ".join(f"{who(hosts[link.a])} with {who(hosts[link.b])}" for link in slow[:NAMED])
        message = f"{len(slow)} of {len(result.links)} links are slow: {named}" + (" ..." if len(slow) > NAMED else "")
    return Conclusion(Verdict.WARN, message, evidence, _link_fix(result, hosts, slow))


def _link_fix(result: Result, hosts: dict[int, Device], slow: list[Link]) -> str:
    """What to look at, by what joins the ranks of the slowest pairs: a network, GPU links, or memory."""
    if any(hosts[link.a].host != hosts[link.b].host for link in slow):
        return "check cable, port speed and error counters: `ethtool`, `ibstat`"
    if result.library.engine == "sim" or any(hosts[link.a].bus for link in slow):
        return "check how these GPUs are connected: `nvidia-smi topo -m`, `nvidia-smi nvlink --status`"
    return "check which cores the ranks run on: `lscpu -e`; they exchange data through memory"


def _waited_for(result: Result, slow: list[Link], usual: float) -> bool:
    """Whether the slow pairs are those of the late rank, and lack no more than it is late by: they wait, and then begin cold."""
    late = late_rank(result)
    if late is None or any(late[0] not in (link.a, link.b) for link in slow):
        return False
    by = statistics.median(by for _, by in late[1])
    return all(link.time_s * (1 - link.bandwidth / usual) < WAITED * by for link in slow)


def _gb(bandwidth: float) -> str:
    return f"{bandwidth / 1e9:.3g}"


def _uncertain(run: Run) -> Conclusion | None:
    result = run.result
    open_ends = [figure for figure in sampled(result) if figure.cell.stopped in ("budget", "unstable")]
    sampling = result.spec.sampling
    if not open_ends or sampling is None:
        return None
    wide, are = max(open_ends, key=reach), "is" if len(open_ends) == 1 else "are"
    message = (
        f"{len(open_ends)} of {len(sampled(result))} cells {are} not known to {100 * sampling.precision:.3g} %: "
        f"{format_size(wide.row.size_bytes)} {wide.placement} to {_share_text(reach(wide))} after {len(wide.cell.samples_s or [])} samples"
    )
    reasons = Counter(figure.cell.stopped for figure in open_ends)
    evidence = ", ".join(f"{ENDS[reason]} in {count} cell{'s' if count > 1 else ''}" for reason, count in reasons.items())
    return Conclusion(
        Verdict.WARN,
        message,
        evidence,
        ("allow more time with --max-time, or " if reasons["budget"] else "") + "stop other jobs on the machine",
    )


def _share_text(share: float) -> str:
    if share > 9.99:
        return "no interval at all" if share == float("inf") else "more than 999 %"
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"


def _two_modes(run: Run) -> Conclusion | None:
    result = run.result
    split = [figure for figure in sampled(result) if figure.cell.modes_s]
    if not split:
        return None
    figure = split[0]
    low, high = figure.cell.modes_s or (0.0, 0.0)
    where = f"{format_size(figure.row.size_bytes)} {figure.placement}"
    count = "the samples of 1 cell fall into two groups" if len(split) == 1 else f"the samples of {len(split)} cells fall into two groups"
    message = f"{count}; {where}: {low * 1e6:.4g} and {high * 1e6:.4g} us"
    return Conclusion(
        Verdict.WARN,
        message,
        fix="do not rely on the median of such a cell: look for something that alternates (paths, clocks, other jobs)",
    )


def _between(run: Run) -> Conclusion | None:
    """With --repeats: how far medians of communicators made anew are apart, beside how well each is known."""
    groups = [figures for figures in repeated(run.result).values() if len(figures) > 1]
    if not groups:
        return None
    spreads = [(figures[-1].cell.time_s - figures[0].cell.time_s) / figures[0].cell.time_s for figures in groups]
    within = [2 * reach(figure) for figures in groups for figure in figures if figure.cell.low_s is not None]
    worst = max(range(len(groups)), key=spreads.__getitem__)
    figure = groups[worst][0]
    message = (
        f"between {len(groups[worst])} repeats a median differs by {_share_text(statistics.median(spreads))} (middle cell), at most by "
        f"{_share_text(spreads[worst])} at {format_size(figure.row.size_bytes)} {figure.placement}"
    )
    evidence = f"the middle interval within one repeat is {_share_text(statistics.median(within))} wide" if within else ""
    return Conclusion(Verdict.PASS, message, evidence)


def _timed(find: Find) -> Find:
    """For precise timing alone."""
    return lambda run: find(run) if run.result.spec.sampling is not None and run.result.rows else None


def _alone(find: Find) -> Find:
    """What is said of one rank or pair, where each rank process has a core."""
    return _timed(lambda run: None if _crowded(run) else find(run))


RULES = (
    Rule("crowded", (Verdict.WARN,),
         "more ranks than cores on a host: no slow link or host is named, and a late rank only from 20 ms on", _timed(_crowded)),
    Rule("late_rank", (Verdict.WARN,),
         "one rank starts operations later than all others in half of all cells or more: its host and GPU, and by how much", _timed(_late)),
    Rule("slow_host", (Verdict.WARN,), "a process takes twice as long as the others to enqueue an operation", _alone(_slow_host)),
    Rule("slow_link", (Verdict.WARN,),
         "pairs of ranks that exchange data alone at less than 60 % of the upper quartile of pairs; where all pairs of one host or rank "
         "are slow, that host or rank", _alone(_slow_link)),
    Rule("links", (Verdict.PASS,),
         "no pair is slow (three ranks or more; after the sweep, one rank per host where there are several hosts)", _timed(_links)),
    Rule("uncertain", (Verdict.WARN,), "cells whose median is not known as closely as asked, and the widest of them", _timed(_uncertain)),
    Rule("two_modes", (Verdict.WARN,),
         "cells whose samples fall into two groups: the median between them means little", _timed(_two_modes)),
    Rule("repeats", (Verdict.PASS,),
         "with `--repeats`: how much medians differ between communicators that are made anew", _timed(_between)),
)  # fmt: skip
