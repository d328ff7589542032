"""Findings from samples: late ranks, hosts that enqueue slowly, slow links, imprecise medians."""

import statistics
from collections import Counter

from busbw.core.cells import Figure
from busbw.core.finding import Verdict
from busbw.core.result import Cell, PairLink, RankDevice, Result
from busbw.core.sizes import counted, format_size
from busbw.model.fabric import gb
from busbw.model.rule import Conclusion, Find, FindingRule, Run
from busbw.model.series import duration, repeated, sampled, where_text
from busbw.stats.intervals import nearest_rank

LATE_SHARE = 0.05  # of an operation's time, if a clock shows the starts
# The share where starts are inferred from durations: over a network, ranks leave a fence up to a
# fifth of an operation apart.
LATE_SHARE_QUEUED = 0.5
SLOW_HOST = 2.0  # times the others' time to enqueue
LATE_S = 1e-6  # less is within the accuracy of clocks and schedulers
# Several time slices of a scheduler: ranks that share a core wait less for each other.
TURN_S = 20e-3
LATE_ALONE = 0.5  # all other ranks differ by at most this share of the late rank's delay
LATE_CELLS = 0.5  # of all cells
SLOW_LINK = 0.6  # of the upper quartile over all pairs
# A pair that is slow only because it waits for the late rank loses at most so many times the delay
# of that rank.
WAITED = 1.1
ENDS = {"budget": "time limit reached", "unstable": "samples did not settle"}
NAMED = 4  # pairs in a message


def _find_crowded_host(run: Run) -> Conclusion | None:
    """More processes than cores: they take turns, so a late rank need not be a fault."""
    result = run.result
    processes = {(device.host, device.process) for device in result.world.devices}
    counts = Counter(host for host, _ in processes)
    cpus = {host.hostname: host.cpus for host in result.topology.hosts}
    crowded = [host for host, count in counts.items() if 0 < cpus.get(host, 0) < count]
    if not crowded:
        return None
    host = crowded[0]
    more = f" (and on {counted(len(crowded) - 1, 'other host')})" if len(crowded) > 1 else ""
    message = (
        f"more ranks than cores: {counts[host]} rank processes share {counted(cpus[host], 'core')}"
        f" on {host}{more}"
    )
    evidence = (
        "ranks that wait for a core delay the others, so small delays and slow links cannot be"
        " attributed to a rank"
    )
    fix = f"run at most one rank process per core on {host}, or use a machine with more cores"
    return Conclusion(Verdict.WARN, message, evidence, fix)


def rank_in_words(device: RankDevice) -> str:
    """`rank 2 on h2 (GPU 0 at 0000:00:06)`, or `rank 2 on h2` for a CPU."""
    text = f"rank {device.rank} on {device.host}"
    return f"{text} (GPU {device.index} at {device.bus})" if device.bus else text


def latest(cell: Cell, share: float = LATE_SHARE) -> tuple[int, float] | None:
    """The late rank of a cell, and its delay in seconds relative to the median of the others;
    None if no rank stands out.

    `share` is the part of the operation's time that the delay has to reach.
    """
    late_s = cell.late_s or []
    if len(late_s) < 2:
        return None
    rank = max(range(len(late_s)), key=late_s.__getitem__)
    others = [value for other, value in enumerate(late_s) if other != rank]
    delay_s = late_s[rank] - statistics.median(others)
    if max(others) - min(others) > LATE_ALONE * delay_s:
        return None
    if delay_s < max(LATE_S, share * (cell.op_s or cell.time_s)):
        return None
    return rank, delay_s


def late_rank(result: Result) -> tuple[int, list[tuple[Figure, float]]] | None:
    """The rank that is late in at least half of all cells, these cells, and its delays in s."""
    timed = sampled(result)
    share = LATE_SHARE_QUEUED if any(figure.cell.launches_s for figure in timed) else LATE_SHARE
    delays: dict[int, list[tuple[Figure, float]]] = {}
    for figure in timed:
        late = latest(figure.cell, share)
        if late:
            rank, delay_s = late
            delays.setdefault(rank, []).append((figure, delay_s))
    if not delays:
        return None
    rank = max(delays, key=lambda rank: len(delays[rank]))
    return (rank, delays[rank]) if len(delays[rank]) >= LATE_CELLS * len(timed) else None


def _find_late_rank(run: Run) -> Conclusion | None:
    result = run.result
    late = late_rank(result)
    if late is None:
        return None
    rank, cells = late
    worst, worst_s = max(cells, key=lambda pair: pair[1])
    devices = [device for device in result.world.devices if device.rank == rank]
    name = rank_in_words(devices[0]) if devices else f"rank {rank}"
    usual_s = statistics.median(delay_s for _, delay_s in cells)
    if usual_s < TURN_S and _find_crowded_host(run):
        return None
    message = (
        f"{name} is late: it starts operations {duration(usual_s)} after the others, in"
        f" {len(cells)} of {len(sampled(result))} cells"
    )
    alone_s = worst.cell.op_s or worst.time_s
    evidence = (
        f"{duration(worst_s)} at {where_text(worst)}, where the operation takes"
        f" {duration(alone_s)} without the wait"
    )
    fix = "look for other processes on its host's CPU or GPU: `top`, `nvidia-smi`"
    return Conclusion(Verdict.WARN, message, evidence, fix)


def _find_slow_host(run: Run) -> Conclusion | None:
    """A process that takes much longer than the others to enqueue an operation."""
    result = run.result
    costs_s = [figure.cell.launches_s or [] for figure in sampled(result)]
    costs_s = [costs for costs in costs_s if len(costs) > 1]
    if not costs_s:
        return None
    usual_s = [statistics.median(times) for times in zip(*costs_s, strict=True)]
    slowest = max(range(len(usual_s)), key=usual_s.__getitem__)
    others_s = statistics.median(
        time_s for process, time_s in enumerate(usual_s) if process != slowest
    )
    if usual_s[slowest] < SLOW_HOST * others_s:
        return None
    devices = [device for device in result.world.devices if device.process == slowest]
    name = rank_in_words(devices[0]) if devices else f"process {slowest}"
    message = (
        f"the host of {name} is slow: it takes {duration(usual_s[slowest])} to enqueue an"
        f" operation, others {duration(others_s)}"
    )
    fix = (
        "check for other processes on its CPU, and its clock and power settings: `top`, `cpupower"
        " frequency-info`"
    )
    return Conclusion(Verdict.WARN, message, "medians over all cells, as in the launch column", fix)


def usual_bandwidth(links: list[PairLink]) -> float:
    """The upper quartile of pairs, bytes per second: with few ranks most include the slow one."""
    return nearest_rank(sorted(link.bandwidth for link in links), 75)


def slow_rank(links: list[PairLink]) -> int | None:
    """The rank whose best pair is far below the worst pair without it; None if there is none."""
    for rank in {link.a for link in links} | {link.b for link in links}:
        with_rank = [link.bandwidth for link in links if rank in (link.a, link.b)]
        others = [link.bandwidth for link in links if rank not in (link.a, link.b)]
        if others and max(with_rank) < SLOW_LINK * min(others):
            return rank
    return None


def _slow_pairs(result: Result) -> list[PairLink]:
    """Pairs that are far below the usual bandwidth; none if all of them include the late rank
    and lose no more time than its delay.
    """
    if len(result.links) < 3:
        return []
    usual = usual_bandwidth(result.links)
    slow = [link for link in result.links if link.bandwidth < SLOW_LINK * usual]
    late = late_rank(result)
    if late is None:
        return slow
    rank, cells = late
    waited_s = WAITED * statistics.median(delay_s for _, delay_s in cells)
    explained = all(
        rank in (link.a, link.b) and link.time_s * (1 - link.bandwidth / usual) < waited_s
        for link in slow
    )
    return [] if explained else slow


def _judge_links(run: Run) -> Conclusion | None:
    links = run.result.links
    if not links or _slow_pairs(run.result):
        return None
    usual, worst = gb(usual_bandwidth(links)), gb(min(link.bandwidth for link in links))
    return Conclusion(
        Verdict.PASS,
        f"no slow link: {len(links)} pairs exchange {usual} GB/s each way, the slowest {worst}",
    )


def _find_slow_link(run: Run) -> Conclusion | None:
    """Slow pairs; if all pairs of one rank are far slower than any other, that rank's link."""
    result = run.result
    slow = _slow_pairs(result)
    if not slow:
        return None
    devices = {device.rank: device for device in result.world.devices}
    worst = min(slow, key=lambda link: link.bandwidth)
    size = format_size(round(worst.bandwidth * worst.time_s))
    usual = gb(usual_bandwidth(result.links))
    evidence = (
        f"exchange of {size} each way by one pair at a time: {gb(worst.bandwidth)} GB/s; upper"
        f" quartile over all pairs: {usual}"
    )
    culprit = slow_rank(result.links)
    if culprit is not None:
        hosts = {device.host for device in devices.values()}
        device = devices[culprit]
        part = f"host {device.host}" if len(hosts) > 1 else rank_in_words(device)
        message = (
            f"the link of {part} is slow: all its pairs are far below the others, the slowest at"
            f" {gb(worst.bandwidth)} GB/s"
        )
    else:
        pairs = [
            f"{rank_in_words(devices[link.a])} with {rank_in_words(devices[link.b])}"
            for link in slow[:NAMED]
        ]
        message = f"{len(slow)} of {len(result.links)} pairs of ranks are slow: {', '.join(pairs)}"
        if len(slow) > NAMED:
            message += " ..."
    return Conclusion(Verdict.WARN, message, evidence, _link_fix(result, devices, slow))


def _link_fix(result: Result, devices: dict[int, RankDevice], slow: list[PairLink]) -> str:
    """The remedy for what connects the slow pairs: a network, GPU links, or memory."""
    if any(devices[link.a].host != devices[link.b].host for link in slow):
        return "check cable, port speed and error counters: `ethtool`, `ibstat`"
    if result.library.engine == "sim" or any(devices[link.a].bus for link in slow):
        return (
            "check how these GPUs are connected: `nvidia-smi topo -m`, `nvidia-smi nvlink --status`"
        )
    return "the ranks exchange data through memory: check which cores they run on with `lscpu -e`"


def _find_uncertain(run: Run) -> Conclusion | None:
    timed, sampling = sampled(run.result), run.result.spec.sampling
    precision = sampling.precision if sampling else 0.0
    imprecise = [
        figure for figure in timed if figure.cell.stopped in ENDS and figure.half_width > precision
    ]
    if not imprecise:
        return None
    widest = max(imprecise, key=lambda figure: figure.half_width)
    message = (
        f"requested precision of {100 * precision:.3g} % not reached in {len(imprecise)} of"
        f" {len(timed)} cells; least precise: {where_text(widest)},"
        f" {_share_text(widest.half_width)} after {counted(widest.n, 'sample')}"
    )
    reasons = Counter(figure.cell.stopped for figure in imprecise)
    evidence = ", ".join(
        f"{ENDS[reason]} in {counted(count, 'cell')}" for reason, count in reasons.items()
    )
    fix = "stop other jobs on the machine"
    if reasons["budget"]:
        fix = f"allow more time with --max-time, or {fix}"
    return Conclusion(Verdict.WARN, message, evidence, fix)


def _share_text(share: float) -> str:
    if share > 9.99:
        return "no interval" if share == float("inf") else "more than 999 %"
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"


def _find_two_modes(run: Run) -> Conclusion | None:
    split = [figure for figure in sampled(run.result) if figure.cell.modes_s]
    if not split:
        return None
    low, high = split[0].cell.modes_s or (0.0, 0.0)
    message = (
        f"samples of {counted(len(split), 'cell')} fall into two groups; at {where_text(split[0])}"
        f" their medians are {duration(low)} and {duration(high)}"
    )
    fix = (
        "do not rely on the median of such a cell; look for alternating paths or clocks, or other"
        " jobs"
    )
    return Conclusion(Verdict.WARN, message, fix=fix)


def _compare_repeats(run: Run) -> Conclusion | None:
    """With --repeats: how medians of repeats differ, and the interval within one repeat."""
    groups = [figures for figures in repeated(run.result).values() if len(figures) > 1]
    if not groups:
        return None
    spreads = []
    widths = []
    for figures in groups:
        fastest_s, slowest_s = figures[0].cell.time_s, figures[-1].cell.time_s
        spreads.append((slowest_s - fastest_s) / fastest_s)
        widths += [2 * figure.half_width for figure in figures if figure.cell.low_s is not None]
    largest, worst = max(zip(spreads, groups, strict=True), key=lambda pair: pair[0])
    message = (
        f"medians of {len(worst)} repeats differ by {_share_text(statistics.median(spreads))} in"
        f" the median cell, and by at most {_share_text(largest)} at {where_text(worst[0])}"
    )
    evidence = ""
    if widths:
        width = _share_text(statistics.median(widths))
        evidence = f"within one repeat, the median width of intervals is {width}"
    return Conclusion(Verdict.PASS, message, evidence)


def _if_timed(find: Find) -> Find:
    """Apply a rule only to precise timing."""

    def find_if_timed(run: Run) -> Conclusion | None:
        timed = run.result.spec.sampling is not None and run.result.rows
        return find(run) if timed else None

    return find_if_timed


def _if_uncrowded(find: Find) -> Find:
    """Apply a rule on one rank or pair only if each rank process has a core."""
    return _if_timed(lambda run: None if _find_crowded_host(run) else find(run))


RULES = (
    FindingRule(
        "crowded",
        (Verdict.WARN,),
        "more ranks than cores on a host: slow links and hosts are not reported, late ranks only"
        " from 20 ms on",
        _if_timed(_find_crowded_host),
    ),
    FindingRule(
        "late_rank",
        (Verdict.WARN,),
        "one rank starts operations later than all others in half of all cells or more: host, GPU"
        " and delay",
        _if_timed(_find_late_rank),
    ),
    FindingRule(
        "slow_host",
        (Verdict.WARN,),
        "a process takes twice as long as the others to enqueue an operation",
        _if_uncrowded(_find_slow_host),
    ),
    FindingRule(
        "slow_link",
        (Verdict.WARN,),
        "pairs of ranks that exchange data at less than 60 % of the upper quartile of pairs, one"
        " pair at a time; or the host or rank whose pairs are all slow",
        _if_uncrowded(_find_slow_link),
    ),
    FindingRule(
        "links",
        (Verdict.PASS,),
        "no pair is slow (three ranks or more; after the sweep, one rank per host where there are"
        " several hosts)",
        _if_timed(_judge_links),
    ),
    FindingRule(
        "uncertain",
        (Verdict.WARN,),
        "cells that did not reach the requested precision, and the least precise one",
        _if_timed(_find_uncertain),
    ),
    FindingRule(
        "two_modes",
        (Verdict.WARN,),
        "cells whose samples fall into two groups, so that their median means little",
        _if_timed(_find_two_modes),
    ),
    FindingRule(
        "repeats",
        (Verdict.PASS,),
        "with `--repeats`: how much medians differ between newly created communicators",
        _if_timed(_compare_repeats),
    ),
)
