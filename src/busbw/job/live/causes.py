"""Why a job is slow: the first cause that the evidence shows, else what was looked at.

A part of a step is a cause if it explains MAINLY of the delay: of a late rank, how much more of it
the rank has than the median of the others; of steps that became longer, how much it grew. What a
GPU or a port shows is a cause if nothing else explains the delay, or if it comes before all others.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from statistics import median

from busbw.core.finding import Verdict
from busbw.core.pattern import US
from busbw.job.live import doing, gpu_causes
from busbw.job.live.cpu_causes import quota_alone, starved, starved_together
from busbw.job.live.delay import GRADIENTS, MAINLY, PARTLY, Cause, Delay
from busbw.job.live.network_causes import network, traffic
from busbw.job.live.rank_use import (
    BACKWARD,
    BLOCKED,
    FORWARD,
    INPUT,
    RAN,
    READ_EVERY_S,
    READINGS,
    SAVE,
    WAITING,
    RankEvidence,
)
from busbw.job.live.types import JobLook, LiveVerdict
from busbw.job.live.words import CPU_LIST, longer_tests
from busbw.ui.number_formats import time_text, time_unit

UNKNOWN, COMPUTE, CHECKPOINT = "unknown", "compute", "checkpoint"
SLOW_SHARE = 0.1  # of the steps before: by which they are longer for a slow link
LEAST_PART, DIGITS = 0.01, 2  # of a delay that is unknown: what is less is left out
WAITS = (WAITING, BLOCKED, INPUT, SAVE)  # of which a rank that computes well has none
_Rule = Callable[[Delay], Cause | None]


def explained(found: LiveVerdict, look: JobLook) -> LiveVerdict:
    """The verdict with its cause, where one is asked for."""
    causes: dict[str, Callable[[LiveVerdict, JobLook], LiveVerdict]] = {
        "late": _late,
        "longer": _longer,
        "slow-link": _of_slow_link,
        "missing": doing.absent,
        "still": doing.still,
        "": doing.usual,
    }
    return causes[found.kind](found, look) if found.kind in causes else found


def _late(found: LiveVerdict, look: JobLook) -> LiveVerdict:
    times = look.times
    if not times or not times.late:
        return found
    slow = _slow_link(look)
    if slow:
        return slow
    late = next(one for one in times.late.late if one.rank == found.suspects[0])
    named = [one.rank for one in times.late.late]
    others = [evidence.now for rank, evidence in look.evidence.items() if rank not in named] or [
        evidence.now for rank, evidence in look.evidence.items() if rank != late.rank
    ]
    own = look.evidence.get(late.rank, RankEvidence())
    delay = Delay(look, late.us, times.mean_us, _more(own.now, others), own, late.rank, named)
    cause = _first(_OF_LATE, delay) or _unknown(delay)
    if late.host in times.late.hosts and cause.kind in (UNKNOWN, COMPUTE):
        cause = replace(
            cause,
            kind="host",
            why=f"all ranks on {late.host} are late, and not those of another host; {cause.why}",
            wrong_if="the same ranks are late on another host",
        )
    if cause.kind == CHECKPOINT:
        found = replace(found, verdict=Verdict.PASS, kind=CHECKPOINT, suspects=())
    return cause.of(found)


def _longer(found: LiveVerdict, look: JobLook) -> LiveVerdict:
    """What grew of all ranks, else of one, though it is not late beyond doubt."""
    times = look.times
    if not times or not times.usual_mean_us:
        return found
    us, step_us = times.mean_us - times.usual_mean_us, times.usual_mean_us
    grew = {rank: _grown(one) for rank, one in look.evidence.items() if one.before}
    least = {}
    for part in sorted(set().union(*grew.values())):
        least[part] = min(own.get(part, 0.0) for own in grew.values())
    if times.wait_grew_us is not None:
        least[GRADIENTS] = times.wait_grew_us
    of_all = Delay(look, us, step_us, least, grew=grew)
    cause = _first(_OF_ALL, of_all)
    for rank, own in grew.items() if cause is None else ():
        cause = cause or _first(_OF_ONE, Delay(look, us, step_us, own, look.evidence[rank], rank))
    return (cause or _unknown(of_all)).of(found)


def _slow_link(look: JobLook) -> LiveVerdict | None:
    """Steps are longer for a part of the network that is told: who is late waits for it, too."""
    times = look.times
    if not times or not times.usual_mean_us or times.wait_grew_us is None:
        return None
    us, step_us = times.mean_us - times.usual_mean_us, times.usual_mean_us
    if us < SLOW_SHARE * step_us:
        return None
    cause = network(Delay(look, us, step_us, {GRADIENTS: times.wait_grew_us}))
    if not cause or not cause.ranks:
        return None
    text = f"steps are longer: {time_text(US * times.mean_us)}, before {time_text(US * step_us)}"
    return cause.of(LiveVerdict(Verdict.WARN, "longer", text))


def _of_slow_link(found: LiveVerdict, look: JobLook) -> LiveVerdict:
    """Whether another program's bytes make it slow."""
    times = look.times
    if not times or not times.usual_mean_us:
        return found
    us, step_us = max(0.0, times.mean_us - times.usual_mean_us), times.usual_mean_us
    cause = traffic(Delay(look, us, step_us, {}), found.why)
    if cause is None or not cause.where:
        return found
    found = replace(found, message=f"another program's bytes slow {cause.where}")
    return replace(cause, where="").of(found)


def _grown(rank: RankEvidence) -> dict[str, float]:
    """By how much each part of its steps is longer than before."""
    before = rank.before
    grew = {part: rank.now.get(part, 0.0) - us for part, us in before.items()}
    return _contended(
        grew, before.get(WAITING, 0.0) / before[RAN] if before.get(RAN, 0.0) > 0 else 0.0
    )


def _more(own: Mapping[str, float], others: list[dict[str, float]]) -> dict[str, float]:
    """How much more of each part of a step a rank has than the others, if these have it."""
    more = {}
    for part, us in own.items():
        known = [other[part] for other in others if part in other]
        if known or part in WAITS:
            more[part] = us - (median(known) if known else 0.0)
    ratios = [other[WAITING] / other[RAN] for other in others if other.get(RAN, 0.0) > 0]
    return _contended(more, median(ratios) if ratios else 0.0)


def _contended(more: dict[str, float], ratio: float) -> dict[str, float]:
    """With `ratio` of waiting to running elsewhere, who runs longer also waits longer: that part of
    the waiting belongs to what it runs.
    """
    if RAN in more and WAITING in more:
        us = max(0.0, min(more[WAITING], ratio * more[RAN]))
        more[RAN] += us
        more[WAITING] -= us
    return more


def _first(rules: Iterable[_Rule], delay: Delay) -> Cause | None:
    return next((cause for rule in rules if (cause := rule(delay))), None)


def _input(delay: Delay) -> Cause | None:
    if not delay.has(INPUT):
        return None
    own_us = delay.own.now.get(INPUT)
    loader = "their DataLoaders" if own_us is None else "its DataLoader"
    whole = "" if own_us is None else f", {time_text(US * own_us)} in each step"
    return Cause(
        "input",
        f"input: {delay.name} waited for {loader} for {delay.figure(INPUT)}{whole}",
        f"py-spy dump --pid {delay.pid} --subprocesses",
        delay.same("with the same batch in each step"),
    )


def _blocked(delay: Delay) -> Cause | None:
    if not delay.has(BLOCKED):
        return None
    faults = delay.own.faults
    read = f", {faults} pages were read from a disk" if faults else ""
    return Cause(
        "disk",
        f"{delay.name} was blocked by a device (state D) for {delay.figure(BLOCKED)}{read}",
        f"cat /proc/{delay.pid}/stack /proc/{delay.pid}/io; busbw check",
        f"state D is not seen: ps -o stat,wchan -p {delay.pid}",
    )


def _checkpoint(delay: Delay) -> Cause | None:
    if not delay.has(SAVE):
        return None
    return Cause(
        CHECKPOINT,
        f"checkpoint: {delay.name} was in torch.save for {delay.figure(SAVE)}; expected",
        "",
        delay.same("without checkpoints"),
    )


def _compute(delay: Delay) -> Cause | None:
    """After what may make it compute longer without more to do."""
    in_model, ran = delay.has(FORWARD, BACKWARD), delay.has(RAN)
    if not in_model and not ran:
        return None
    if not in_model:
        whose = "their CPUs" if delay.rank is None else "its CPU"
        why = f"needed {whose} for longer, by {delay.figure(RAN)}, outside of forward and backward"
    else:
        why = f"took longer in forward and backward by {delay.figure(FORWARD, BACKWARD)}"
        ran_us = delay.part_us(RAN)
        if ran_us >= MAINLY * delay.part_us(FORWARD, BACKWARD):
            why += f", and used a CPU for {time_text(US * ran_us)} more"
        elif RAN in delay.more:
            why += ", but used a CPU for no longer, as on a GPU or asleep"
    return Cause(
        COMPUTE,
        f"{delay.name} {why}",
        f"py-spy dump --pid {delay.pid}  # or record -d 30: where it computes",
        "all ranks are as slow with the batches from before"
        if delay.rank is None
        else "the rank is as fast as the others with their data, or on their GPU or CPU",
    )


def _link(delay: Delay) -> Cause | None:
    """A rank may wait less because its link is slow in one direction: it computes no longer."""
    grew_us = delay.look.times.wait_more_us if delay.look.times else None
    own = (delay.part_us(FORWARD, BACKWARD), delay.part_us(RAN, WAITING), delay.part_us(*WAITS[1:]))
    if not grew_us or FORWARD not in delay.more or max(own) >= PARTLY * delay.us:
        return None
    cause = network(replace(delay, more={GRADIENTS: grew_us}))
    return cause and replace(cause, why=f"{delay.name} computes no longer; {cause.why}")


def _unknown(delay: Delay) -> Cause:
    """What was compared, and by how much it differs."""
    if not delay.more:
        return Cause(UNKNOWN, _unread(delay))
    texts = {
        RAN: "ran",
        WAITING: "without a CPU",
        BLOCKED: "in state D",
        INPUT: "in its DataLoader",
        SAVE: "in torch.save",
        FORWARD: "forward",
        BACKWARD: "backward",
        GRADIENTS: "in communication",
    }
    known = {texts[part]: delay.more[part] for part in texts if part in delay.more}
    if FORWARD in delay.more:
        known["elsewhere (as in the optimizer or other calls)"] = delay.us - delay.part_us(
            INPUT, SAVE, FORWARD, BACKWARD, GRADIENTS
        )
    scale, unit = time_unit(US * delay.us)
    parts = [
        f"{text} {US * us / scale:.{DIGITS}f}"
        for text, us in known.items()
        if abs(us) >= LEAST_PART * delay.us
    ]
    compared = f"compared with {delay.compared}, in {unit}: {', '.join(parts)}"
    if not parts:
        compared = f"no part has grown by {100 * LEAST_PART:g} % of it"
    return Cause(
        UNKNOWN, f"unknown: of {time_text(US * delay.us)}, {compared}", _test_of_largest(delay)
    )


def _test_of_largest(delay: Delay) -> str:
    """The command for the part that grew most of all ranks; '' for the verdict's own."""
    if delay.rank is not None:
        return ""
    largest = max(delay.more, key=lambda part: delay.more[part])
    if delay.more[largest] < PARTLY * delay.us:
        return CPU_LIST
    if largest == GRADIENTS:
        return longer_tests(delay.look)
    commands = {WAITING: CPU_LIST, BLOCKED: f"cat /proc/{delay.pid}/stack /proc/{delay.pid}/io"}
    return commands.get(largest, f"py-spy dump --pid {delay.pid} --subprocesses")


def _unread(delay: Delay) -> str:
    """Why nothing is compared."""
    if delay.rank is None:
        return "unknown: what the processes of the ranks used before was not read"
    rank = delay.look.ranks.get(delay.rank)
    if rank and rank.state and not rank.is_gone and delay.own.readings < READINGS:
        return f"not known yet: {delay.name} is read every {READ_EVERY_S:g} s"
    return "unknown: its process cannot be read from here"


_OF_ONE: tuple[_Rule, ...] = (starved, _input, _blocked, _checkpoint, _compute)
_OF_LATE: tuple[_Rule, ...] = (
    gpu_causes.shared,
    gpu_causes.throttled,
    *_OF_ONE[:-1],
    gpu_causes.slot,
    gpu_causes.nvlink,
    quota_alone,
    _compute,
    gpu_causes.used,
    _link,
)
_OF_ALL: tuple[_Rule, ...] = (
    gpu_causes.throttled,
    *_OF_ONE[:-1],
    starved_together,
    network,
    _compute,
)
