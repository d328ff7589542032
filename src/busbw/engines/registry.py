"""The table of engines: the purpose and availability of each, and how to open it.

An engine's module is imported when the engine is opened.
"""

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from busbw.core.errors import NoMeasurement, UsageError, unknown
from busbw.core.options import BY_FIELD

if TYPE_CHECKING:
    from busbw.core.sweep import SweepSpec
    from busbw.engines.base import Engine
    from busbw.launch.control import Control

LOG = logging.getLogger(__name__)
# Devices of NVIDIA's driver on Linux, WSL and Jetson.
GPU_DEVICES = ("/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-ctrl-gpu")
ROCM_DEVICE = "/dev/kfd"  # AMD's, which a PyTorch for ROCm drives
NUMPY = {"numpy": "numpy", "ml_dtypes": "ml_dtypes"}  # for the data of verification
NCCL_ONLY = ("stream_null", "local_register", "cta_policy", "memory")
AUTO = "auto"
AUTOMATIC = ("nccl", "torch", "mpi")  # tried in this order when no engine is named

NO_GPU = "no NVIDIA GPU on this machine"
NOT_VISIBLE = "no GPU is visible (is CUDA_VISIBLE_DEVICES empty?)"
INSTALL = "pip install 'busbw[cuda13]'"
OR_CPUS = "(or measure CPUs: --engine mpi)"
FIND_GPU = f"nvidia-smi   {OR_CPUS}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineArguments:
    """The arguments for opening an engine."""

    control: "Control"  # joins the communicator's processes
    spec: "SweepSpec"
    process: int  # number of this one in the job
    local: int  # number of this one on its host
    group: int
    gpus: int  # ranks that it drives
    simulation: dict[str, float]


@dataclass(frozen=True, slots=True)
class EngineRow:
    """One engine."""

    name: str
    help: str
    install: str  # what would make it run
    availability: Callable[[], str | None]  # the reason why it cannot run here, or None
    open: Callable[[EngineArguments], "Engine"]
    in_process: bool = False  # all ranks live in one process: no launcher
    nccl: bool = False  # whether its data can move through NCCL
    # fields of a SweepSpec that it does not use; without options that it refuses when called
    ignores: tuple[str, ...] = ()


def _missing(**packages: str) -> str | None:
    """Names the missing packages among `module=package`; None if all can be imported."""
    missing = [package for module, package in packages.items() if not find_spec(module)]
    return f"{' and '.join(missing)} not installed" if missing else None


def _nccl_available() -> str | None:
    """Why the nccl engine cannot run here.

    This is cheap, because only the ranks start CUDA; they report what else is missing.
    """
    if not any(Path(device).exists() for device in GPU_DEVICES):
        return NO_GPU
    if "CUDA_VISIBLE_DEVICES" in os.environ and not gpu_count():
        return NOT_VISIBLE  # whatever else is missing
    missing = _missing(nccl="nccl4py", cuda="cuda-bindings", **NUMPY)
    if missing:
        return f"{missing} ({INSTALL})"
    return None if gpu_count() else NOT_VISIBLE


def _open_nccl(opening: EngineArguments) -> "Engine":
    from busbw.engines.nccl import NcclEngine

    # Slurm and others can show each process only its own GPUs, which then count from 0.
    first = 0 if gpu_count() == opening.gpus else opening.local * opening.gpus
    devices = range(first, first + opening.gpus)
    return NcclEngine(opening.control, opening.spec, devices, opening.group, opening.process)


def _open_torch(opening: EngineArguments) -> "Engine":
    try:
        from busbw.engines.torch import TorchEngine
    except ImportError as error:
        raise NoMeasurement(
            f"PyTorch cannot be imported: {error}",
            "python -c 'import torch'; a release that --nccl names may be too old for this PyTorch",
        ) from error
    if opening.gpus > 1:
        raise NoMeasurement(
            f"-t and -g ask for {opening.gpus} ranks a process; the torch engine has one",
            "start a process for each GPU",
        )
    return TorchEngine(opening.control, opening.spec, opening.local, opening.group, opening.process)


def _open_mpi(opening: EngineArguments) -> "Engine":
    from busbw.engines.mpi import MpiEngine

    comm = getattr(opening.control, "comm", None)
    if comm is None:
        raise NoMeasurement(
            "the mpi engine needs ranks that mpirun or srun started",
            "start it as `busbw run ... -np 4`, or under mpirun",
            options=["start"],
        )
    return MpiEngine(comm, opening.process, opening.group)


def _open_sim(opening: EngineArguments) -> "Engine":
    from busbw.engines.sim import SimEngine
    from busbw.engines.sim_parameters import check_ranks

    check_ranks(opening.simulation, opening.gpus)
    return SimEngine(opening.gpus, opening.simulation)


ENGINES: tuple[EngineRow, ...] = (
    EngineRow(
        "nccl",
        "GPUs through NCCL",
        f"{INSTALL} (or [cuda12])",
        _nccl_available,
        _open_nccl,
        nccl=True,
    ),
    EngineRow(
        "torch",
        "GPUs (NCCL) or CPUs (Gloo) through PyTorch",
        "pip install 'busbw[torch]'",
        partial(_missing, torch="PyTorch"),
        _open_torch,
        nccl=True,
        ignores=NCCL_ONLY,
    ),
    EngineRow(
        "mpi",
        "CPUs through MPI",
        "pip install 'busbw[mpi]'",
        partial(_missing, mpi4py="mpi4py", **NUMPY),
        _open_mpi,
        ignores=NCCL_ONLY,
    ),
    EngineRow(
        "sim",
        "no hardware: a model with noise and faults",
        "pip install 'busbw[mpi]'",
        partial(_missing, **NUMPY),
        _open_sim,
        in_process=True,
        ignores=(*NCCL_ONLY, "timeout"),
    ),
)
BY_NAME = {row.name: row for row in ENGINES}


def engine(name: str) -> EngineRow:
    """The row called `name`; UsageError if there is none."""
    row = BY_NAME.get(name)
    if row is None:
        names = {known: known for known in BY_NAME}
        raise unknown("engine", name, names, "--engine: ", options=["engine"])
    return row


def is_in_process(name: str) -> bool:
    """Whether engine `name` runs all ranks in one process; UsageError for an unknown one."""
    return name not in ("", AUTO) and engine(name).in_process


def refuse_network(net: str, name: str) -> None:
    """UsageError if --net is given and engine `name` moves no data through NCCL."""
    if net and not engine(name).nccl:
        able = " or ".join(f"--engine {row.name}" for row in ENGINES if row.nccl)
        raise UsageError(
            f"--net {net}: engine {name} moves no data through NCCL",
            f"add {able}, or leave out --net",
            options=["engine"],
        )


def ignored_options(spec: "SweepSpec", name: str, *, strict: bool = True) -> list[str]:
    """The options that differ from their defaults and that engine `name` does not use.

    They have the form `--memory 1`, or `-M 1` without `strict`.
    """
    rows = [BY_FIELD[field] for field in engine(name).ignores]
    return [
        f"{row.name(strict=strict)} {getattr(spec, row.field)}"
        for row in rows
        if getattr(spec, row.field) != row.default
    ]


def refuse_ignored(spec: "SweepSpec", name: str) -> None:
    """UsageError if the sweep has options that engine `name` does not use."""
    ignored = ignored_options(spec, name)
    if ignored:
        able_rows = [row for row in ENGINES if not ignored_options(spec, row.name)]
        able = " or ".join(f"--engine {row.name}" for row in able_rows)
        message = f"{', '.join(ignored)}: not used by engine {name}"
        raise UsageError(message, f"leave it out, or add {able}")


def choose_for(name: str, *, elsewhere: bool) -> tuple[EngineRow | None, str]:
    """As `choose`, for ranks that may be `elsewhere`.

    A named engine need not run here then, and None leaves `auto` to the ranks (a login node has no
    GPUs).
    """
    if not elsewhere:
        return choose(name)
    return (None if name in ("", AUTO) else engine(name)), ""


def choose(name: str) -> tuple[EngineRow, str]:
    """The engine to use for `--engine NAME`, and a note if it is not the best one for GPUs.

    For '' or 'auto' it is the first of AUTOMATIC that can run and, on a machine with GPUs, reaches
    them. NoMeasurement if the named engine, or each of these, cannot.
    """
    if name in ("", AUTO):
        return _choose_automatically()
    row = engine(name)
    reason = row.availability()
    if reason:
        message = f"--engine {name} cannot run here: {reason}"
        hint = FIND_GPU if reason in (NO_GPU, NOT_VISIBLE) else row.install
        raise NoMeasurement(message, hint, options=["engine"])
    return row, ""


def _choose_automatically() -> tuple[EngineRow, str]:
    against_nccl = engine("nccl").availability()
    if against_nccl is None:
        return engine("nccl"), ""
    against_torch = engine("torch").availability() or _why_no_torch_gpu()
    if against_torch is None:
        return engine("torch"), f"measuring through PyTorch: nccl: {against_nccl}"
    if against_nccl != NO_GPU:
        hint = FIND_GPU if against_nccl == NOT_VISIBLE else f"{INSTALL}   {OR_CPUS}"
        raise NoMeasurement(
            f"no engine reaches the GPUs here: nccl: {against_nccl}; torch: {against_torch}",
            hint,
            options=["engine"],
        )
    against_mpi = engine("mpi").availability()
    if against_mpi is None:
        return engine("mpi"), f"measuring on CPUs: {against_nccl}"
    raise NoMeasurement(
        f"no engine can run here: nccl: {against_nccl}; mpi: {against_mpi}",
        f"{INSTALL} for GPUs, 'busbw[mpi]' for CPUs",
    )


def _why_no_torch_gpu() -> str | None:
    """Why the installed PyTorch reaches no GPU here."""
    try:
        return None if torch_gpus() else "PyTorch sees no GPU"
    except (ImportError, OSError) as error:
        return f"PyTorch cannot be imported: {error}"


def gpu_count() -> int:
    """The number of GPUs that the nccl engine could use here.

    These are the GPUs of CUDA_VISIBLE_DEVICES, or else all that the driver shows.
    """
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return len([name for name in chosen.split(",") if name.strip() and name.strip() != "-1"])
    from busbw.host import nvml

    known = nvml.count()
    if known is not None:
        return known
    from busbw.engines.cuda_runtime import device_count

    return device_count()


def torch_gpus() -> int:
    """The number of GPUs that PyTorch sees here.

    If no driver is loaded PyTorch is not asked, because importing it takes seconds.
    """
    if not any(Path(device).exists() for device in (*GPU_DEVICES, ROCM_DEVICE)):
        return 0
    import torch

    return int(torch.cuda.device_count())


def cpu_ranks() -> int:
    """The number of local ranks that the CPU engine starts by default: two, or one on one core."""
    return 2 if (os.cpu_count() or 1) > 1 else 1
