"""The benchmark of one way to keep a model's states, on one rank.

Each way runs in its own processes, so that peaks of memory are its own.
"""

import contextlib
import platform
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist

from busbw.core.errors import NoMeasurement, UsageError
from busbw.launch.control import Control
from busbw.measure.events import EnterPhase
from busbw_accel.offloading.host_memory import available
from busbw_accel.offloading.optimizer import StepTimes
from busbw_accel.offloading.state_bytes import STATE_BYTES
from busbw_accel.train.loop import synchronize, time_steps
from busbw_accel.train.states.methods import StateMethod, parse
from busbw_accel.train.states.trainers import Trainer, make_trainer
from busbw_accel.train.types import StatesUse, TrainingRuns, TrainRun, TrainSpec

SAMPLES_SEED = 1
PLAN_FIRST = "busbw plan gpt --memory-plan says before a run what fits"
COMPUTE_BYTES = 4  # of a parameter, at least: its weight and its gradient in bf16
# The errors of malloc and of cudaHostAlloc.
_NO_HOST_MEMORY = ("can't allocate memory", "CUDA error: out of memory")
# Written so that the kernel ends this process first when the host has no memory.
_OOM_FIRST = Path("/proc/self/oom_score_adj")


class StatesBench:
    """One method of a TrainSpec with `states`.

    Every rank creates it and calls the same methods in the same order.
    """

    def __init__(self, spec: TrainSpec, device: torch.device, control: Control) -> None:
        self.spec, self.device, self.control = spec, device, control
        assert spec.states is not None
        (self.method,) = map(parse, spec.methods)
        with contextlib.suppress(OSError):
            _OOM_FIRST.write_text("1000")
        self._available = available()
        _limit_gpu_memory(spec.states.gpu_memory, device)
        self.hosts: list[str] = control.allgather(platform.node())
        parameters = spec.states.shape.parameters(spec.sequence)
        self.training = TrainingRuns(
            spec, "token", parameters, 2 * parameters, len(set(self.hosts))
        )
        generator = torch.Generator().manual_seed(SAMPLES_SEED + dist.get_rank())
        size = (spec.batch_size, spec.sequence + 1)
        tokens = torch.randint(spec.states.shape.vocabulary, size, generator=generator)
        self._inputs = tokens[:, :-1].contiguous().to(device)
        self._targets = tokens[:, 1:].contiguous().to(device)
        self._loss = torch.zeros(())

    def run(self, enter_phase: EnterPhase) -> TrainRun:
        """Run the training.

        Raises:
            NoMeasurement: the model does not fit, or the method's library is missing.
        """
        spec = self.spec
        with _out_of_memory(self.device):
            enter_phase("build", self.method.name)
            if self.device.type == "cpu":
                share = self.hosts.count(platform.node()) / len(self.hosts)
                require_memory(self.method, self.training.parameters * share, self._available)
            stages = make_trainer(spec, self.device, self.method)
            next(stages)
            synchronize(self.device)
            enter_phase("start", self.method.name)
            begun = time.perf_counter()
            trainer = next(stages)
            assert trainer is not None
            synchronize(self.device)
            start_s = time.perf_counter() - begun
            enter_phase("warm-up", self.method.name)
            time_steps(lambda: self._step(trainer), self.device, spec.warmup)
            synchronize(self.device)
            self.control.barrier()
            before, steps = trainer.times(), []
            for iteration in range(spec.iters):
                enter_phase("training", f"{self.method.name}, iteration {iteration}")
                steps += time_steps(lambda: self._step(trainer), self.device, spec.steps)
            synchronize(self.device)
            return self._result(trainer, steps, start_s, before)

    def _step(self, trainer: Trainer) -> None:
        self._loss = trainer.step(self._inputs, self._targets)

    def _result(
        self, trainer: Trainer, own_steps: list[float], start_s: float, before: StepTimes | None
    ) -> TrainRun:
        spec = self.spec
        states = self._memory(trainer, start_s)
        if before is not None:
            self._count(states, before, trainer.times(), len(own_steps))
        trainer.close()
        steps = self.control.reduce_all(own_steps, "max")
        tokens = spec.batch_size * spec.sequence
        parts = [steps[at : at + spec.steps] for at in range(0, len(steps), spec.steps)]
        rates = [tokens * len(part) / sum(part) for part in parts]
        return TrainRun(self.method.name, 0, steps, rates, loss=float(self._loss), states=states)

    def _memory(self, trainer: Trainer, start_s: float) -> StatesUse:
        gpu = reserved = torch_pinned = 0
        if self.device.type == "cuda":
            gpu = torch.cuda.max_memory_allocated(self.device)
            reserved = torch.cuda.max_memory_reserved(self.device)
            torch_pinned = torch.cuda.host_memory_stats().get("allocated_bytes.peak", 0)
        lost = float(self._available - available())
        own = [start_s, float(gpu), float(reserved), lost]
        longest_s, peak_gpu, peak_reserved, lost = self.control.reduce_all(own, "max")
        host = max(self._by_host(memory_bytes("VmHWM")), lost)
        pinned = self._by_host(trainer.pinned + torch_pinned)
        return StatesUse(longest_s, int(peak_gpu), int(peak_reserved), int(host), int(pinned))

    def _count(
        self, states: StatesUse, before: StepTimes, after: StepTimes | None, steps: int
    ) -> None:
        names = ("down_bytes", "up_bytes", "down_s", "update_s", "up_s", "waited_s")
        own = [(getattr(after, name) - getattr(before, name)) / steps for name in names]
        for name, value in zip(names, self.control.reduce_all(own, "max"), strict=True):
            setattr(states, name, value)

    def _by_host(self, own: float) -> float:
        """The largest sum over the ranks of a host."""
        values: list[float] = self.control.allgather(own)
        sums = dict.fromkeys(self.hosts, 0.0)
        for host, value in zip(self.hosts, values, strict=True):
            sums[host] += value
        return max(sums.values())


def memory_bytes(name: str) -> int:
    """Bytes of memory that this process uses (VmRSS), or has used at its peak (VmHWM)."""
    text = Path("/proc/self/status").read_text()
    return next(
        int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith(f"{name}:")
    )


def require_memory(method: StateMethod, parameters: float, available_bytes: int) -> None:
    """Raise NoMeasurement if a host's part of the parameters cannot fit on its CPUs.

    Without this the kernel would end the ranks after minutes, or swap.
    """
    least = (STATE_BYTES if method.row.exact else COMPUTE_BYTES) * parameters
    if least > available_bytes:
        raise NoMeasurement(
            f"does not fit in host memory: on CPUs {method.name} needs at least {least / 1e9:.1f}"
            f" GB of it on a host, and {available_bytes / 1e9:.1f} GB are available",
            "give fewer --params, or name more --hosts",
        )


def _limit_gpu_memory(limit: int, device: torch.device) -> None:
    if not limit:
        return
    if device.type != "cuda":
        raise UsageError(
            "--gpu-memory limits a GPU, and this training runs on CPUs", "leave it out"
        )
    total = torch.cuda.get_device_properties(device).total_memory
    if limit > total:
        raise UsageError(
            f"--gpu-memory is {limit / 1e9:.1f} GB, and the GPU has {total / 1e9:.1f}",
            "give less, or leave it out",
        )
    torch.cuda.set_per_process_memory_fraction(limit / total, device)


@contextlib.contextmanager
def _out_of_memory(device: torch.device) -> Iterator[None]:
    """Raise an error that a model does not fit, in place of torch's long text."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        used = torch.cuda.memory_allocated(device) / 1e9
        first = str(error).split(". ")[0]
        raise NoMeasurement(
            f"does not fit on the GPU: {first}; {used:.1f} GB were in use", PLAN_FIRST
        ) from error
    except (RuntimeError, MemoryError) as error:
        about_memory = any(text in str(error) for text in _NO_HOST_MEMORY)
        if isinstance(error, RuntimeError) and not about_memory:
            raise
        raise NoMeasurement(
            f"does not fit in host memory: {str(error).splitlines()[0]}", PLAN_FIRST
        ) from error
