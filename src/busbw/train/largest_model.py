"""Trains a model by several ways to keep its states, each in processes of its own: one that does
not fit ends alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from busbw.core.errors import BusbwError, UsageError
from busbw.core.gpt_shape import GptShape
from busbw.measure.launch_plan import Where
from busbw.measure.record import encoded, save
from busbw.measure.sink import Sink
from busbw.measure.start import run
from busbw.train.types import Largest, TrainJob, TrainResult, TrainRun, TrainSpec

# the search for the largest model ends when the next one tried would be larger by at most this
FINENESS = 0.02
TRIES = 24  # at most, for one method
MOST_LAYERS = 4096


@dataclass(slots=True)
class StatesComparison:
    """Runs `job` with one method at a time.

    `sink` makes the sink of each run; `done` gets the result so far and the new run.
    """

    job: TrainJob
    where: Where
    file: Path | None
    sink: Callable[[], Sink]
    done: Callable[[TrainResult, TrainRun], None]
    result: TrainResult | None = None

    def compare(self) -> TrainResult:
        """All methods in turn, `rounds` times. A method that fails is recorded with its reason.

        Raises:
            BusbwError: no method could be started; it is the error of the first.
        """
        spec, first = self.job.training, None
        for number in range(spec.rounds):
            for method in spec.methods:
                run, error = self._train(msgspec.structs.replace(spec, methods=(method,), rounds=1))
                run.round = number
                first = first or error
                if self.result is None:
                    continue
                self.result.training.runs.append(run)
                self.done(self.result, run)
                self._save()
        return self._finish(first)

    def largest(self) -> TrainResult:
        """The largest model of the same width that trains by each method, for two steps.

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

    def _find_largest(self, method: str) -> tuple[Largest, BusbwError | None]:
        """Doubles the layers until a model does not train, then halves the gap."""
        spec = msgspec.structs.replace(
            self.job.training, methods=(method,), warmup=1, iters=1, batches=1, rounds=1
        )
        assert spec.states is not None
        shape, fits, refused, error = spec.states.shape, 0, 0, None
        reason = "not found: the search ended first"
        for _ in range(TRIES):
            layers = _next_layers(shape.layers, fits, refused)
            if layers is None:
                break
            tried = with_layers(spec, layers)
            trained, failure = self._train(tried)
            error = error or failure
            trained.method = f"{method}, {layers} layers"
            if self.result is not None:
                self.done(self.result, trained)
            if trained.failed:
                refused, reason = layers, trained.failed
            else:
                fits = layers
        best = msgspec.structs.replace(shape, layers=fits)
        sizes = [
            parameters(with_layers(spec, layers)) if layers else 0 for layers in (fits, refused)
        ]
        return Largest(method, best if fits else None, sizes[0], sizes[1], reason), error

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
        return (
            TrainRun(
                spec.methods[0],
                0,
                [],
                [],
                failed=failure.message if failure else "ended without a result",
            ),
            failure,
        )

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
    """The same with another number of layers."""
    assert spec.states is not None
    shape: GptShape = msgspec.structs.replace(spec.states.shape, layers=layers)
    return msgspec.structs.replace(spec, states=msgspec.structs.replace(spec.states, shape=shape))


def parameters(spec: TrainSpec) -> int:
    """Of the model."""
    assert spec.states is not None
    return spec.states.shape.parameters(spec.sequence)


def _next_layers(first: int, fits: int, refused: int) -> int | None:
    """The number of layers to try next; None at the end.

    `fits` and `refused` are the best and the worst so far, 0 for none.
    """
    if not refused:
        layers = 2 * fits or first
        return layers if layers <= MOST_LAYERS else None
    if refused - fits <= max(1, FINENESS * fits):
        return None
    return (fits + refused) // 2
