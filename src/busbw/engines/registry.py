"""The table of engines: what each is for, whether it can run here, and how it is opened. Nothing is imported before it is needed."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from busbw.core.errors import NoMeasurement, UsageError
from busbw.core.sweep import SweepSpec
from busbw.engines.base import Control, Engine
from busbw.host import nvml


@dataclass(frozen=True, slots=True)
class Opening:
    """What an engine is opened with. `control` joins the communicator's processes, `process` and `local` number this one in the job
    and on its host, `gpus` are the ranks it drives."""

    control: Control
    spec: SweepSpec
    process: int
    local: int
    group: int
    gpus: int
    simulation: dict[str, float]


@dataclass(frozen=True, slots=True)
class EngineRow:
    """One engine. `availability` gives the reason why it cannot run here, or None; `install` what would make it run."""

    name: str
    help: str
    install: str
    availability: Callable[[], str | None]
    open: Callable[[Opening], Engine]
    in_process: bool = False  # all ranks live in one process: no launcher
    nccl: bool = False  # whether its data can move through NCCL


GPU_DEVICES = ("/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-ctrl-gpu")  # the driver's: Linux, WSL, Jetson


def _nccl_available() -> str | None:
    """Cheap on purpose: CUDA starts in the ranks alone, and they say what they lack beyond this."""
    if not any(Path(device).exists() for device in GPU_DEVICES):
        return "no NVIDIA GPU on this machine"
    missing = [package for name, package in (("nccl", "nccl4py"), ("cuda", "cuda-bindings")) if not find_spec(name)]
    if missing:
        return f"{' and '.join(missing)} not installed (pip install 'busbw[cuda13]')"
    return None if gpu_count() else "no GPU is visible (is CUDA_VISIBLE_DEVICES empty?)"


def _open_nccl(opening: Opening) -> Engine:
    from busbw.engines.nccl import NcclEngine

    # Slurm and others can show each process its own GPUs alone; then they count from 0 in every process.
    first = 0 if gpu_count() == opening.gpus else opening.local * opening.gpus
    return NcclEngine(opening.control, opening.spec, range(first, first + opening.gpus), opening.group, opening.process)


def _torch_available() -> str | None:
    return None if find_spec("torch") else "PyTorch is not installed"


def _open_torch(opening: Opening) -> Engine:
    from busbw.engines.torch import TorchEngine

    return TorchEngine(opening.control, opening.spec, opening.local, opening.group, opening.process)


def _mpi_available() -> str | None:
    missing = [name for name in ("mpi4py", "numpy", "ml_dtypes") if not find_spec(name)]
    return f"{' and '.join(missing)} not installed" if missing else None


def _open_mpi(opening: Opening) -> Engine:
    from busbw.engines.mpi import MpiEngine

    comm = getattr(opening.control, "comm", None)
    if comm is None:
        raise NoMeasurement("the mpi engine needs ranks that mpirun or srun started", "start it as `busbw run ... -n 4`, or under mpirun")
    return MpiEngine(comm, opening.process, opening.group)


def _sim_available() -> str | None:
    return None if find_spec("numpy") and find_spec("ml_dtypes") else "numpy and ml_dtypes are not installed"


def _open_sim(opening: Opening) -> Engine:
    from busbw.engines.sim import SimEngine
    from busbw.engines.sim_parameters import check_ranks

    check_ranks(opening.simulation, opening.gpus)
    return SimEngine(opening.gpus, opening.simulation)


ENGINES: tuple[EngineRow, ...] = (
    EngineRow("nccl", "GPUs through NCCL", "pip install 'busbw[cuda13]' (or [cuda12])", _nccl_available, _open_nccl, nccl=True),
    EngineRow(
        "torch", "GPUs (NCCL) or CPUs (Gloo) through PyTorch", "pip install 'busbw[torch]'", _torch_available, _open_torch, nccl=True
    ),
    EngineRow("mpi", "CPUs through MPI", "pip install 'busbw[mpi]'", _mpi_available, _open_mpi),
    EngineRow("sim", "no hardware: a model with noise and faults", "pip install 'busbw[mpi]'", _sim_available, _open_sim, in_process=True),
)
BY_NAME = {row.name: row for row in ENGINES}
AUTO = "auto"
AUTOMATIC = ("nccl", "mpi")  # what is tried, in order, when no engine is named; torch only measures when asked to


def engine(name: str) -> EngineRow:
    """The row called `name`; UsageError when there is none."""
    row = BY_NAME.get(name)
    if row is None:
        raise UsageError(f"--engine: there is no engine '{name}'", f"use one of {', '.join(BY_NAME)}")
    return row


def refuse_network(net: str, name: str) -> None:
    """UsageError where --net is given and the engine called `name` never asks NCCL."""
    if net and not engine(name).nccl:
        able = " or ".join(f"--engine {row.name}" for row in ENGINES if row.nccl)
        raise UsageError(f"--net {net}: engine {name} moves no data through NCCL", f"add {able}, or leave out --net")


def choose(name: str) -> tuple[EngineRow, str]:
    """The engine to use for `--engine NAME` ('' or 'auto': the first that can run), and why GPUs are not used where they are not.

    NoMeasurement when the named engine, or every engine, cannot run here.
    """
    if name not in ("", AUTO):
        row = engine(name)
        reason = row.availability()
        if reason:
            raise NoMeasurement(f"--engine {name} cannot run here: {reason}", row.install)
        return row, ""
    reasons: dict[str, str] = {}
    for row in map(engine, AUTOMATIC):
        reason = row.availability()
        if reason is None:
            return row, "; ".join(reasons.values())
        reasons[row.name] = reason
    every = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    raise NoMeasurement(f"no engine can run here: {every}", "pip install 'busbw[cuda13]' for GPUs, 'busbw[mpi]' for CPUs")


def gpu_count() -> int:
    """GPUs that the nccl engine could use here: those of CUDA_VISIBLE_DEVICES, else all that the driver shows."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return len([name for name in chosen.split(",") if name.strip() and name.strip() != "-1"])
    known = nvml.count()
    if known is not None:
        return known
    from busbw.engines.cuda_runtime import device_count

    return device_count()


def torch_gpus() -> int:
    """GPUs that PyTorch sees here."""
    import torch

    return int(torch.cuda.device_count())


def cpu_ranks() -> int:
    """Local ranks that the CPU engine starts when none are asked for: two, or as many as one processor allows."""
    return 2 if (os.cpu_count() or 1) > 1 else 1
