"""Measures the inputs of a plan on one rank: a step alone, DDP's buckets, and the exchange of each bucket by each method."""

import sys
import time
from collections.abc import Callable, Sequence
from statistics import median

import torch
import torch.distributed as dist

from busbw.accel.settings import HOST
from busbw.core.errors import UsageError
from busbw.core.planning import Bucket, Exchange, Plan, PlanSpec
from busbw.measure.events import EnterPhase, Event, Exchanged, Surveyed, Trained
from busbw.train.bench import SETTLES, Bench
from busbw.train.exchange import under_ddp, wrap
from busbw.train.loop import scaler_for
from busbw.train.methods import Method
from busbw.train.replay import Hook, Recorder, Replayed


def survey(bench: Bench, spec: PlanSpec, methods: Sequence[Method], emit: Callable[[Event], None], enter_phase: EnterPhase) -> None:
    """Measure all parts, and report each when it is done."""
    found = Survey(bench, spec)
    alone = bench.alone(0, lambda *_: None, enter_phase)
    emit(Trained(alone))
    emit(Surveyed(Plan(spec.target, median(alone.steps_s), *found.still(enter_phase))))
    for method in methods:
        try:
            emit(Exchanged(found.exchange(method, enter_phase)))
        except UsageError as error:
            if method.settings is None or method.settings.staging != HOST:
                raise
            if dist.get_rank() == 0:  # the error is the same on every rank
                sys.stderr.write(f"busbw plan: {method.name} is skipped: {error.message}\n")


class Survey:
    """Measurements of one training. Every rank creates it and calls the same methods in the same order."""

    def __init__(self, bench: Bench, spec: PlanSpec) -> None:
        self.bench, self.spec = bench, spec
        self._kept: list[Replayed] = []
        self._room = torch.empty(0)

    def still(self, enter_phase: EnterPhase) -> tuple[float, list[Bucket]]:
        """The step under DDP without an exchange, and its buckets: medians over steps of the slowest rank."""
        bench = self.bench
        enter_phase("training", "DDP without an exchange")
        recorder = Recorder(bench.device)
        net = under_ddp(bench.net, bench.device, bench.spec.bucket_mb)
        net.register_comm_hook(recorder, Recorder.hook)
        net.register_forward_pre_hook(recorder.begin)
        loop, count = bench.loop(net), bench.spec.iters * bench.spec.batches
        loop.timed(SETTLES + bench.spec.warmup)
        steps = loop.timed(count)
        readies = recorder.ready_s(count)
        recorder.keep = True
        loop.timed(1)
        self._kept = recorder.buckets
        self._room = torch.empty_like(max((one.gradient for one in self._kept), key=torch.Tensor.numel))
        # The slowest rank of each step counts, as for a step alone.
        step, *ready = (median(bench.control.reduce_all(list(each), "max")) for each in (steps, *zip(*readies, strict=True)))
        return step, [Bucket(one.gradient.nbytes, when) for one, when in zip(self._kept, ready, strict=True)]

    def exchange(self, method: Method, enter_phase: EnterPhase) -> Exchange:
        """Exchange every bucket separately, several times."""
        bench, spec = self.bench, self.spec
        enter_phase("exchange", method.name)
        wrapped = wrap(bench.net, method, bench.device, bench.spec.bucket_mb, scaler_for(bench.spec.precision, bench.device))
        for _ in range(SETTLES):
            self._replay(wrapped.hook)
        counted = wrapped.mark()
        taken, busy = zip(*(self._replay(wrapped.hook) for _ in range(spec.replays)), strict=True)
        sent = wrapped.sent(bench.training.gradients, spec.replays, counted, bench.training.hosts)
        wrapped.close()
        busy_s = [] if bench.device.type == "cuda" else _medians(busy)
        return Exchange(spec.transport, method.name, method.loss, _medians(taken), busy_s, bench.by_host(sent), method.code)

    def _replay(self, hook: Hook) -> tuple[list[float], list[float]]:
        """Exchange each bucket once. Returns the time of the rank that began last (the others waited for it) and the largest CPU time."""
        took, busy = zip(*(self._alone(hook, bucket) for bucket in self._kept), strict=True)
        return self.bench.control.reduce_all(list(took), "min"), self.bench.control.reduce_all(list(busy), "max")

    def _alone(self, hook: Hook, bucket: Replayed) -> tuple[float, float]:
        """Seconds, and the CPU time of all threads divided by the number of backward's threads."""
        bucket.put_back(self._room)
        self._synchronize()
        self.bench.control.barrier()
        begun, computed = time.perf_counter(), time.process_time()
        hook(bucket).wait()
        self._synchronize()
        return time.perf_counter() - begun, (time.process_time() - computed) / torch.get_num_threads()

    def _synchronize(self) -> None:
        if self.bench.device.type == "cuda":
            torch.cuda.synchronize(self.bench.device)


def _medians(runs: Sequence[Sequence[float]]) -> list[float]:
    """The median of each bucket over runs."""
    return [median(each) for each in zip(*runs, strict=True)]
