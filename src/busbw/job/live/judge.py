"""What is wrong with a running job, from one look at it: in the order of certainty.

A process that is gone or stopped is a fact. So are calls that differ. A call that some ranks have
not made is a fault only if they are kept waiting for longer than any step and than HELD_S. Who is
late is judged by `busbw.pattern.lateness` over the last steps.
"""

from collections.abc import Callable, Sequence
from statistics import fmean

from busbw.core.finding import Verdict
from busbw.core.lateness import Lateness, RankDelay
from busbw.core.pattern import US
from busbw.core.pattern_weights import ranks_text as _ranks
from busbw.core.sizes import span
from busbw.job.live import path_causes
from busbw.job.live.causes import explained
from busbw.job.live.last_calls import different, left, place
from busbw.job.live.parts import MOST_LINES, doing_lines, two_jobs_text, unknown_text
from busbw.job.live.path_causes import Direction
from busbw.job.live.process_states import OF_PROCESSES, OVER
from busbw.job.live.types import JobLook, LiveVerdict
from busbw.job.live.words import link_tests, longer_tests
from busbw.job.live.words import stack_command as _stack
from busbw.pattern.lateness.text import late_lines, none_line
from busbw.pattern.pending_collective import Outstanding
from busbw.ui.number_formats import time_text

# At least so long, and so many of the second longest step: the longest one may be a fault too.
HELD_S, HELD_STEPS = 10.0, 1.5
FRESH_S = 5.0  # a file that was replaced so lately says what its rank does now
SLOW_LINK, LOST_TIME = 1.5, 0.1  # times the wait per byte before; share of the time that is lost
UNKNOWN_SHARE = 0.5  # of a step: where a rank could be later than that unseen, nothing is known
ALONE_SHARE = 0.5  # of the step that is left out: who waited for less is whom the others waited for
STEPLESS_HINT = "busbw show TRACES, if it is a server: its own traces have its steps"
OFTEN = 0.05  # of the steps: a rank that is late in fewer has phases of its own, as checkpoints


def judge(look: JobLook) -> LiveVerdict:
    """The first rule that has something to say, and the cause of what it says."""
    for rule in _RULES:
        found = rule(look)
        if found:
            return explained(found, look)
    raise AssertionError("the last rule always answers")


def _not_begun(look: JobLook) -> LiveVerdict | None:
    if look.ranks:
        return None
    if look.silent:
        return _unknown(look)
    if look.is_kept:
        return LiveVerdict(
            Verdict.UNKNOWN, OVER, "the job has ended", next="busbw show DIR", is_over=True
        )
    return LiveVerdict(
        Verdict.UNKNOWN,
        "waiting",
        "no rank has written yet: it does when torch.distributed or NCCL was initialized",
        next="busbw capture --output DIR -- COMMAND starts a job that can be watched",
    )


def _two_jobs(look: JobLook) -> LiveVerdict | None:
    text = two_jobs_text(look)
    if not text:
        return None
    return LiveVerdict(
        Verdict.UNKNOWN,
        "two-jobs",
        text,
        next="busbw capture --output DIR -- COMMAND: a folder for each job",
    )


def _unknown(look: JobLook) -> LiveVerdict | None:
    """No rank is accused of a wait for ranks of which nothing is known."""
    unknown = unknown_text(look)
    if not unknown:
        return None
    return LiveVerdict(
        Verdict.UNKNOWN,
        "unseen",
        unknown,
        (),
        [*doing_lines(look)[:-1], *_late_texts(look)],
        f"busbw check --hosts {','.join(look.silent)}",
    )


def _held(look: JobLook) -> LiveVerdict | None:
    """A call that some ranks have not made, or that all are in, for too long."""
    limit_s = _limit_s(look)
    held = [call for call in look.pending if call.waiting and _held_s(look, call) >= limit_s]
    waiting = {rank for call in held for rank in call.waiting}
    silent = path_causes.silent(look) if held else None
    if silent:
        return _stalled(look, held[0], silent)
    # The ranks that wait in no other group come first.
    for call in sorted(held, key=lambda call: call.absent.keys() <= waiting):
        absent = sorted(call.absent.keys() - waiting) or sorted(call.absent) or call.silent
        seconds = _waited_s(look, call)
        in_call = f"{_ranks(call.waiting)} {_have(call.waiting)} waited for {span(seconds)}"
        if not absent:
            return LiveVerdict(
                Verdict.FAIL,
                "stalled",
                f"all ranks have called {call.function} {place(call)}, in which {in_call}",
                (),
                doing_lines(look),
                link_tests(look),
            )
        return LiveVerdict(
            Verdict.FAIL,
            "missing",
            f"{_ranks(absent)} {_have(absent)} not called {call.function} {place(call)}, in which"
            f" {in_call}",
            absent,
            doing_lines(look),
            _stacks(look, absent),
        )
    return None


def _stalled(look: JobLook, call: Outstanding, silent: Direction) -> LiveVerdict:
    """Ranks wait for what the network does not deliver."""
    return LiveVerdict(
        Verdict.FAIL,
        "stalled",
        f"nothing arrives of {silent.name}; {_ranks(call.waiting)} {_have(call.waiting)} waited for"
        f" {span(_waited_s(look, call))} in {call.function} {place(call)}",
        silent.ranks,
        doing_lines(look),
        link_tests(look),
        "link",
        silent.why,
        "ping between the two addresses is answered in both directions",
    )


def _waited_s(look: JobLook, call: Outstanding) -> float:
    """For how long all ranks that are in a call stand still; 0 if one did not say so lately."""
    waiting = [look.ranks[rank] for rank in call.waiting]
    if any(rank.unwritten_s > FRESH_S for rank in waiting):
        return 0.0
    return min(rank.still_s for rank in waiting)


def _held_s(look: JobLook, call: Outstanding) -> float:
    """The same, but at most since a rank that was stopped runs again."""
    resumed = [rank.resumed_s for rank in look.ranks.values() if rank.resumed_s is not None]
    return min([_waited_s(look, call), *resumed])


def _limit_s(look: JobLook) -> float:
    return max(HELD_S, HELD_STEPS * US * look.times.long_us if look.times else 0.0)


def _stacks(look: JobLook, ranks: Sequence[int]) -> str:
    """How to see where these ranks are."""
    known = [look.ranks[rank] for rank in ranks if rank in look.ranks]
    if not known:
        return f"look whether {_ranks(ranks)} was started"
    if known[0].ended:
        return f"{_ranks([known[0].rank])} came to the end of its program: see its output"
    return f"{_stack(known[0])}  # on {known[0].host}"


def _still(look: JobLook) -> LiveVerdict | None:
    """No rank makes progress, and none waits: it may be an evaluation, or not."""
    still_s = min(rank.still_s for rank in look.ranks.values())
    if still_s < _limit_s(look):
        return None
    calling = [rank.rank for rank in look.ranks.values() if rank.call]
    waiting = f"{_ranks(calling)} in a call" if calling else "and no rank is in a call"
    are_timed = look.times is not None and look.times.wait_us is not None
    if not (calling or are_timed) and any(rank.last for rank in look.ranks.values()):
        waiting = "and whether ranks are in a call is unknown (busbw capture --timed tells)"
    return LiveVerdict(
        Verdict.UNKNOWN,
        "still",
        f"no call and no step for {span(still_s)}, {waiting}: an evaluation, a checkpoint or"
        " input, or all hang",
        (),
        doing_lines(look),
        _stacks(look, [min(look.ranks)]),
    )


def _incomplete(look: JobLook) -> LiveVerdict | None:
    missing = look.missing()
    if not missing:
        return None
    return LiveVerdict(
        Verdict.UNKNOWN,
        "incomplete",
        f"{_ranks(missing)} of {look.world} {_have(missing)} written nothing: any of them may be"
        " the cause",
        (),
        _late_texts(look),
        "start all ranks under busbw capture, with one folder",
    )


def _late(look: JobLook) -> LiveVerdict | None:
    found = look.times and look.times.late
    if not found:
        return None
    late = [one for one in found.late if _is_often(one, found)]
    if not late:
        return None
    texts = late_lines(late[0], found)
    return LiveVerdict(
        Verdict.WARN,
        "late",
        texts[0],
        [one.rank for one in late],
        [*texts[1:], *_late_ranks(late[1:], found), *_left_out(look)],
        f"busbw check --hosts {late[0].host}",
    )


def _is_often(late: RankDelay, found: Lateness) -> bool:
    return late.at_times is None or late.at_times.steps >= OFTEN * len(found.steps_us)


def _longer(look: JobLook) -> LiveVerdict | None:
    times = look.times
    if not times or not times.usual_us or not times.is_longer:
        return None
    known = f"; no rank is late by {time_text(US * times.late.bound_us)}" if times.late else ""
    return LiveVerdict(
        Verdict.WARN,
        "longer",
        f"steps are longer: {time_text(US * times.now_us)}, before"
        f" {time_text(US * times.usual_us)}{known}",
        (),
        _late_texts(look),
        longer_tests(look),
    )


def _slow_link(look: JobLook) -> LiveVerdict | None:
    """Steps are not much longer, or not long enough, but a link is surely slower than before."""
    slow = path_causes.slow(look, SLOW_LINK, LOST_TIME)
    if not slow:
        return None
    return LiveVerdict(
        Verdict.WARN,
        "slow-link",
        f"{slow.name} is slower than before: {slow.why}",
        slow.ranks,
        _late_texts(look),
        link_tests(look),
        "link",
        slow.why,
        "busbw link finds all links between these hosts equal",
    )


def _lossy(look: JobLook) -> LiveVerdict | None:
    lossy = path_causes.lossy(look)
    if not lossy:
        return None
    return LiveVerdict(
        Verdict.WARN,
        "lossy",
        f"{lossy.name} is lost in part: {lossy.why}",
        lossy.ranks,
        _late_texts(look),
        link_tests(look),
        "link",
        lossy.why,
        "no counter of a port or switch on the way rises: ethtool -S, and those of the switch",
    )


def _fine(look: JobLook) -> LiveVerdict:
    """The last rule: no rank is late, or nothing is known of that."""
    late = look.times and look.times.late
    if late and late.bound_us > UNKNOWN_SHARE * fmean(late.steps_us):
        return LiveVerdict(Verdict.UNKNOWN, "unjudged", f"steps differ too much: {none_line(late)}")
    if late:
        return LiveVerdict(Verdict.PASS, "", none_line(late), (), _left_out(look))
    if not look.times:
        return LiveVerdict(
            Verdict.UNKNOWN,
            "unjudged",
            f"no rank of {len(look.ranks)} is stopped or missing; no step is seen so far, so who"
            " is late is unknown",
            (),
            doing_lines(look),
            STEPLESS_HINT,
        )
    reason = "too few steps so far"
    if look.times.wait_us is None:
        reason = look.times.unjudged or "DDP has timed no step"
    return LiveVerdict(
        Verdict.UNKNOWN,
        "unjudged",
        f"no rank is stopped or missing; who is late is unknown: {reason}",
    )


_RULES: tuple[Callable[[JobLook], LiveVerdict | None], ...] = (
    _not_begun,
    _two_jobs,
    *OF_PROCESSES,
    different,
    left,
    _unknown,
    _held,
    _still,
    _incomplete,
    _late,
    _longer,
    _lossy,
    _slow_link,
    _fine,
)


def _late_texts(look: JobLook) -> list[str]:
    """What the steps of the ranks that were read say."""
    found = look.times and look.times.late
    if not found:
        return []
    return _late_ranks(found.late, found) or [none_line(found)]


def _left_out(look: JobLook) -> list[str]:
    """The step that is compared with none, and for whom the ranks waited in it."""
    times = look.times
    if not times or not times.alone_us:
        return []
    waits = times.alone_waits_us
    out = [rank for rank, us in waits.items() if us < ALONE_SHARE * times.alone_us]
    if not waits:
        why = "how long each rank waited in it is unknown"
    elif not out:
        why = "all ranks waited in communication, also one that may have been stopped there"
    elif len(out) == len(waits):
        why = "no rank waited in it, as in a checkpoint of all"
    else:
        why = f"the others waited for {_ranks(out)} in it"
    return [f"one step of {time_text(US * times.alone_us)} is left out: {why}"]


def _late_ranks(late: Sequence[RankDelay], found: Lateness) -> list[str]:
    """A line for each late rank: of many, for the first."""
    lines = [late_lines(one, found)[0] for one in late[:MOST_LINES]]
    more = [one.rank for one in late[MOST_LINES:]]
    return [*lines, f"late, by less: {_ranks(more)}"] if more else lines


def _have(ranks: Sequence[int]) -> str:
    return "has" if len(ranks) == 1 else "have"
