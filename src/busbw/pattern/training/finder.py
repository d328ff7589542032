"""The step of a recorded training: its buckets, when they are ready, what it takes and waits."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from busbw.core.pattern import US, Pattern, PatternCall, PatternRow, TrainingSteps, settled
from busbw.core.pattern_weights import coverage
from busbw.core.sizes import counted, format_size
from busbw.model.buckets import Bucket, exposed_s
from busbw.pattern.training import gradients
from busbw.pattern.training.gradients import GradientSteps
from busbw.pattern.training.recorded_step import RecordedBucket, RecordedStep

BACK_TO_BACK_S = 100e-6  # a kernel that begins so soon after another may have waited for it
MAX_OTHERS = 4


def recorded_step(pattern: Pattern, source: str) -> RecordedStep:
    """The step of a DistributedDataParallel training.

    UsageError and NoMeasurement as of gradients.find.
    """
    steps = gradients.find(pattern, source)
    return _Finder(pattern, steps).step(source)


class _Finder:
    def __init__(self, pattern: Pattern, steps: GradientSteps) -> None:
        self._pattern = pattern
        self._facts = pattern.header.training or TrainingSteps()
        self._notes = [*pattern.header.notes, *coverage(pattern), *steps.notes]
        self._all = steps
        self._steps = settled(steps.calls)

    def step(self, source: str) -> RecordedStep:
        buckets = self._buckets()
        step_s = self._step_s()
        waited_s, waited_source = self._waited(buckets)
        if step_s is not None and waited_s is not None and waited_s >= step_s:
            waited_s, waited_source = None, ""
        facts = self._facts
        return RecordedStep(
            source=source,
            ranks=self._all.comm.ranks or self._pattern.header.world,
            buckets=buckets,
            steps=len(self._steps) if facts.step_s is None else len(facts.counted()),
            step_s=step_s,
            waited_s=waited_s,
            waited_source=waited_source,
            bucket_mb=facts.bucket_mb or None,
            hook=facts.hook,
            hosts=facts.hosts,
            others=self._others(),
            notes=self._notes,
        )

    def _row(self, call: PatternCall) -> PatternRow:
        return self._pattern.rows[call.row]

    def _buckets(self) -> list[RecordedBucket]:
        first = self._steps[0]
        readies = self._ready()
        return [
            RecordedBucket(
                self._row(call).bytes, self._row(call).dtype or "", ready_s, list(shapes)
            )
            for call, ready_s, shapes in zip(first, readies, self._all.shapes, strict=True)
        ]

    def _ready(self) -> list[float]:
        """When each call of a step was made, since the first: medians over steps."""
        offsets = []
        for calls in self._steps:
            starts = [_start_us(call) for call in calls]
            known = [at_us for at_us in starts if at_us is not None]
            if len(known) == len(starts):
                offsets.append([US * (at_us - known[0]) for at_us in known])
        if not offsets:
            self._notes.append("its calls have no times: when buckets are ready is unknown")
            return [0.0] * len(self._steps[0])
        readies = [median(column) for column in zip(*offsets, strict=True)]
        return self._without_queue(readies)

    def _without_queue(self, readies: list[float]) -> list[float]:
        """When calls would have begun on an idle stream, of those that a GPU queued.

        A kernel that begins as another ends may have been ready before. Between the first call and
        the end of backward, which is that of the last kernel less the wait, gradients become ready
        evenly by bytes.
        """
        durations = _durations_s(self._steps)
        if not durations or self._steps[0][0].gpu_at_us is None:
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
        sizes = [self._row(call).bytes for call in self._steps[0]]
        self._notes.append(
            f"{late} began as another ended: when they were ready is estimated from their bytes"
        )
        estimated = []
        for number, ready_s in enumerate(readies):
            share = sum(sizes[1 : number + 1]) / (sum(sizes[1:]) or 1)
            estimated.append(min(ready_s, backward_s * share) if queued[number] else ready_s)
        return estimated

    def _step_s(self) -> float | None:
        if self._facts.step_s is not None:
            return self._facts.step_s
        starts = [_start_us(calls[0]) for calls in self._steps]
        known = [at_us for at_us in starts if at_us is not None]
        durations = [US * (after - before) for before, after in pairwise(known)]
        return median(durations) if durations and median(durations) > 0 else None

    def _waited(self, buckets: Sequence[RecordedBucket]) -> tuple[float | None, str]:
        """How long a step waited for gradients after backward, and where this is from."""
        if self._facts.wait_s is not None:
            return self._facts.wait_s, "as DDP timed it"
        durations = _durations_s(self._steps)
        if not durations:
            return None, ""
        ready = [Bucket(bucket.nbytes, bucket.ready_s) for bucket in buckets]
        return exposed_s(ready, durations, []), "from the times of its calls"

    def _others(self) -> list[str]:
        """What a step sends besides gradients, the largest first, each function and size once."""
        own = {call.row for calls in self._all.calls for call in calls}
        calls = Counter(call.row for call in self._pattern.calls)
        totals: Counter[str] = Counter()
        for row in self._pattern.rows:
            if row.id not in own and calls[row.id] >= len(self._steps):
                totals[f"{row.function} of {format_size(row.bytes)}"] += row.bytes * calls[row.id]
        texts = [text for text, _ in totals.most_common()]
        more = len(texts) - MAX_OTHERS
        return texts[:MAX_OTHERS] + ([f"{more} more"] if more > 0 else [])


def _start_us(call: PatternCall) -> float | None:
    """When a call began on the GPU, or else was made."""
    return call.at_us if call.gpu_at_us is None else call.gpu_at_us


def _durations_s(steps: Sequence[Sequence[PatternCall]]) -> list[float]:
    """The median duration of each call of a step; [] if not all are known."""
    rows = []
    for calls in steps:
        times = [call.cpu_us if call.gpu_us is None else call.gpu_us for call in calls]
        known = [US * time_us for time_us in times if time_us is not None]
        if len(known) == len(times):
            rows.append(known)
    return [median(column) for column in zip(*rows, strict=True)]
