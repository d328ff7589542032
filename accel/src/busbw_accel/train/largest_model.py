"""Trains a model by several ways to keep its states.

Each training has its own processes, so one that does not fit ends only itself.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from busbw.core.errors import BusbwError, Exit, UsageError
from busbw.measure.record import encoded, save
from busbw.measure.sink import Sink
from busbw.measure.start import run
from busbw.measure.target import LaunchTarget
from busbw_accel.memory_plan.gpt_shape import GptShape
from busbw_accel.train.kinds import TrainJob, TrainResult
from busbw_accel.train.types import LargestModel, TrainRun, TrainSpec

# The search for the largest model ends when the next model is larger by at most this share.
RELATIVE_PRECISION = 0.02
MAX_TRIES = 24  # the maximum for one method
MAX_LAYERS = 4096


@dataclass(slots=True)
class StatesComparison:
    """Runs `job` with one method at a time.

    `sink` makes the sink of each run; `done` gets the result so far and the new run.
    """

    job: TrainJob
    where: LaunchTarget
    file: Path | None
    sink: Callable[[], Sink]
    done: Callable[[TrainResult, TrainRun], None]
    result: TrainResult | None = None

    def compare(self) -> TrainResult:
        """Run all methods in turn, `rounds` times.

        A method that fails is recorded with its reason.

        Raises:
            BusbwError: no method could be started. It is the error of the first.
        """
        spec, first = self.job.training, None
        for number in range(spec.rounds):
            for method in spec.methods:
                single = msgspec.structs.replace(spec, methods=(method,), rounds=1)
                trained, error = self._train(single)
                trained.round = number
                first = first or error
                if self.result is None:
                    continue
                self.result.training.runs.append(trained)
                self.done(self.result, trained)
                self._save()
        return self._finish(first)

    def largest(self) -> TrainResult:
        """Find the largest model of the same width that trains by each method, for two steps.

        Raises:
            BusbwError: as `compare`.
        """
        first = None
        for method in self.job.training.methods:
            largest, error = self._find_largest(method)
            first = first or error
            if self.result is not None:
                self.result.training.largest.append(largest)
                self._save()
        return self._finish(first)

    def _find_largest(self, method: str) -> tuple[LargestModel, BusbwError | None]:
        """Double the layers until a model does not train, and then halve the gap."""
        spec = msgspec.structs.replace(
            self.job.training, methods=(method,), warmup=1, iters=1, steps=1, rounds=1
        )
        assert spec.states is not None
        shape, fits, refused, error = spec.states.shape, 0, 0, None
        reason = "not found: the search ended first"
        for _ in range(MAX_TRIES):
            layers = _next_layers(shape.layers, fits, refused)
            if layers is None:
                break
            tried = with_layers(spec, layers)
            trained, failure = self._train(tried)
            error = error or failure
            if failure is not None and failure.exit == Exit.USAGE:  # another size does not help
                reason = failure.message
                break
            trained.method = f"{method}, {layers} layers"
            if self.result is not None:
                self.done(self.result, trained)
            if trained.failed:
                refused, reason = layers, trained.failed
            else:
                fits = layers
        best = msgspec.structs.replace(shape, layers=fits)
        count = parameters(with_layers(spec, fits)) if fits else 0
        too_many = parameters(with_layers(spec, refused)) if refused else 0
        return LargestModel(method, best if fits else None, count, too_many, reason), error

    def _train(self, spec: TrainSpec) -> tuple[TrainRun, BusbwError | None]:
        sink = self.sink()
        try:
            run(msgspec.structs.replace(self.job, training=spec), self.where, sink)
            failure = None
        except UsageError:
            raise
        except BusbwError as error:
            failure = error
        result = sink.record.result
        runs: list[TrainRun] = []
        if isinstance(result, TrainResult):
            runs, result.training.runs = result.training.runs, []
            if self.result is None:
                self.result = result
                result.training.spec = self.job.training
            self.result.end = result.end
        if runs:
            return runs[0], None
        reason = failure.message if failure else "ended without a result"
        return TrainRun(spec.methods[0], 0, [], [], failed=reason), failure

    def _finish(self, error: BusbwError | None) -> TrainResult:
        if self.result is None:
            assert error is not None
            raise error
        self.result.complete, self.result.errors = True, []
        self._save()
        return self.result

    def _save(self) -> None:
        if self.file is not None and self.result is not None:
            save(encoded(self.result), self.file)


def with_layers(spec: TrainSpec, layers: int) -> TrainSpec:
    """The same training with another number of layers."""
    assert spec.states is not None
    shape: GptShape = msgspec.structs.replace(spec.states.shape, layers=layers)
    return msgspec.structs.replace(spec, states=msgspec.structs.replace(spec.states, shape=shape))


def parameters(spec: TrainSpec) -> int:
    assert spec.states is not None
    return spec.states.shape.parameters(spec.sequence)


def _next_layers(first: int, fits: int, refused: int) -> int | None:
    """The number of layers to try next; None at the end of the search.

    `fits`: the most layers that trained so far. `refused`: the fewest that did not. 0 for none.
    """
    if not refused:
        layers = 2 * fits or first
        return layers if layers <= MAX_LAYERS else None
    if refused - fits <= max(1, RELATIVE_PRECISION * fits):
        return None
    return (fits + refused) // 2
