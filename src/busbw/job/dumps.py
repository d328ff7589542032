"""Stalls that dumps of PyTorch's Flight Recorder show. Pure."""

from collections.abc import Collection, Iterable

from busbw.job.stalls import MAX_NAMED, Stall, call_text, numbered, subject
from busbw.job.types import JobData, RankStatus
from busbw.pattern import merge
from busbw.pattern.pending_collective import Outstanding

# Once these have ended on one GPU, all ranks have called them, and their GPUs have sent their part.
_NEED_ALL = ("all_reduce", "all_gather", "reduce_scatter")


def unended(job: JobData) -> Stall | None:
    """Ranks on whose GPUs calls have not ended, according to the dumps, that have ended on at
    least as many others of their groups: those ranks are not late.
    """
    if job.has_moved():  # the dumps are older
        return None
    calls = [
        call
        for call in job.outstanding
        if merge.function(call.function) in _NEED_ALL
        and 0 < len(call.waiting) <= len(call.completed)
    ]
    if not calls:
        return None
    numbers = sorted({rank for call in calls for rank in call.waiting})
    first = calls[0]
    ranks = _ranks_of_group(job, first, numbers)
    message = (
        f"{subject(job, ranks, numbers)} did not end calls that have ended on other GPUs:"
        f" {call_text(first)} has ended on {numbered(first.completed)}, not on"
        f" {numbered(first.waiting)}"
    )
    return Stall(ranks, [rank.host for rank in ranks], message)


def absent(job: JobData) -> Stall | None:
    """Ranks that have not called a collective, according to the dumps; ranks that wait in
    another group are not the cause.
    """
    if job.has_moved():  # the dumps are older
        return None
    waiting = {rank for call in job.outstanding for rank in call.waiting}
    late = _late(job.outstanding, waiting) or _late(job.outstanding, set())[:1]
    silent = next((call for call in job.outstanding if call.silent), None)
    if late:
        texts = [
            f"{subject(job, _ranks_of_group(job, call, numbers), numbers)}"
            f" {'has' if len(numbers) == 1 else 'have'} not called"
            f" {call_text(call)} (last: {call.absent[numbers[0]]})"
            for call, numbers in late
        ]
        message = "; ".join(texts[:MAX_NAMED])
        ranks = [rank for call, numbers in late for rank in _ranks_of_group(job, call, numbers)]
    elif silent:
        ranks = _ranks_of_group(job, silent, silent.silent)
        names = subject(job, ranks, silent.silent)
        message = f"{names} gave no dump, the others wait in {call_text(silent)}"
    else:
        return None
    return Stall(ranks, [rank.host for rank in ranks], message)


def _late(
    calls: Iterable[Outstanding], waiting: Collection[int]
) -> list[tuple[Outstanding, list[int]]]:
    """The ranks that do not wait, each with the first call that it has not made."""
    found, taken = [], set(waiting)
    for call in calls:
        numbers = sorted(call.absent.keys() - taken)
        if numbers:
            taken.update(numbers)
            found.append((call, numbers))
    return found


def _ranks_of_group(job: JobData, call: Outstanding, numbers: Collection[int]) -> list[RankStatus]:
    """What RAS says of these ranks, in communicators of the size of the call's group."""
    size = len({*call.waiting, *call.completed, *call.absent, *call.silent})
    comms = [comm for comm in job.after.comms if comm.size == size]
    return [rank for comm in comms for rank in comm.ranks if rank.rank in numbers]
