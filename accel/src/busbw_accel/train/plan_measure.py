"""Measures the inputs of a plan on one rank, in rounds.

They are a step of the rank alone, DDP's buckets, and the exchange of each bucket by each method.
"""

import dataclasses
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, median

import torch
import torch.distributed as dist
from msgspec.structs import replace

from busbw.core.errors import UsageError
from busbw.measure.events import EnterPhase, Event
from busbw.model.buckets import Bucket
from busbw_accel.local_steps import LocalSteps
from busbw_accel.settings import HOST, Settings
from busbw_accel.train.bench import SETTLING_STEPS, Bench, under_ddp, wrap
from busbw_accel.train.kinds import Surveyed, Trained
from busbw_accel.train.loop import LEARNING_RATE, optimizer_for, scaler_for, synchronize
from busbw_accel.train.methods import Method
from busbw_accel.train.plan_types import (
    BUCKETS_MB,
    BucketLayout,
    ExchangeRound,
    LayoutRound,
    MeasuredExchange,
    Plan,
    PlanRun,
    PlanSpec,
)
from busbw_accel.train.replay import Hook, Recorder, ReplayedBucket
from busbw_accel.train.types import DEFAULT_BUCKET_MB


def survey(
    bench: Bench,
    spec: PlanSpec,
    methods: Sequence[Method],
    emit: Callable[[Event], None],
    enter_phase: EnterPhase,
) -> None:
    """Measure all parts in each round, and report the plan so far after each exchange."""
    measurements = Survey(bench, spec, methods)
    for number in range(bench.spec.rounds):
        alone = bench.alone(number, lambda *_: None, enter_phase)
        emit(Trained(alone))
        measurements.begin(median(alone.steps_s), enter_phase)
        emit(Surveyed(measurements.plan()))
        for method, bucket_mb in measurements.ways():
            measurements.exchange(method, bucket_mb, enter_phase)
            emit(Surveyed(measurements.plan()))


class Survey:
    """Measurements of one training.

    Every rank creates it and calls the same methods in the same order.
    """

    def __init__(self, bench: Bench, spec: PlanSpec, methods: Sequence[Method]) -> None:
        self.bench, self.spec, self.methods = bench, spec, list(methods)
        self._run = PlanRun(spec.transport, [], [])
        self._exchanges: list[MeasuredExchange] = []
        self._replayed: dict[float, list[ReplayedBucket]] = {}
        self._memory = torch.empty(0)
        # Local steps that differ in `every` or `delay` have the same exchange, measured once.
        self._changes: dict[Settings, tuple[int, ExchangeRound, float | None]] = {}

    def begin(self, alone_s: float, enter_phase: EnterPhase) -> None:
        """Begin a round: measure steps under DDP without an exchange, for all bucket sizes.

        Bucket sizes that give the same buckets as another size are left out. `alone_s`: a step of
        each rank alone in this round.
        """
        own_mb = self.bench.spec.bucket_mb
        if not self._run.layouts:
            plain = any(method.plain for method in self.methods)
            sizes = [own_mb, *(size for size in BUCKETS_MB if plain and size != own_mb)]
        else:
            sizes = [layout.bucket_mb for layout in self._run.layouts]
        self._run.alone_s.append(alone_s)
        for size in sizes:
            self._measure_still(size, enter_phase)
        largest = max(
            bucket.gradient.numel() for buckets in self._replayed.values() for bucket in buckets
        )
        if self._memory.numel() < largest:
            self._memory = self._replayed[own_mb][0].gradient.new_empty(largest)

    def ways(self) -> Iterable[tuple[Method, float | None]]:
        """The methods to exchange by, with bucket sizes (None: that of the training).

        Plain DDP comes first, with each bucket size, and then the other methods.
        """
        other_sizes = [layout.bucket_mb for layout in self._run.layouts[1:]]
        plain = [method for method in self.methods if method.plain]
        yield from ((method, size) for method in plain for size in (None, *other_sizes))
        yield from ((method, None) for method in list(self.methods) if not method.plain)

    def plan(self) -> Plan:
        run, rounds = self._run, self._run.layouts[0].rounds
        ready = _means([_ready_times(layout_round) for layout_round in rounds])
        sizes = [bucket.nbytes for bucket in rounds[0].buckets]
        buckets = [Bucket(nbytes, when) for nbytes, when in zip(sizes, ready, strict=True)]
        alone_s = fmean(run.alone_s)
        still_s = fmean(layout_round.still_s for layout_round in rounds)
        spec, as_if = self.spec, list(self.spec.as_if)
        return Plan(spec.target, alone_s, still_s, buckets, self._exchanges, [run], as_if)

    def _measure_still(self, bucket_mb: float, enter_phase: EnterPhase) -> None:
        """Measure the step under DDP without an exchange, and when its buckets are ready.

        The times are medians over steps, of the slowest rank of each step.
        """
        bench, layouts = self.bench, self._run.layouts
        self._replayed.pop(bucket_mb, None)  # so that memory holds one copy at a time
        enter_phase("training", f"DDP without an exchange, buckets of {bucket_mb:g} MB")
        recorder = Recorder(bench.device, copy=bucket_mb == bench.spec.bucket_mb)
        net = under_ddp(bench.net, bench.device, bucket_mb)
        net.register_comm_hook(recorder, Recorder.hook)
        net.register_forward_pre_hook(recorder.begin)
        loop, count = bench.loop(net), bench.spec.iters * bench.spec.steps
        loop.time_steps(max(SETTLING_STEPS, bench.spec.warmup))
        recorder.keep = True
        loop.time_steps(1)
        recorder.keep = False
        sizes = [bucket.nbytes for bucket in recorder.buckets]
        layout = next((layout for layout in layouts if layout.bucket_mb == bucket_mb), None)
        if layout is None and sizes in map(_bucket_sizes, layouts):
            return
        steps = loop.time_steps(count)
        readies = recorder.ready_s(count)
        self._replayed[bucket_mb] = recorder.buckets
        # The slowest rank of each step counts, as for a step alone.
        step, *ready = (
            median(bench.control.reduce_all(list(times), "max"))
            for times in (steps, *zip(*readies, strict=True))
        )
        buckets = [Bucket(nbytes, when) for nbytes, when in zip(sizes, ready, strict=True)]
        measured = LayoutRound(step, buckets)
        if layout is None:
            layouts.append(BucketLayout(bucket_mb, [measured]))
        else:
            layout.rounds.append(measured)

    def exchange(self, method: Method, bucket_mb: float | None, enter_phase: EnterPhase) -> None:
        """Exchange every bucket separately, several times.

        A method that a rank does not support is left out from then on.
        """
        size = self.bench.spec.bucket_mb if bucket_mb is None else bucket_mb
        enter_phase("exchange", f"{method.name}, buckets of {size:g} MB")
        try:
            measured, sent = self._measure_method(method, size)
        except UsageError as error:
            if method.settings is None or method.settings.staging != HOST:
                raise
            self.methods.remove(method)
            if dist.get_rank() == 0:  # the error is the same on every rank
                sys.stderr.write(f"busbw plan: {method.name} is skipped: {error.message}\n")
            return
        exchange = self._record_of(method, bucket_mb, sent)
        rounds = exchange.rounds
        rounds.append(measured)
        exchange.bucket_s = _means([exchange_round.bucket_s for exchange_round in rounds])
        exchange.busy_s = _means([exchange_round.busy_s for exchange_round in rounds])

    def _record_of(
        self, method: Method, bucket_mb: float | None, sent: float | None
    ) -> MeasuredExchange:
        """The record of a method with a bucket size, which is new in the first round."""
        for exchange in self._exchanges:
            if (exchange.method, exchange.bucket_mb) == (method.name, bucket_mb):
                return exchange
        code = method.code if bucket_mb is None else bucket_code(bucket_mb)
        exchange = MeasuredExchange(
            self.spec.transport,
            method.name,
            method.loss,
            [],
            [],
            sent,
            code,
            bucket_mb=bucket_mb,
            local=method.local,
        )
        self._exchanges.append(exchange)
        return exchange

    def _measure_method(
        self, method: Method, bucket_mb: float
    ) -> tuple[ExchangeRound, float | None]:
        """Replay the exchange of all buckets, or of the parameters.

        Returns the times, and the bytes per step that leave a host.
        """
        if method.settings is None or method.every == 1:
            return self._measure(method, bucket_mb)
        settings, number = alike(method.settings), len(self._run.alone_s)
        if self._changes.get(settings, (0,))[0] != number:
            same = Method(method.name, settings=settings)
            self._changes[settings] = (number, *self._measure(same, bucket_mb))
        _, measured, sent = self._changes[settings]
        return measured, None if sent is None else sent / method.every

    def _measure(self, method: Method, bucket_mb: float) -> tuple[ExchangeRound, float | None]:
        """Replay the exchange of all buckets, and in local steps of the parameters.

        Returns the medians over the replays of a round, and the bytes of an exchange that leave a
        host.
        """
        bench, spec, buckets = self.bench, self.spec, self._replayed[bucket_mb]
        scaler = scaler_for(bench.spec.precision, bench.device)
        optimizer = optimizer_for(bench.net)
        wrapped = wrap(bench.net, method, bench.device, bucket_mb, scaler, optimizer)
        for _ in range(SETTLING_STEPS if len(self._run.alone_s) == 1 else method.settles):
            self._replay(wrapped.hook, buckets)
        local = wrapped.attached if isinstance(wrapped.attached, LocalSteps) else None
        if local:
            optimizer.zero_grad(set_to_none=True)
            optimizer.step()  # local steps begin before it, with parameters that all ranks share
            self._exchange_change(local, optimizer, buckets)
        counted = wrapped.mark()
        took, busy = zip(
            *(self._replay(wrapped.hook, buckets) for _ in range(spec.iters)), strict=True
        )
        on_cpu = bench.device.type == "cpu"
        measured = ExchangeRound(_medians(took), _medians(busy) if on_cpu else [])
        if local:
            took_s, busy_s = _medians(
                [self._exchange_change(local, optimizer, buckets) for _ in range(spec.iters)]
            )
            measured = replace(measured, change_s=took_s, change_busy_s=busy_s if on_cpu else 0.0)
        sent = wrapped.sent(bench.training.gradients, spec.iters, counted, bench.training.hosts)
        wrapped.close()
        return measured, bench.by_host(sent)

    def _exchange_change(
        self,
        attached: LocalSteps,
        optimizer: torch.optim.Optimizer,
        buckets: Sequence[ReplayedBucket],
    ) -> list[float]:
        """Exchange how parameters change in a step of SGD by the recorded gradients.

        Returns the seconds and the CPU time as `_replay` does.
        """
        with torch.no_grad():
            for bucket in buckets:
                bucket.put_back(self._memory)
                pairs = zip(bucket.parameters(), bucket.gradients(), strict=True)
                for parameter, gradient in pairs:
                    parameter.sub_(gradient, alpha=LEARNING_RATE)

        def exchange() -> None:
            optimizer.step()  # without gradients it changes nothing; attach counts it
            attached.exchange_now()

        took, busy = self._timed(exchange)
        control = self.bench.control
        return [control.reduce_all([took], "min")[0], control.reduce_all([busy], "max")[0]]

    def _replay(
        self, hook: Hook, buckets: Sequence[ReplayedBucket]
    ) -> tuple[list[float], list[float]]:
        """Exchange each bucket once.

        Returns, for each bucket, the time of the rank that began last (the others waited for it)
        and the largest CPU time.
        """
        control = self.bench.control

        def exchange(bucket: ReplayedBucket) -> tuple[float, float]:
            bucket.put_back(self._memory)
            return self._timed(lambda: hook(bucket).wait())

        took, busy = zip(*map(exchange, buckets), strict=True)
        return control.reduce_all(list(took), "min"), control.reduce_all(list(busy), "max")

    def _timed(self, exchange: Callable[[], object]) -> tuple[float, float]:
        """The seconds of an exchange, and the CPU time of all threads divided by the number of
        backward's threads.
        """
        synchronize(self.bench.device)
        self.bench.control.barrier()
        begun, computed = time.perf_counter(), time.process_time()
        exchange()
        synchronize(self.bench.device)
        took, busy = time.perf_counter() - begun, time.process_time() - computed
        return took, busy / torch.get_num_threads()


def bucket_code(bucket_mb: float) -> str:
    """The line of Python that makes DDP's buckets this large."""
    limit = "" if bucket_mb == DEFAULT_BUCKET_MB else f", bucket_cap_mb={bucket_mb:g}"
    return f"model = DistributedDataParallel(model{limit})"


def alike(settings: Settings) -> Settings:
    """Settings of local steps whose exchange of all parameters takes as long as with these."""
    return dataclasses.replace(settings, every=2 * settings.fragments, delay=0, mix=Settings().mix)


def _ready_times(layout_round: LayoutRound) -> list[float]:
    return [bucket.ready_s for bucket in layout_round.buckets]


def _bucket_sizes(layout: BucketLayout) -> list[int]:
    return [bucket.nbytes for bucket in layout.rounds[0].buckets]


def _medians(runs: Sequence[Sequence[float]]) -> list[float]:
    """The median of each bucket over runs."""
    return [median(values) for values in zip(*runs, strict=True)]


def _means(rounds: Sequence[Sequence[float]]) -> list[float]:
    """The mean of each bucket over the rounds with as many buckets as the first round.

    DDP may divide gradients differently in another round.
    """
    alike = [values for values in rounds if len(values) == len(rounds[0])]
    return [fmean(column) for column in zip(*alike, strict=True)]
