"""Which calls of a pattern are the gradients of a step: the communicator, and the steps on it.

What the recorder read from DDP is the evidence: a step's all_reduces have the elements of DDP's
buckets, and together the bytes of its parameters. A record without this evidence ends with calls
that repeat, and a step is one such sequence. Where neither tells, the record is refused: a plan for
other calls would be wrong without a sign of it.
"""

from collections import defaultdict
from dataclasses import dataclass, field

from busbw.core.dtypes import BY_NAME as DTYPES
from busbw.core.errors import NoMeasurement, UsageError
from busbw.core.pattern import MIN_STEPS, Comm, Pattern, PatternCall, PatternRow, TrainingSteps
from busbw.core.pattern_weights import step
from busbw.core.sizes import counted, format_size
from busbw.pattern.training.recorded_step import elements

# Sharded training gathers its parameters in each step; a loss over all ranks gathers less.
MIN_GATHERED = 0.25  # of what is all-reduced
SMALL_BYTES = 512  # what is smaller is a value such as a loss, not gradients
NEGLIGIBLE = 0.01  # of the bytes: calls of metrics, which no evidence is needed to leave out
GRADIENTS, SHARDED = "all_reduce", ("reduce_scatter", "all_gather")
RECORD_HINT = "busbw capture --output run1 --timed --capture-steps 30 -- COMMAND records them"
SHOW_HINT = "busbw show FILE prints what it has"
PREDICT_HINT = "busbw predict --pattern FILE says what the calls take elsewhere"
FSDP_HINT = (
    "for fully_shard, busbw_accel.attach_fully_sharded(model, settings=Settings(method='int8'))"
    f" sends less; {PREDICT_HINT}"
)


@dataclass(slots=True)
class GradientSteps:
    """The calls of each step, and the shapes of their parameters, which may be unknown."""

    comm: Comm
    calls: list[list[PatternCall]]
    shapes: list[list[list[int]]]
    notes: list[str] = field(default_factory=list)


def find(pattern: Pattern, source: str) -> GradientSteps:
    """The steps of a DistributedDataParallel training.

    UsageError if the pattern is of another kind, has no order, or its gradients are compressed or
    cannot be told from other calls. NoMeasurement if no step repeats.
    """
    return _StepSearch(pattern, source).find()


class _StepSearch:
    def __init__(self, pattern: Pattern, source: str) -> None:
        self._pattern, self._source = pattern, source
        self._facts = pattern.header.training or TrainingSteps()

    def find(self) -> GradientSteps:
        self._require_all_reduces()
        if not self._pattern.calls:
            raise UsageError(f"{self._source}: the order of its calls is unknown", RECORD_HINT)
        steps = self._with_buckets() if self._facts.shapes else self._of_repeated_sizes()
        if len(steps.calls) < MIN_STEPS:
            repeated = counted(len(steps.calls), "step") if steps.calls else "no step repeats"
            raise NoMeasurement(
                f"{self._source}: {repeated} in its"
                f" {counted(self._calls_on(steps.comm), GRADIENTS)}; a plan needs"
                f" {MIN_STEPS} steps alike",
                RECORD_HINT,
            )
        self._require_all_bytes(steps)
        self._require_all_ranks(steps.comm)
        return steps

    def _require_all_reduces(self) -> None:
        """UsageError if gradients go by other calls, or none do."""
        reduced = max(self._bytes_of_comms().values(), default=0)
        totals = dict.fromkeys(SHARDED, 0)
        for row in self._pattern.rows:
            if row.function in totals:
                totals[row.function] += row.bytes * row.calls
        rest = ""
        if totals["reduce_scatter"] > reduced:
            rest = "less by all_reduce"
        elif not self._facts.shapes and totals["all_gather"] > MIN_GATHERED * reduced > 0:
            rest = (
                f"{format_size(reduced)} by all_reduce, as which PyTorch records Gloo's"
                " reduce_scatter"
            )
        if rest:
            amounts = ", ".join(f"{format_size(total)} by {name}" for name, total in totals.items())
            raise UsageError(
                f"{self._source}: {amounts}, and {rest}: it shards its states (FSDP, ZeRO) or"
                " layers; a plan is for the all_reduces of DistributedDataParallel",
                self._hook_hint() or FSDP_HINT,
            )
        if not reduced:
            raise UsageError(
                f"{self._source}: no all_reduce of gradients in it, of more than {SMALL_BYTES} B of"
                " a floating-point type",
                self._hook_hint() or SHOW_HINT,
            )

    def _bytes_of_comms(self) -> dict[int, int]:
        """The bytes of calls that may be gradients, by communicator."""
        totals: dict[int, int] = defaultdict(int)
        for row in self._pattern.rows:
            if _may_be_gradients(row):
                totals[row.comm] += row.bytes * row.calls
        return totals

    def _hook_hint(self) -> str:
        hook = self._facts.hook
        return f"record the training without its communication hook {hook}" if hook else ""

    def _row(self, call: PatternCall) -> PatternRow:
        return self._pattern.rows[call.row]

    def _calls_on(self, comm: Comm) -> int:
        rows = (self._row(call) for call in self._pattern.calls)
        return sum(_may_be_gradients(row) and row.comm == comm.id for row in rows)

    def _with_buckets(self) -> GradientSteps:
        """The steps on the one communicator whose calls have the elements of the buckets."""
        counts = [elements(bucket) for bucket in self._facts.shapes]
        calls: dict[int, list[PatternCall]] = defaultdict(list)
        for call in self._pattern.calls:
            row = self._row(call)
            if _is_float_reduction(row) and row.count in counts:
                calls[row.comm].append(call)
        steps = {comm: self._runs(own, counts) for comm, own in calls.items()}
        fitting = [comm for comm, own in steps.items() if own]
        if not fitting:
            raise UsageError(
                f"{self._source}: no step in it has all_reduces of the sizes of DDP's"
                f" {counted(len(counts), 'bucket')}, {' + '.join(map(str, counts[:4]))}"
                f"{' + ...' if len(counts) > 4 else ''} elements",
                self._hook_hint() or SHOW_HINT,
            )
        # Activations of tensor parallelism may have as many elements, but of another type.
        whole = [comm for comm in fitting if self._has_all_bytes(steps[comm][0])] or fitting
        if len(whole) > 1:
            raise self._ambiguous(whole, "have calls of the sizes of DDP's buckets")
        return GradientSteps(self._pattern.comms[whole[0]], steps[whole[0]], self._facts.shapes)

    def _runs(self, calls: list[PatternCall], counts: list[int]) -> list[list[PatternCall]]:
        """The runs of calls with these elements. One that lacks a call is left out."""
        steps, at, length = [], 0, len(counts)
        while at + length <= len(calls):
            run = calls[at : at + length]
            if [self._row(call).count for call in run] == counts:
                steps.append(run)
                at += length
            else:
                at += 1
        return steps

    def _of_repeated_sizes(self) -> GradientSteps:
        """The steps of a pattern without DDP's facts: all-reduces that repeat up to the end.

        Only one communicator may all-reduce what can be gradients.
        """
        totals = self._bytes_of_comms()
        largest = max(totals, key=totals.__getitem__)
        comms = [comm for comm in totals if totals[comm] > NEGLIGIBLE * totals[largest]]
        if len(comms) > 1:
            raise self._ambiguous(comms, "all-reduce what may be gradients")
        calls = [
            call
            for call in self._pattern.calls
            if _may_be_gradients(self._row(call)) and self._row(call).comm == largest
        ]
        kinds: dict[tuple[int, str | None], int] = {}
        rows = [self._row(call) for call in calls]
        repeated = step([kinds.setdefault((row.bytes, row.dtype), len(kinds)) for row in rows])
        length, begin = repeated.calls, len(calls) - repeated.calls * repeated.times
        chunks = [
            calls[begin + number * length : begin + (number + 1) * length]
            for number in range(repeated.times)
        ]
        note = (
            "steps are told apart by the calls that repeat up to the end of the record, without"
            " PyTorch's DistributedDataParallel, which busbw_accel.attach needs"
        )
        if length == 1 and not self._facts.parameter_bytes:
            note += "; all have one size, and a step may be several of them"
        return GradientSteps(
            self._pattern.comms[largest], chunks, [[] for _ in range(length)], [note]
        )

    def _ambiguous(self, comms: list[int], what: str) -> UsageError:
        names = [_title(self._pattern.comms[comm]) for comm in comms]
        return UsageError(
            f"{self._source}: {len(names)} communicators {what}: {', '.join(names[:4])}"
            f"{', ...' if len(names) > 4 else ''}",
            "a plan is for one model whose replicas are on all ranks; "
            + (PREDICT_HINT if self._facts.shapes else RECORD_HINT),
        )

    def _sent(self, calls: list[PatternCall]) -> int:
        return sum(self._row(call).bytes for call in calls)

    def _has_all_bytes(self, calls: list[PatternCall]) -> bool:
        """Whether the calls of a step have the bytes of all parameters, if these are known.

        Without shapes, calls of up to SMALL_BYTES are not among them.
        """
        expected = self._facts.parameter_bytes
        allowed = 0.0 if self._facts.shapes else NEGLIGIBLE * expected
        return not expected or abs(self._sent(calls) - expected) <= allowed

    def _require_all_bytes(self, steps: GradientSteps) -> None:
        calls = steps.calls[0]
        if self._has_all_bytes(calls):
            return
        hook = self._facts.hook
        sender = f"its communication hook {hook}" if hook else "a step"
        raise UsageError(
            f"{self._source}: {sender} sends {format_size(self._sent(calls))} by all_reduce, and"
            f" its gradients have {format_size(self._facts.parameter_bytes)}: a plan is for"
            " gradients as DistributedDataParallel sends them",
            self._hook_hint() or SHOW_HINT,
        )

    def _require_all_ranks(self, comm: Comm) -> None:
        world = self._pattern.header.world
        if 0 < comm.ranks < world:
            raise UsageError(
                f"{self._source}: its gradients go over {_title(comm)}, and the job has {world}: a"
                " plan is for a model whose replicas are on all ranks",
                PREDICT_HINT,
            )


def _is_float_reduction(row: PatternRow) -> bool:
    return row.function == GRADIENTS and row.dtype is not None and DTYPES[row.dtype].is_float


def _may_be_gradients(row: PatternRow) -> bool:
    return _is_float_reduction(row) and row.bytes > SMALL_BYTES


def _title(comm: Comm) -> str:
    name = comm.name or str(comm.id)
    return f"{name} of {counted(comm.ranks, 'rank')}" if comm.ranks else name
