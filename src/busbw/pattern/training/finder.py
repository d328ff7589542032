"""Finds the step of a training in a pattern: the all_reduces of gradients that repeat.

With the file of the recorder (rank_files) a step is what its buckets say. Without it,
the calls that repeat up to the end of the record are a step.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from busbw.core.dtypes import BY_NAME as DTYPES
from busbw.core.errors import NoMeasurement, UsageError
from busbw.core.pattern import (
    MIN_STEPS,
    US,
    Call,
    Comm,
    Pattern,
    PatternRow,
    TrainingSteps,
    settled,
)
from busbw.core.pattern_weights import coverage, step
from busbw.core.sizes import counted, format_size
from busbw.model.buckets import Bucket, exposed_s
from busbw.pattern.training.recorded_step import RecordedBucket, RecordedStep, elements

SMALL_BYTES = 512  # what is smaller is a value such as a loss, not gradients
BACK_TO_BACK_S = 100e-6  # a kernel that begins so soon after another may have waited for it
MAX_OTHERS = 4
GRADIENTS, SHARDED = "all_reduce", ("reduce_scatter", "all_gather")
RECORD_HINT = "busbw capture -o run1 --timed --steps 30 -- COMMAND records them"
FSDP_HINT = (
    "where replicas of shards all-reduce (HSDP), busbw.accel.attach_fully_sharded applies the same"
    " methods; busbw predict --pattern FILE says what the calls take elsewhere"
)


def recorded_step(pattern: Pattern, source: str) -> RecordedStep:
    """The step of a DistributedDataParallel training.

    UsageError if the pattern is of another kind, or has no order. NoMeasurement if no step repeats.
    """
    comm = _gradient_comm(pattern, source)
    if not pattern.calls:
        raise UsageError(f"{source}: the order of its calls is unknown", RECORD_HINT)
    finder = _Finder(pattern, comm, source)
    return finder.step()


def _gradient_comm(pattern: Pattern, source: str) -> Comm:
    """The communicator over which the most bytes of gradients go."""
    reduced: Counter[int] = Counter()
    for row in pattern.rows:
        if _is_gradients(row):
            reduced[row.comm] += row.bytes * row.calls
    sharded = {name: _total(pattern, name) for name in SHARDED}
    if sharded["reduce_scatter"] > max(reduced.values(), default=0):
        amounts = ", ".join(f"{format_size(total)} by {name}" for name, total in sharded.items())
        raise UsageError(
            f"{source}: {amounts}, and less by all_reduce: it shards its states (FSDP, ZeRO) or"
            " layers; a plan is for the all_reduces of DistributedDataParallel",
            FSDP_HINT,
        )
    if not reduced:
        training = pattern.header.training
        hook = training.hook if training else ""
        raise UsageError(
            f"{source}: no all_reduce of gradients in it, of more than {SMALL_BYTES} B of a"
            " floating-point type",
            f"record the training without its communication hook {hook}"
            if hook
            else "busbw show FILE prints what it has",
        )
    return pattern.comms[reduced.most_common(1)[0][0]]


def _total(pattern: Pattern, function: str) -> int:
    return sum(row.bytes * row.calls for row in pattern.rows if row.function == function)


def _is_gradients(row: PatternRow) -> bool:
    if row.function != GRADIENTS or row.bytes <= SMALL_BYTES:
        return False
    return row.dtype is not None and DTYPES[row.dtype].is_float


@dataclass(slots=True)
class _Steps:
    """The calls of each step, and the shapes of their parameters, which may be unknown."""

    calls: list[list[Call]]
    shapes: list[list[list[int]]]


class _Finder:
    def __init__(self, pattern: Pattern, comm: Comm, source: str) -> None:
        self._pattern, self._comm, self._source = pattern, comm, source
        self._facts = pattern.header.training or TrainingSteps()
        self._notes = [*pattern.header.notes, *coverage(pattern)]
        rows = pattern.rows
        self._calls = [
            call
            for call in pattern.calls
            if _is_gradients(rows[call.row]) and rows[call.row].comm == comm.id
        ]

    def step(self) -> RecordedStep:
        steps = self._recorded() or self._repeated()
        if len(steps.calls) < MIN_STEPS:
            raise NoMeasurement(
                f"{self._source}: {counted(len(steps.calls), 'step')} of {len(self._calls)}"
                f" all_reduces; a plan needs {MIN_STEPS} alike",
                RECORD_HINT,
            )
        steps.calls = settled(steps.calls)
        buckets = self._buckets(steps)
        step_s = self._step_s(steps)
        waited_s, waited_source = self._waited(steps, buckets)
        if step_s is not None and waited_s is not None and waited_s >= step_s:
            waited_s, waited_source = None, ""
        facts = self._facts
        return RecordedStep(
            source=self._source,
            ranks=self._comm.ranks or self._pattern.header.world,
            buckets=buckets,
            steps=len(steps.calls),
            step_s=step_s,
            waited_s=waited_s,
            waited_source=waited_source,
            bucket_mb=facts.bucket_mb or None,
            hook=facts.hook,
            hosts=facts.hosts,
            others=self._others(len(steps.calls)),
            notes=self._notes,
        )

    def _row(self, call: Call) -> PatternRow:
        return self._pattern.rows[call.row]

    def _recorded(self) -> _Steps | None:
        """The calls that have the sizes of the recorded buckets; None if there are none."""
        shapes = self._facts.shapes
        if not shapes:
            return None
        bucket_counts = [elements(bucket) for bucket in shapes]
        counts = [self._row(call).count for call in self._calls]
        steps, at = [], 0
        while at + len(bucket_counts) <= len(counts):
            if counts[at : at + len(bucket_counts)] == bucket_counts:
                steps.append(self._calls[at : at + len(bucket_counts)])
                at += len(bucket_counts)
            else:
                at += 1
        return _Steps(steps, shapes) if len(steps) >= MIN_STEPS else None

    def _repeated(self) -> _Steps:
        """The calls that repeat up to the end."""
        repeated = step([call.row for call in self._calls])
        length, begin = repeated.calls, len(self._calls) - repeated.calls * repeated.times
        chunks = [
            self._calls[begin + number * length : begin + (number + 1) * length]
            for number in range(repeated.times)
        ]
        self._notes.append(
            "steps are told apart by the calls that repeat up to the end of the record"
        )
        return _Steps(chunks, [[] for _ in range(length)])

    def _buckets(self, steps: _Steps) -> list[RecordedBucket]:
        first = steps.calls[0]
        readies = self._ready(steps)
        return [
            RecordedBucket(
                self._row(call).bytes, self._row(call).dtype or "", ready_s, list(shapes)
            )
            for call, ready_s, shapes in zip(first, readies, steps.shapes, strict=True)
        ]

    def _ready(self, steps: _Steps) -> list[float]:
        """When each call of a step was made, since the first: medians over steps."""
        offsets = []
        for calls in steps.calls:
            starts = [_start_us(call) for call in calls]
            known = [at_us for at_us in starts if at_us is not None]
            if len(known) == len(starts):
                offsets.append([US * (at_us - known[0]) for at_us in known])
        if not offsets:
            self._notes.append("its calls have no times: when buckets are ready is unknown")
            return [0.0] * len(steps.calls[0])
        readies = [median(column) for column in zip(*offsets, strict=True)]
        return self._without_queue(steps, readies)

    def _without_queue(self, steps: _Steps, readies: list[float]) -> list[float]:
        """When calls would have begun on an idle stream, of those that a GPU queued.

        A kernel that begins as another ends may have been ready before. Between the first call and
        the end of backward, which is that of the last kernel less the wait, gradients become ready
        evenly by bytes.
        """
        durations = _durations_s(steps)
        if not durations or steps.calls[0][0].gpu_at_us is None:
            return readies
        ends = [ready_s + took for ready_s, took in zip(readies, durations, strict=True)]
        queued = [False]
        queued += [
            ready_s - end <= BACK_TO_BACK_S for end, ready_s in zip(ends, readies[1:], strict=False)
        ]
        if not any(queued):
            return readies
        late = counted(sum(queued), "bucket")
        if not self._facts.waits_us:
            self._notes.append(
                f"{late} began as another ended, and may have been ready before: what a faster"
                " method saves is underestimated"
            )
            return readies
        backward_s = max(ends[-1] - US * median(self._facts.waits_us), 0.0)
        sizes = [self._row(call).bytes for call in steps.calls[0]]
        self._notes.append(
            f"{late} began as another ended: when they were ready is estimated from their bytes"
        )
        estimated = []
        for number, ready_s in enumerate(readies):
            share = sum(sizes[1 : number + 1]) / (sum(sizes[1:]) or 1)
            estimated.append(min(ready_s, backward_s * share) if queued[number] else ready_s)
        return estimated

    def _step_s(self, steps: _Steps) -> float | None:
        if self._facts.step_s is not None:
            return self._facts.step_s
        starts = [_start_us(calls[0]) for calls in steps.calls]
        known = [at_us for at_us in starts if at_us is not None]
        durations = [US * (after - before) for before, after in pairwise(known)]
        return median(durations) if durations and median(durations) > 0 else None

    def _waited(self, steps: _Steps, buckets: Sequence[RecordedBucket]) -> tuple[float | None, str]:
        """How long a step waited for gradients after backward, and where this is from."""
        if self._facts.wait_s is not None:
            return self._facts.wait_s, "as DDP timed it"
        durations = _durations_s(steps)
        if not durations:
            return None, ""
        ready = [Bucket(bucket.nbytes, bucket.ready_s) for bucket in buckets]
        return exposed_s(ready, durations, []), "from the times of its calls"

    def _others(self, steps: int) -> list[str]:
        """What a step sends besides gradients, the largest first."""
        own = {call.row for call in self._calls}
        rows = [row for row in self._pattern.rows if row.id not in own and row.calls >= steps]
        rows.sort(key=lambda row: row.bytes * row.calls, reverse=True)
        texts = [f"{row.function} of {format_size(row.bytes)}" for row in rows]
        more = len(texts) - MAX_OTHERS
        return texts[:MAX_OTHERS] + ([f"{more} more"] if more > 0 else [])


def _start_us(call: Call) -> float | None:
    """When a call began on the GPU, or else was made."""
    return call.at_us if call.gpu_at_us is None else call.gpu_at_us


def _durations_s(steps: _Steps) -> list[float]:
    """The median duration of each call of a step; [] if not all are known."""
    rows = []
    for calls in steps.calls:
        times = [call.cpu_us if call.gpu_us is None else call.gpu_us for call in calls]
        known = [US * time_us for time_us in times if time_us is not None]
        if len(known) == len(times):
            rows.append(known)
    return [median(column) for column in zip(*rows, strict=True)]
