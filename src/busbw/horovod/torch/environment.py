"""The environment of a job: who this rank is, and the table of HOROVOD_* variables with what becomes of each.

Names and defaults are those of Horovod's `common.h`, `operations.cc` and `stall_inspector.h` (0.28.1).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from busbw.core.errors import UsageError

PREFIX = "HOROVOD_"
# What becomes of a variable: it is obeyed; it has nothing to act on here, whatever it says; or it asks for what there is not.
HONOURED, WITHOUT_EFFECT, UNSUPPORTED = "honoured", "without effect", "unsupported"


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable. `read` raises ValueError where its words cannot be meant; `quiet` are words that ask for nothing."""

    name: str
    status: str
    meaning: str
    default: str = ""
    read: Callable[[str], object] = str
    quiet: tuple[str, ...] = ()


def _flag(word: str) -> bool:
    return int(word) != 0


def _whole(word: str) -> int:
    if (value := int(word)) < 0:
        raise ValueError(word)
    return value


def _seconds(word: str) -> float:
    if not 0 <= (value := float(word)) < float("inf"):
        raise ValueError(word)
    return value


def _rows(status: str, meanings: Mapping[str, str], quiet: tuple[str, ...] = ()) -> tuple[Variable, ...]:
    return tuple(Variable(PREFIX + name, status, meaning, quiet=quiet) for name, meaning in meanings.items())


VARIABLES = (
    Variable("HOROVOD_RANK", HONOURED, "this rank", read=_whole),
    Variable("HOROVOD_SIZE", HONOURED, "ranks of the job", read=_whole),
    Variable("HOROVOD_LOCAL_RANK", HONOURED, "this rank among those of its host", read=_whole),
    Variable("HOROVOD_LOCAL_SIZE", HONOURED, "ranks of this host", read=_whole),
    Variable("HOROVOD_CROSS_RANK", HONOURED, "this host among those with this local rank", read=_whole),
    Variable("HOROVOD_CROSS_SIZE", HONOURED, "hosts with this local rank", read=_whole),
    Variable("HOROVOD_HOSTNAME", HONOURED, "name of this host"),
    Variable("HOROVOD_GLOO_IFACE", HONOURED, "network interface of Gloo"),
    # Horovod's 30 s are for a thread that does not share Python's lock.
    Variable("HOROVOD_GLOO_TIMEOUT_SECONDS", HONOURED, "seconds until an exchange has failed", "300", _seconds),
    Variable("HOROVOD_START_TIMEOUT", HONOURED, "seconds until all ranks have to be there", "300", _seconds),
    Variable("HOROVOD_FUSION_THRESHOLD", HONOURED, "bytes of tensors that are reduced as one; 0 turns it off", str(128 << 20), _whole),
    Variable("HOROVOD_DISABLE_GROUP_FUSION", HONOURED, "groups are not reduced with others", "0", _flag),
    Variable("HOROVOD_CYCLE_TIME", HONOURED, "milliseconds between exchanges of what is ready", "1", _seconds),
    Variable("HOROVOD_CACHE_CAPACITY", HONOURED, "operations that are known by a bit", "1024", _whole),
    Variable("HOROVOD_DYNAMIC_PROCESS_SETS", HONOURED, "process sets may be added after init", "0", _flag),
    Variable("HOROVOD_STALL_CHECK_DISABLE", HONOURED, "no warning about ranks that others wait for", "0", _flag),
    Variable("HOROVOD_STALL_CHECK_TIME_SECONDS", HONOURED, "seconds until that warning", "60", _seconds),
    Variable("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", HONOURED, "seconds until all gives up instead; 0 is never", "0", _seconds),
    Variable("HOROVOD_TIMELINE", HONOURED, "file of the timeline, or DYNAMIC"),
    Variable("HOROVOD_TIMELINE_MARK_CYCLES", HONOURED, "cycles stand in the timeline", "0", _flag),
    Variable("HOROVOD_HIERARCHICAL_ALLREDUCE", HONOURED, "an optimizer's gradients go in two dimensions", "0", _flag),
    Variable("HOROVOD_TORUS_ALLREDUCE", HONOURED, "an optimizer's gradients go in two dimensions", "0", _flag),
    *_rows(
        WITHOUT_EFFECT,
        {
            "CONTROLLER": "there is one controller",
            "CPU_OPERATIONS": "Gloo works for CPUs",
            "GPU_OPERATIONS": "NCCL works for GPUs",
            "GLOO_RENDEZVOUS_ADDR": "ranks meet at MASTER_ADDR",
            "GLOO_RENDEZVOUS_PORT": "ranks meet at MASTER_PORT",
            "MPI_THREADS_DISABLE": "there is no MPI beside it",
            "NUM_NCCL_STREAMS": "one stream, in one order",
            "BATCH_D2D_MEMCOPIES": "copies are torch's",
            "ENABLE_ASYNC_COMPLETION": "completion on GPUs is always asynchronous",
            "DISABLE_NVTX_RANGES": "there are none",
            "ELASTIC": "torchrun restarts ranks",
            "LOG_LEVEL": "there are warnings alone",
            "LOG_HIDE_TIME": "there are warnings alone",
            "MIXED_INSTALL": "a variable of Horovod's tests",
        },
    ),
    *_rows(
        UNSUPPORTED,
        {
            "HIERARCHICAL_ALLGATHER": "all-gathers in two dimensions",
            "AUTOTUNE": "tuning while training",
            "AUTOTUNE_LOG": "tuning while training",
            "AUTOTUNE_WARMUP_SAMPLES": "tuning while training",
            "AUTOTUNE_STEPS_PER_SAMPLE": "tuning while training",
            "AUTOTUNE_BAYES_OPT_MAX_SAMPLES": "tuning while training",
            "AUTOTUNE_GAUSSIAN_PROCESS_NOISE": "tuning while training",
            "ADASUM_MPI_CHUNK_SIZE": "Adasum",
            "THREAD_AFFINITY": "cores of the threads",
            "ELASTIC_TIMEOUT": "waiting for other hosts",
        },
        quiet=("0",),
    ),
)


@dataclass(frozen=True, slots=True)
class Options:
    """What the variables ask for; times in seconds, sizes in bytes."""

    timeout_s: float
    start_timeout_s: float
    fusion_bytes: int
    group_fusion: bool
    cycle_s: float
    cache_capacity: int
    dynamic_sets: bool
    stall_s: float  # 0: no check
    stall_shutdown_s: float  # 0: never
    timeline: str
    mark_cycles: bool
    two_d: bool


def options(environ: Mapping[str, str]) -> Options:
    """From the environment.

    Raises:
        UsageError: a value that cannot be meant.
    """
    value = {variable.name.removeprefix(PREFIX): _value(variable, environ) for variable in VARIABLES if variable.default}
    return Options(
        timeout_s=value["GLOO_TIMEOUT_SECONDS"] or 300,
        start_timeout_s=value["START_TIMEOUT"] or 300,
        fusion_bytes=value["FUSION_THRESHOLD"],
        group_fusion=not value["DISABLE_GROUP_FUSION"],
        cycle_s=value["CYCLE_TIME"] / 1000,
        cache_capacity=value["CACHE_CAPACITY"],
        dynamic_sets=value["DYNAMIC_PROCESS_SETS"],
        stall_s=0 if value["STALL_CHECK_DISABLE"] else value["STALL_CHECK_TIME_SECONDS"],
        stall_shutdown_s=value["STALL_SHUTDOWN_TIME_SECONDS"],
        timeline=environ.get("HOROVOD_TIMELINE", ""),
        mark_cycles=value["TIMELINE_MARK_CYCLES"],
        two_d=value["HIERARCHICAL_ALLREDUCE"] or value["TORUS_ALLREDUCE"],
    )


def strange(environ: Mapping[str, str]) -> list[str]:
    """Variables that ask for what there is not: unsupported ones that are set to something, and unknown ones."""
    rows = {variable.name: variable for variable in VARIABLES}
    found = []
    for name in sorted(name for name in environ if name.startswith(PREFIX)):
        row = rows.get(name)
        if row is None or (row.status == UNSUPPORTED and environ[name].strip() not in {"", *row.quiet}):
            found.append(name)
    return found


@dataclass(frozen=True, slots=True)
class Place:
    """Who this process is in its job; None where the launcher does not say."""

    rank: int
    size: int
    local: tuple[int, int] | None = None  # rank, size
    cross: tuple[int, int] | None = None
    launcher: str = ""


# Launchers, the most particular first: the variables of rank and size, local rank and size, cross rank and size.
_LAUNCHERS = (
    ("horovodrun", "HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE", "HOROVOD_CROSS_RANK", "HOROVOD_CROSS_SIZE"),
    ("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "", ""),
    ("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "", ""),
    ("MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "", ""),
)


def place(environ: Mapping[str, str]) -> Place:
    """Of this process, from the launcher's variables; alone where there is no launcher.

    Raises:
        UsageError: they cannot be meant.
    """
    for launcher, *names in _LAUNCHERS:
        if names[0] in environ and names[1] in environ:
            rank, size = _pair(environ, names[0], names[1]) or (0, 1)
            return Place(rank, size, _pair(environ, names[2], names[3]), _pair(environ, names[4], names[5]), launcher)
    return Place(0, 1, (0, 1), (0, 1))


def _pair(environ: Mapping[str, str], rank: str, size: str) -> tuple[int, int] | None:
    if rank not in environ or size not in environ:
        return None
    try:
        found = int(environ[rank]), int(environ[size])
    except ValueError:
        found = -1, -1
    if not 0 <= found[0] < found[1]:
        raise UsageError(
            f"{rank}={environ[rank]} and {size}={environ[size]} are no rank and size", "the launcher sets both: do not set them by hand"
        )
    return found


def _value(variable: Variable, environ: Mapping[str, str]) -> Any:
    word = environ.get(variable.name, "").strip() or variable.default
    try:
        return variable.read(word)
    except ValueError:
        raise UsageError(f"{variable.name}={word} cannot be meant: {variable.meaning}", f"leave it out for {variable.default}") from None
