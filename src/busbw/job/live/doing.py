"""What ranks are in while they do not call, and what steps show in which no rank is late."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from busbw.core.finding import Verdict
from busbw.core.sizes import span
from busbw.job.live.delay import MAINLY, Cause
from busbw.job.live.rank_use import EVALUATION, INPUT, SAVE
from busbw.job.live.types import JobLook, LiveVerdict
from busbw.pattern.lateness.text import long_line
from busbw.ui.number_formats import percent_text

EXPECTED_S = 300.0  # a checkpoint or an evaluation that takes longer is not taken for expected
INPUT_SHARE = 0.1  # of a step, from which on it is said
KINDS = {INPUT: "input", SAVE: "checkpoint", EVALUATION: "evaluation"}
TEXTS = {INPUT: "in its DataLoader", SAVE: "in torch.save", EVALUATION: "evaluating"}


def absent(found: LiveVerdict, look: JobLook) -> LiveVerdict:
    """Why ranks have not made a call. A checkpoint or an evaluation of theirs is expected."""
    rank = look.ranks.get(found.suspects[0]) if found.suspects else None
    if rank and rank.has_ended:
        return found
    if rank and rank.state == "D":
        return Cause(
            "disk",
            f"rank {rank.rank} is blocked by a device (state D)",
            f"cat /proc/{rank.pid}/stack  # on {rank.host}, as root",
            f"state D is not seen: ps -o stat,wchan -p {rank.pid}",
        ).of(found)
    return _in_phase(found, look, found.suspects)


def still(found: LiveVerdict, look: JobLook) -> LiveVerdict:
    """Why no rank makes progress."""
    found = _in_phase(found, look, list(look.ranks))
    return replace(found, verdict=Verdict.WARN) if found.cause == KINDS[INPUT] else found


def _in_phase(found: LiveVerdict, look: JobLook, ranks: Sequence[int]) -> LiveVerdict:
    known = [rank for rank in ranks if rank in look.ranks and rank in look.evidence]
    if not known or len(known) < len(ranks):
        return found
    for phase in KINDS:
        seconds = min(look.evidence[rank].doing_s.get(phase, 0.0) for rank in known)
        if seconds < MAINLY * min(look.ranks[rank].still_s for rank in known):
            continue
        is_expected = phase != INPUT and seconds < EXPECTED_S
        who = f"rank {known[0]}" if len(known) == 1 else "each of them"
        pid = look.ranks[known[0]].pid
        why = f"{who} has been {TEXTS[phase]} for {span(seconds)}"
        cause = Cause(
            KINDS[phase],
            f"{why}: expected" if is_expected else why,
            f"py-spy dump --pid {pid} --subprocesses",
            f"the stack of process {pid} shows something else",
        )
        if is_expected:
            found = replace(found, verdict=Verdict.UNKNOWN, kind=KINDS[phase], suspects=())
        return cause.of(found)
    return found


def usual(found: LiveVerdict, look: JobLook) -> LiveVerdict:
    """What a job without a late rank spends its steps with."""
    times = look.times
    if not times or not times.late:
        return found
    seen = list(found.evidence)
    parts = {
        part: median(known)
        for part in (INPUT, SAVE)
        if (known := [rank.now[part] for rank in look.evidence.values() if part in rank.now])
    }
    if INPUT in parts and parts[INPUT] >= INPUT_SHARE * times.mean_us:
        share = percent_text(parts[INPUT], times.mean_us)
        seen.append(f"input: ranks are in their DataLoader for {share} % of each step")
    long = times.late.long
    if long:
        line = long_line(long, times.late)
        excess_us = long.when.us * long.when.steps
        if parts.get(SAVE, 0.0) * len(times.late.steps_us) >= MAINLY * excess_us:
            line += "; torch.save took most of it: checkpoints"
        seen.append(line)
    return replace(found, evidence=seen)
