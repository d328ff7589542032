"""The benchmark on one rank: alone first, then every method in turn; rank 0 tells what came of each."""

import os
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from busbw.core.training import ALONE, Training, TrainRun, TrainSpec
from busbw.host.counters import device_counters
from busbw.launch.control import Control
from busbw.train.exchange import Wrapped, still, wrap
from busbw.train.loop import Loop, scaler_for, settle
from busbw.train.methods import Method
from busbw.train.models import Model

SEED = 7
SETTLES = 3  # steps until DDP has made its buckets anew, and whatever a method begins with is over
Tell = Callable[[str, int, int, float], None]  # method, round, iteration, samples a second and rank
At = Callable[[str, str], None]


class Bench:
    """One training benchmark; every rank makes it and calls the same in the same order."""

    def __init__(self, spec: TrainSpec, model: Model, device: torch.device, control: Control) -> None:
        settle(spec.precision)
        self.spec, self.model, self.device, self.control = spec, model, device, control
        torch.manual_seed(SEED)
        self.net = model.build(spec).to(device)
        self.hosts: list[str] = control.allgather(platform.node())
        if device.type == "cpu":
            _share_of_cores(self.hosts.count(platform.node()))
        sizes = [parameter.numel() * parameter.element_size() for parameter in self.net.parameters()]
        count = sum(parameter.numel() for parameter in self.net.parameters())
        self.training = Training(spec, model.unit, count, sum(sizes), len(set(self.hosts)))

    def run(self, methods: Sequence[Method], tell: Tell, done: Callable[[TrainRun], None], at: At) -> None:
        """All rounds: each begins with the ranks by themselves."""
        for number in range(self.spec.rounds):
            silent_s = self._silent(ALONE, self.loop(still(self.net, self.device, self.spec.bucket_mb)), at)
            alone = self.alone(number, tell, at)
            alone.silent_s = silent_s
            done(alone)
            for method in methods:
                at("wrap", method.name)
                scaler = scaler_for(self.spec.precision, self.device)
                wrapped = wrap(self.net, method, self.device, self.spec.bucket_mb, scaler)
                loop = self.loop(wrapped.net, scaler)
                with wrapped.silent() as possible:
                    silent_s = self._silent(method.name, loop, at) if possible else []
                run = self._measured(method.name, number, loop, wrapped, tell, at)
                run.silent_s = alone.silent_s if method.as_it_is else silent_s
                done(run)
                wrapped.close()
                del wrapped, loop

    def alone(self, number: int, tell: Tell, at: At) -> TrainRun:
        """Each rank by itself, in one round."""
        return self._measured(ALONE, number, self.loop(self.net), None, tell, at)

    def loop(self, net: nn.Module, scaler: torch.amp.GradScaler | None = None) -> Loop:
        """Steps of the model, wrapped or not."""
        return Loop(self.spec, self.model, net, self.device, scaler or scaler_for(self.spec.precision, self.device))

    def _measured(self, name: str, number: int, loop: Loop, wrapped: Wrapped | None, tell: Tell, at: At) -> TrainRun:
        spec = self.spec
        at("warm-up", name)
        loop.timed(spec.warmup)
        loop.rest()
        self.control.barrier()
        seen, counted = 0, wrapped.mark() if wrapped else 0
        steps: list[float] = []
        rates: list[float] = []
        for iteration in range(spec.iters):
            at("training", f"{name}, iteration {iteration}")
            before, begun = _out_bytes(), time.perf_counter()
            mine = loop.timed(spec.batches)
            took = time.perf_counter() - begun
            seen += _out_bytes() - before  # without what ranks tell each other between iterations
            *longest, slowest = self.control.reduce_all([*mine, took], "max")
            steps += longest
            rates.append(spec.batch_size * spec.batches / slowest)
            tell(name, number, iteration, rates[-1])
        count = spec.iters * spec.batches
        run = TrainRun(name, number, steps, rates, loss=float(loop.loss.detach()))
        if wrapped is not None:
            run.counted = self.by_host(wrapped.sent(self.training.gradients, count, counted, self.training.hosts))
            run.seen = self._most(seen / count)
        return run

    def _silent(self, name: str, loop: Loop, at: At) -> list[float]:
        """Steps in which nothing is exchanged, each the longest over ranks. Gradients are wrong, and nothing is learned from them."""
        at("warm-up", f"{name}, over a perfect network")
        with loop.frozen():
            loop.timed(SETTLES)
            loop.rest()
            self.control.barrier()
            at("training", f"{name}, over a perfect network")
            return self.control.reduce_all(loop.timed(self.spec.batches), "max")

    def by_host(self, mine: float | None) -> float | None:
        """The most of all hosts, of what their ranks say together; None where one cannot say."""
        said: list[float | None] = self.control.allgather(mine)
        if any(one is None for one in said):
            return None
        together: dict[str, float] = dict.fromkeys(self.hosts, 0.0)
        for host, one in zip(self.hosts, said, strict=True):
            together[host] += one or 0.0
        return max(together.values())

    def _most(self, mine: float) -> float:
        values: list[Any] = self.control.allgather(mine)
        return float(max(values))


def _out_bytes() -> int:
    """What this host has sent so far, over all interfaces but loopback; of a bond its slaves alone. Not what RDMA sends."""
    names = device_counters(Path("/proc/net/dev").read_bytes())
    bonds = {name for name in names if Path(f"/proc/net/bonding/{name}").exists()}
    return sum(values["tx_bytes"] for name, values in names.items() if name != "lo" and name not in bonds)


def _share_of_cores(ranks: int) -> None:
    """Ranks of a host share its processors, unless OMP_NUM_THREADS says otherwise: more threads than cores wait for each other."""
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // ranks))
