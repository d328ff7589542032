"""The training benchmark on one rank.

In each round, first each rank trains alone, and then all train by every method in turn. A method is
a model under DDP with one way to exchange gradients, whose bytes that leave a host are counted.
"""

import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from busbw.host.port_counters import device_counters
from busbw.launch.control import Control
from busbw.measure.events import EnterPhase
from busbw_accel.attachment import Attachment
from busbw_accel.codecs.base import ring_bytes
from busbw_accel.ddp import attach
from busbw_accel.train import torchft_diloco
from busbw_accel.train.loop import (
    TrainingLoop,
    optimizer_for,
    scaler_for,
    set_matmul_precision,
    synchronize,
)
from busbw_accel.train.methods import Method
from busbw_accel.train.models import Model
from busbw_accel.train.replay import Hook, unchanged
from busbw_accel.train.types import ALONE, DEFAULT_BUCKET_MB, TrainingRuns, TrainRun, TrainSpec

# The share of an fp32 gradient's bytes that torch's hooks send.
SENT_SHARE_BY_HOOK = {"": 1.0, "bf16": 0.5, "fp16": 0.5}
POWERSGD_RANK, POWERSGD_START = 1, 2  # start: steps before it begins, at least 2
ONE_BUCKET_MB = 1e6
SEED = 7
SETTLING_STEPS = 3  # steps until DDP has rebuilt its buckets and methods have started


@dataclass(slots=True)
class WrappedModel:
    """A model under DistributedDataParallel with a method, or one that torchft's DiLoCo trains.

    `hook` exchanges a bucket; it may be DDP's own all-reduce.
    """

    net: nn.Module
    attached: Attachment | None
    method: Method
    hook: Hook
    diloco: torchft_diloco.Diloco | None = None

    def sent(self, gradients: int, steps: int, before: int, hosts: int) -> float | None:
        """This rank's share of the bytes per step that left its host.

        `steps`: the steps since `before` (see `mark`). `gradients`: bytes of a step. None if the
        method does not count bytes: torch's PowerSGD.
        """
        if self.attached is not None:
            return (self.attached.traffic.across - before) / steps
        share, ranks = SENT_SHARE_BY_HOOK.get(self.method.hook), dist.get_world_size()
        if share is None:
            return None
        # A ring leaves each host once; its ranks share those bytes.
        own = ring_bytes(int(gradients * share), ranks) * hosts / ranks / self.method.every
        return own if hosts > 1 else 0.0

    def mark(self) -> int:
        """The bytes counted so far."""
        return self.attached.traffic.across if self.attached is not None else 0

    @contextmanager
    def silent(self) -> Iterator[bool]:
        """Exchange without a network.

        Yields whether the method supports that; torch's hooks and torchft do not.
        """
        if self.attached is None:
            yield False
            return
        before, self.net.broadcast_buffers = self.net.broadcast_buffers, False
        with self.attached.silent():
            yield True
        self.net.broadcast_buffers = before

    def close(self) -> None:
        if self.attached is not None:
            self.attached.close()
        if self.diloco is not None:
            self.diloco.close()


def under_ddp(net: nn.Module, device: torch.device, bucket_mb: float) -> DistributedDataParallel:
    """`net` under DistributedDataParallel. Gradients are views of buckets, which saves copies.

    With DDP's default the first bucket is smaller than the others, as in a script that does not set
    bucket_cap_mb.
    """
    devices = [device.index] if device.type == "cuda" else None
    limit = None if bucket_mb == DEFAULT_BUCKET_MB else bucket_mb
    return DistributedDataParallel(
        net, device_ids=devices, bucket_cap_mb=limit, gradient_as_bucket_view=True
    )


def wrap_without_exchange(
    net: nn.Module, device: torch.device, bucket_mb: float
) -> DistributedDataParallel:
    """`net` under DistributedDataParallel without an exchange."""
    ddp = under_ddp(net, device, bucket_mb)
    ddp.broadcast_buffers = False
    ddp.register_comm_hook(None, unchanged)
    return ddp


def wrap(
    net: nn.Module,
    method: Method,
    device: torch.device,
    bucket_mb: float,
    scaler: torch.amp.GradScaler,
    optimizer: torch.optim.Optimizer | None = None,
) -> WrappedModel:
    """`net` under DistributedDataParallel with the hook of a method.

    `scaler` and `optimizer` are those of the loop. torchft's DiLoCo trains `net` as it is.

    Torch's PowerSGD gets one bucket on CPUs: Gloo's threads call it in any order, and several
    buckets then wait for each other forever.
    """
    if method.torchft:
        assert optimizer is not None
        diloco = torchft_diloco.Diloco(net, device, optimizer)
        return WrappedModel(net, None, method, partial(unchanged, None), diloco)
    single = method.hook == "powersgd" and device.type == "cpu"
    ddp = under_ddp(net, device, ONE_BUCKET_MB if single else bucket_mb)
    if method.settings is not None:
        attached = attach(ddp, method.settings, optimizer=optimizer, scaler=scaler)
        return WrappedModel(ddp, attached, method, attached.exchange)
    if not method.hook:
        return WrappedModel(ddp, None, method, partial(default_hooks.allreduce_hook, None))
    state, hook = hook_of_torch(method.hook)
    ddp.register_comm_hook(state, hook)
    return WrappedModel(ddp, None, method, partial(hook, state))


def hook_of_torch(
    name: str,
) -> tuple[Any, Callable[[Any, Any], torch.futures.Future[torch.Tensor]]]:
    """The state and the hook for register_comm_hook of one of torch's own hooks."""
    if name == "powersgd":
        state = powerSGD_hook.PowerSGDState(
            None, matrix_approximation_rank=POWERSGD_RANK, start_powerSGD_iter=POWERSGD_START
        )
        return state, powerSGD_hook.powerSGD_hook
    return None, getattr(default_hooks, f"{name}_compress_hook")


# Takes method, round, iteration, and samples per second and rank.
Report = Callable[[str, int, int, float], None]


class Bench:
    """One training benchmark.

    Every rank creates it and calls the same methods in the same order.
    """

    def __init__(
        self, spec: TrainSpec, model: Model, device: torch.device, control: Control
    ) -> None:
        set_matmul_precision(spec.precision)
        self.spec, self.model, self.device, self.control = spec, model, device, control
        torch.manual_seed(SEED)
        self.net = model.build(spec).to(device)
        self.hosts: list[str] = control.allgather(platform.node())
        parameters = list(self.net.parameters())
        nbytes = sum(parameter.numel() * parameter.element_size() for parameter in parameters)
        count = sum(parameter.numel() for parameter in parameters)
        self.training = TrainingRuns(spec, model.unit, count, nbytes, len(set(self.hosts)))

    def run(
        self,
        methods: Sequence[Method],
        report: Report,
        finish: Callable[[TrainRun], None],
        enter_phase: EnterPhase,
    ) -> None:
        """Run all rounds. Each round first runs every rank alone.

        `finish` gets each run. `report` gets each iteration.
        """
        if any(method.torchft for method in methods):
            torchft_diloco.check(self.spec.precision)
        for number in range(self.spec.rounds):
            still = wrap_without_exchange(self.net, self.device, self.spec.bucket_mb)
            silent_s = self._run_silent(Method(ALONE), self.loop(still), enter_phase)
            alone = self.alone(number, report, enter_phase)
            alone.silent_s = silent_s
            finish(alone)
            for method in methods:
                enter_phase("wrap", method.name)
                scaler = scaler_for(self.spec.precision, self.device)
                optimizer = optimizer_for(self.net)
                wrapped = wrap(
                    self.net, method, self.device, self.spec.bucket_mb, scaler, optimizer
                )
                loop = self.loop(wrapped.net, scaler, optimizer)
                with wrapped.silent() as possible:
                    silent_s = self._run_silent(method, loop, enter_phase) if possible else []
                run = self._measure(method.name, number, loop, wrapped, report, enter_phase)
                run.silent_s = alone.silent_s if method.plain else silent_s
                finish(run)
                wrapped.close()
                del wrapped, loop

    def alone(self, number: int, report: Report, enter_phase: EnterPhase) -> TrainRun:
        return self._measure(ALONE, number, self.loop(self.net), None, report, enter_phase)

    def loop(
        self,
        net: nn.Module,
        scaler: torch.amp.GradScaler | None = None,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> TrainingLoop:
        """The training loop of `net`, which may be wrapped."""
        scaler = scaler or scaler_for(self.spec.precision, self.device)
        return TrainingLoop(self.spec, self.model, net, self.device, scaler, optimizer)

    def _measure(
        self,
        name: str,
        number: int,
        loop: TrainingLoop,
        wrapped: WrappedModel | None,
        report: Report,
        enter_phase: EnterPhase,
    ) -> TrainRun:
        spec = self.spec
        enter_phase("warm-up", name)
        every = wrapped.method.every if wrapped else 1
        count = _whole_periods(spec.steps, every)
        loop.time_steps(_whole_periods(spec.warmup, every))
        synchronize(self.device)
        self.control.barrier()
        sent_bytes, counted = 0, wrapped.mark() if wrapped else 0
        steps: list[float] = []
        rates: list[float] = []
        for iteration in range(spec.iters):
            enter_phase("training", f"{name}, iteration {iteration}")
            before, begun = _out_bytes(), time.perf_counter()
            steps_s = _means(loop.time_steps(count), every)
            took = time.perf_counter() - begun
            sent_bytes += _out_bytes() - before  # excludes messages between iterations
            *longest, slowest = self.control.reduce_all([*steps_s, took], "max")
            steps += longest
            rates.append(spec.batch_size * count / slowest)
            report(name, number, iteration, rates[-1])
        count *= spec.iters
        run = TrainRun(name, number, steps, rates, loss=float(loop.loss.detach()))
        if wrapped is not None:
            sent = wrapped.sent(self.training.gradients, count, counted, self.training.hosts)
            run.counted = self.by_host(sent)
            run.seen = self.control.reduce_all([sent_bytes / count], "max")[0]
        return run

    def _run_silent(
        self, method: Method, loop: TrainingLoop, enter_phase: EnterPhase
    ) -> list[float]:
        """Run steps without an exchange. Returns the seconds of each on the slowest rank.

        Gradients are wrong, so parameters are not updated.
        """
        every = method.every
        enter_phase("warm-up", f"{method.name}, over a perfect network")
        with loop.frozen_parameters():
            loop.time_steps(_whole_periods(SETTLING_STEPS, every))
            synchronize(self.device)
            self.control.barrier()
            enter_phase("training", f"{method.name}, over a perfect network")
            steps_s = loop.time_steps(_whole_periods(self.spec.steps, every))
            return self.control.reduce_all(_means(steps_s, every), "max")

    def by_host(self, own: float | None) -> float | None:
        """The largest sum over the ranks of a host; None if a rank has no value."""
        values: list[float | None] = self.control.allgather(own)
        if None in values:
            return None
        sums = dict.fromkeys(self.hosts, 0.0)
        for host, value in zip(self.hosts, values, strict=True):
            sums[host] += value or 0.0
        return max(sums.values())


def _whole_periods(steps: int, every: int) -> int:
    """At least `steps`, so many that each part of the model is exchanged equally often."""
    return -(-steps // every) * every


def _means(steps_s: Sequence[float], every: int) -> list[float]:
    """The mean of each `every` steps, since only some of them exchange."""
    return [fmean(steps_s[at : at + every]) for at in range(0, len(steps_s), every)]


def _out_bytes() -> int:
    """Bytes that this host has sent over all interfaces except loopback.

    Counts slaves instead of bonds, and no RDMA traffic.
    """
    names = device_counters(Path("/proc/net/dev").read_bytes())
    bonds = {name for name in names if Path(f"/proc/net/bonding/{name}").exists()}
    counted = [values for name, values in names.items() if name != "lo" and name not in bonds]
    return sum(values["tx_bytes"] for values in counted)
