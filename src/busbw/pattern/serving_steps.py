"""Adds up the steps of an inference server: which kernels they launched, and how long they took.

A kernel belongs to the step in whose marker it was launched, on the marker's thread; launches of a
thread without markers belong to the step that its process is in. All kernels of a CUDA graph have
the launch of the graph. Where a trace has no launches, a kernel belongs to the marker of the GPU's
own track in which it starts.
"""

from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import NamedTuple

from busbw.core.serving import PHASES, PhaseSteps, Quartiles, ServingSteps, StepCalls
from busbw.pattern.gpu_time import covered


class Sent(NamedTuple):
    """What a kernel of communication is; `kernel` is its name, `function` '' if none is stated."""

    function: str
    library: str
    kernel: str
    bytes: int | None = None


class Range(NamedTuple):
    """A marker from its start to its end; `place` is its thread, or its GPU's stream."""

    place: tuple[Hashable, Hashable]  # process and thread; GPU and stream
    at_us: float
    end_us: float
    server: str
    phase: str


class LaunchedKernel(NamedTuple):
    """A kernel; `launch` is the process, thread and time of its launch, None if unknown."""

    gpu: Hashable
    at_us: float
    time_us: float
    launch: tuple[Hashable, Hashable, float] | None
    sent: Sent | None  # None for a kernel that does not communicate


_StepOf = Callable[[LaunchedKernel], Range | None]  # the marker of the step of a kernel


class _Ranges:
    """The outermost of the ranges of one thread, process or GPU, in the order of time."""

    def __init__(self, ranges: Iterable[Range], *, in_parts: bool) -> None:
        """`in_parts`: a marker may be several ranges, one for each stream of a GPU."""
        self._ranges: list[Range] = []
        for one in sorted(ranges, key=lambda one: (one.at_us, -one.end_us)):
            last = self._ranges[-1] if self._ranges else None
            if last is None or one.at_us >= last.end_us:
                self._ranges.append(one)
            elif in_parts and one.phase == last.phase:
                self._ranges[-1] = last._replace(end_us=max(last.end_us, one.end_us))
        self._starts = [one.at_us for one in self._ranges]

    def at(self, at_us: float) -> Range | None:
        """The range at this time."""
        index = bisect_right(self._starts, at_us) - 1
        if index < 0 or at_us > self._ranges[index].end_us:
            return None
        return self._ranges[index]


def _grouped(
    ranges: Sequence[Range], key: Callable[[Range], Hashable], *, in_parts: bool = False
) -> dict[Hashable, _Ranges]:
    groups: dict[Hashable, list[Range]] = defaultdict(list)
    for one in ranges:
        groups[key(one)].append(one)
    return {name: _Ranges(group, in_parts=in_parts) for name, group in groups.items()}


def _by_launch(ranges: Sequence[Range]) -> _StepOf:
    """Finds the marker in which a kernel was launched."""
    threads = _grouped(ranges, lambda one: one.place)
    processes = _grouped(ranges, lambda one: one.place[0])

    def step(kernel: LaunchedKernel) -> Range | None:
        if kernel.launch is None:
            return None
        process, thread, at_us = kernel.launch
        found = threads.get((process, thread)) or processes.get(process)
        return found.at(at_us) if found else None

    return step


def _by_track(ranges: Sequence[Range]) -> _StepOf:
    """Finds the marker of the GPU's own track in which a kernel starts."""
    gpus = _grouped(ranges, lambda one: one.place[0], in_parts=True)

    def step(kernel: LaunchedKernel) -> Range | None:
        found = gpus.get(kernel.gpu)
        return found.at(kernel.at_us) if found else None

    return step


@dataclass(slots=True)
class _EqualKernels:
    """Equal kernels of communication in all steps of a phase."""

    times_us: "array[float]" = field(default_factory=lambda: array("d"))
    sizes: "array[int]" = field(default_factory=lambda: array("q"))


@dataclass(slots=True)
class _StepsOfPhase:
    """The figures of the steps of a phase, one of each for a step."""

    duration_us: "array[float]" = field(default_factory=lambda: array("d"))
    kernels_us: "array[float]" = field(default_factory=lambda: array("d"))
    communication_us: "array[float]" = field(default_factory=lambda: array("d"))
    exposed_us: "array[float]" = field(default_factory=lambda: array("d"))
    share: "array[float]" = field(default_factory=lambda: array("d"))
    calls: dict[Sent, _EqualKernels] = field(default_factory=lambda: defaultdict(_EqualKernels))

    def add(self, kernels: Sequence[LaunchedKernel]) -> None:
        """Add a step with these kernels, at least one."""
        spans = [(one.at_us, one.at_us + one.time_us) for one in kernels]
        others = [span for span, one in zip(spans, kernels, strict=True) if one.sent is None]
        total_us = sum(one.time_us for one in kernels)
        sent_us = sum(one.time_us for one in kernels if one.sent)
        self.duration_us.append(max(end for _, end in spans) - min(start for start, _ in spans))
        self.kernels_us.append(total_us)
        self.communication_us.append(sent_us)
        self.exposed_us.append(covered(spans) - covered(others))
        self.share.append(sent_us / total_us if total_us else 0.0)
        for one in kernels:
            if one.sent:
                self._add_call(one.sent, one.time_us)

    def _add_call(self, sent: Sent, time_us: float) -> None:
        kernel = "" if sent.function else sent.kernel
        calls = self.calls[Sent(sent.function, sent.library, kernel)]
        calls.times_us.append(time_us)
        if sent.bytes is not None:
            calls.sizes.append(sent.bytes)

    def summary(self, phase: str) -> PhaseSteps:
        steps = len(self.share)
        calls = [
            StepCalls(
                sent.function,
                sent.library,
                len(found.times_us) / steps,
                median(found.times_us),
                sum(found.times_us),
                sent.kernel,
                round(median(found.sizes)) if found.sizes else None,
            )
            for sent, found in self.calls.items()
        ]
        return PhaseSteps(
            phase,
            steps,
            _quartiles(self.duration_us),
            _quartiles(self.kernels_us),
            _quartiles(self.communication_us),
            _quartiles(self.exposed_us),
            _quartiles(self.share),
            sorted(calls, key=lambda found: -found.total_us),
        )


class ServedSteps:
    """Adds up the steps of all ranks."""

    def __init__(self) -> None:
        self._phases: dict[str, _StepsOfPhase] = defaultdict(_StepsOfPhase)
        self._servers: set[str] = set()
        self._gpus: set[Hashable] = set()
        self._outside_us = 0.0
        self._sent_outside_us = 0.0

    def add(
        self,
        process: Hashable,
        on_host: Sequence[Range],
        on_gpu: Sequence[Range],
        kernels: Sequence[LaunchedKernel],
    ) -> None:
        """Add the kernels of a rank to the steps in whose markers they are."""
        for step_of in (_by_launch(on_host), _by_track(on_gpu)):
            steps: dict[tuple[Range, Hashable], list[LaunchedKernel]] = defaultdict(list)
            outside = []
            for kernel in kernels:
                step = step_of(kernel)
                if step is None:
                    outside.append(kernel)
                else:
                    steps[step, kernel.gpu].append(kernel)
            if steps:
                break
        self._outside_us += sum(one.time_us for one in outside)
        self._sent_outside_us += sum(one.time_us for one in outside if one.sent)
        for (step, gpu), held in steps.items():
            self._phases[step.phase].add(held)
            self._servers.add(step.server)
            self._gpus.add((process, gpu))

    def total(self) -> ServingSteps | None:
        """The steps by their phases; None if no kernel belongs to a step."""
        if not self._phases:
            return None
        phases = [self._phases[phase].summary(phase) for phase in PHASES if phase in self._phases]
        return ServingSteps(
            " and ".join(sorted(self._servers)),
            len(self._gpus),
            phases,
            self._outside_us,
            self._sent_outside_us,
        )


def _quartiles(values: Sequence[float]) -> Quartiles:
    if len(values) < 2:
        return Quartiles(values[0], values[0], values[0])
    low, middle, high = quantiles(values, n=4, method="inclusive")
    return Quartiles(middle, low, high)
