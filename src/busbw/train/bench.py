"""The benchmark on one rank: first each rank alone, then every method in turn."""

import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import nn

from busbw.host.counters import device_counters
from busbw.launch.control import Control
from busbw.measure.events import EnterPhase
from busbw.train.exchange import Wrapped, still, wrap
from busbw.train.loop import Loop, scaler_for, settle
from busbw.train.methods import Method
from busbw.train.models import Model
from busbw.train.types import ALONE, Training, TrainRun, TrainSpec

SEED = 7
SETTLES = 3  # steps until DDP has rebuilt its buckets and methods have started
# method, round, iteration, samples per second and rank
Report = Callable[[str, int, int, float], None]


class Bench:
    """One training benchmark.

    Every rank creates it and calls the same methods in the same order.
    """

    def __init__(
        self, spec: TrainSpec, model: Model, device: torch.device, control: Control
    ) -> None:
        settle(spec.precision)
        self.spec, self.model, self.device, self.control = spec, model, device, control
        torch.manual_seed(SEED)
        self.net = model.build(spec).to(device)
        self.hosts: list[str] = control.allgather(platform.node())
        sizes = [
            parameter.numel() * parameter.element_size() for parameter in self.net.parameters()
        ]
        count = sum(parameter.numel() for parameter in self.net.parameters())
        self.training = Training(spec, model.unit, count, sum(sizes), len(set(self.hosts)))

    def run(
        self,
        methods: Sequence[Method],
        report: Report,
        done: Callable[[TrainRun], None],
        enter_phase: EnterPhase,
    ) -> None:
        """All rounds. Each round first runs every rank alone."""
        for number in range(self.spec.rounds):
            silent_s = self._silent(
                ALONE, self.loop(still(self.net, self.device, self.spec.bucket_mb)), enter_phase
            )
            alone = self.alone(number, report, enter_phase)
            alone.silent_s = silent_s
            done(alone)
            for method in methods:
                enter_phase("wrap", method.name)
                scaler = scaler_for(self.spec.precision, self.device)
                wrapped = wrap(self.net, method, self.device, self.spec.bucket_mb, scaler)
                loop = self.loop(wrapped.net, scaler)
                with wrapped.silent() as possible:
                    silent_s = self._silent(method.name, loop, enter_phase) if possible else []
                run = self._measured(method.name, number, loop, wrapped, report, enter_phase)
                run.silent_s = alone.silent_s if method.plain else silent_s
                done(run)
                wrapped.close()
                del wrapped, loop

    def alone(self, number: int, report: Report, enter_phase: EnterPhase) -> TrainRun:
        """One round of each rank alone."""
        return self._measured(ALONE, number, self.loop(self.net), None, report, enter_phase)

    def loop(self, net: nn.Module, scaler: torch.amp.GradScaler | None = None) -> Loop:
        """The training loop of `net`, which may be wrapped."""
        return Loop(
            self.spec,
            self.model,
            net,
            self.device,
            scaler or scaler_for(self.spec.precision, self.device),
        )

    def _measured(
        self,
        name: str,
        number: int,
        loop: Loop,
        wrapped: Wrapped | None,
        report: Report,
        enter_phase: EnterPhase,
    ) -> TrainRun:
        spec = self.spec
        enter_phase("warm-up", name)
        loop.timed(spec.warmup)
        loop.rest()
        self.control.barrier()
        seen, counted = 0, wrapped.mark() if wrapped else 0
        steps: list[float] = []
        rates: list[float] = []
        for iteration in range(spec.iters):
            enter_phase("training", f"{name}, iteration {iteration}")
            before, begun = _out_bytes(), time.perf_counter()
            mine = loop.timed(spec.batches)
            took = time.perf_counter() - begun
            seen += _out_bytes() - before  # excludes messages between iterations
            *longest, slowest = self.control.reduce_all([*mine, took], "max")
            steps += longest
            rates.append(spec.batch_size * spec.batches / slowest)
            report(name, number, iteration, rates[-1])
        count = spec.iters * spec.batches
        run = TrainRun(name, number, steps, rates, loss=float(loop.loss.detach()))
        if wrapped is not None:
            run.counted = self.by_host(
                wrapped.sent(self.training.gradients, count, counted, self.training.hosts)
            )
            run.seen = self.control.reduce_all([seen / count], "max")[0]
        return run

    def _silent(self, name: str, loop: Loop, enter_phase: EnterPhase) -> list[float]:
        """Steps without an exchange, each the longest over ranks.

        Gradients are wrong, so parameters are not updated.
        """
        enter_phase("warm-up", f"{name}, over a perfect network")
        with loop.frozen():
            loop.timed(SETTLES)
            loop.rest()
            self.control.barrier()
            enter_phase("training", f"{name}, over a perfect network")
            return self.control.reduce_all(loop.timed(self.spec.batches), "max")

    def by_host(self, mine: float | None) -> float | None:
        """The largest sum over the ranks of a host; None if a rank has no value."""
        values: list[float | None] = self.control.allgather(mine)
        if None in values:
            return None
        return max(
            sum(value or 0.0 for at, value in zip(self.hosts, values, strict=True) if at == host)
            for host in set(self.hosts)
        )


def _out_bytes() -> int:
    """Bytes that this host has sent over all interfaces except loopback.

    Counts slaves instead of bonds, and no RDMA traffic.
    """
    names = device_counters(Path("/proc/net/dev").read_bytes())
    bonds = {name for name in names if Path(f"/proc/net/bonding/{name}").exists()}
    return sum(
        values["tx_bytes"] for name, values in names.items() if name != "lo" and name not in bonds
    )
