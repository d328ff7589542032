"""Reads the environment: the rank, the address of rank 0, and the HOROVOD_* settings."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from busbw.accel.light import Switch as Variable
from busbw.accel.light import whole
from busbw.horovod.torch.errors import Refused

PREFIX = "HOROVOD_"


def _flag(word: str) -> bool:
    return bool(int(word))


def _seconds(word: str) -> float:
    value = float(word)
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(word)
    return value


SETTINGS = (
    Variable("HOROVOD_FUSION_THRESHOLD", "134217728", "fuse all-reduces up to this size; 0: never", "bytes", whole),
    Variable("HOROVOD_CYCLE_TIME", "1", "pause between exchanges", "milliseconds", _seconds),
    Variable("HOROVOD_CACHE_CAPACITY", "1024", "cached operations; 0: no cache", "a number", whole),
    Variable("HOROVOD_STALL_CHECK_DISABLE", "0", "no warnings about operations that wait for ranks", "0 or 1", _flag),
    Variable("HOROVOD_STALL_CHECK_TIME_SECONDS", "60", "warn about operations that wait for ranks longer than this", "seconds", _seconds),
    Variable("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "0", "fail operations that wait longer than this; 0: never", "seconds", _seconds),
    # Longer than Horovod's 30 s: a rank answers from a Python thread, which a long call into C can hold up.
    Variable("HOROVOD_GLOO_TIMEOUT_SECONDS", "120", "a rank without an answer for this long is lost", "seconds", _seconds),
    Variable("HOROVOD_TIMELINE", "", "file for rank 0's trace; DYNAMIC: as start_timeline says", "a file name"),
    Variable("HOROVOD_TIMELINE_MARK_CYCLES", "0", "also write exchanges to the trace", "0 or 1", _flag),
    Variable("HOROVOD_DYNAMIC_PROCESS_SETS", "0", "process sets can be added and removed", "0 or 1", _flag),
    Variable("HOROVOD_HIERARCHICAL_ALLREDUCE", "0", "an optimizer's gradients: inside hosts, then across", "0 or 1", _flag),
    Variable("HOROVOD_TORUS_ALLREDUCE", "0", "as HOROVOD_HIERARCHICAL_ALLREDUCE", "0 or 1", _flag),
    Variable("HOROVOD_ELASTIC", "0", "reduce gradients even with a single rank", "0 or 1", _flag),
)
RANK_VARIABLES = (
    Variable("HOROVOD_RANK", "", "this process's rank"),
    Variable("HOROVOD_SIZE", "", "number of ranks"),
    Variable("HOROVOD_LOCAL_RANK", "", "this process's index on its host"),
    Variable("HOROVOD_LOCAL_SIZE", "", "ranks of this host"),
    Variable("HOROVOD_CROSS_RANK", "", "this host's index among hosts with this local rank"),
    Variable("HOROVOD_CROSS_SIZE", "", "number of those hosts"),
    Variable("HOROVOD_HOSTNAME", "", "this host, as other ranks name it"),
    Variable("HOROVOD_GLOO_RENDEZVOUS_ADDR", "", "where rank 0 listens, if MASTER_ADDR is not set"),
    Variable("HOROVOD_GLOO_RENDEZVOUS_PORT", "", "its port"),
    Variable("HOROVOD_GLOO_IFACE", "", "network interface of CPU operations, if GLOO_SOCKET_IFNAME is not set"),
)
# Values that ask for the behavior that busbw has anyway.
_GIVEN = {("HOROVOD_CONTROLLER", "gloo"), ("HOROVOD_CPU_OPERATIONS", "gloo")}
_OFF = ("", "0")


@dataclass(frozen=True, slots=True)
class Options:
    """The values of `SETTINGS`. Times are in seconds, sizes in bytes."""

    fusion: int
    cycle_s: float
    cache: int
    stall_warn_s: float  # infinite: never
    stall_fail_s: float  # infinite: never
    timeout_s: float
    timeline: str
    mark_cycles: bool
    dynamic_sets: bool
    two_d: bool
    always_reduce: bool


@dataclass(frozen=True, slots=True)
class RankInfo:
    """A process's rank in the job and on its host. -1: not set by the launcher."""

    rank: int
    size: int
    local_rank: int = -1
    local_size: int = -1
    cross_rank: int = -1
    cross_size: int = -1


# Each launcher's variables for rank, size, local rank and local size. The first launcher found is used.
_LAUNCHERS = (
    ("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
)


def rank_info(environ: Mapping[str, str]) -> RankInfo:
    """This process's rank and size. Without a launcher: a single process.

    Raises:
        Refused: a rank without a size, or numbers that do not fit.
    """
    for rank, size, local_rank, local_size in _LAUNCHERS:
        if environ.get(rank):
            found = RankInfo(
                _number(environ, rank),
                _number(environ, size),
                *(_number(environ, name, -1) for name in (local_rank, local_size, "HOROVOD_CROSS_RANK", "HOROVOD_CROSS_SIZE")),
            )
            if not 0 <= found.rank < found.size:
                raise Refused(f"{rank}={found.rank} is not a rank of {size}={found.size}", "ranks go from 0 to one below the size")
            return found
    return RankInfo(0, 1, 0, 1, 0, 1)


def meeting_point(environ: Mapping[str, str]) -> tuple[str, int] | None:
    """Host and port where rank 0 listens. None: the launcher does not set them."""
    for host, port in (("MASTER_ADDR", "MASTER_PORT"), ("HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT")):
        if environ.get(host) and environ.get(port):
            return environ[host], _number(environ, port)
    return None


def options(environ: Mapping[str, str]) -> Options:
    """The settings.

    Raises:
        Refused: a value that is invalid.
    """
    value = {variable.name.removeprefix(PREFIX): variable.value(environ, Refused) for variable in SETTINGS}
    warn, fail = float(str(value["STALL_CHECK_TIME_SECONDS"])), float(str(value["STALL_SHUTDOWN_TIME_SECONDS"]))
    timeline = str(value["TIMELINE"])
    return Options(
        fusion=int(str(value["FUSION_THRESHOLD"])),
        cycle_s=float(str(value["CYCLE_TIME"])) / 1e3,
        cache=int(str(value["CACHE_CAPACITY"])),
        stall_warn_s=math.inf if value["STALL_CHECK_DISABLE"] or not warn else warn,
        stall_fail_s=math.inf if value["STALL_CHECK_DISABLE"] or not fail else fail,
        timeout_s=float(str(value["GLOO_TIMEOUT_SECONDS"])),
        timeline="" if timeline == "DYNAMIC" else timeline,
        mark_cycles=bool(value["TIMELINE_MARK_CYCLES"]),
        dynamic_sets=bool(value["DYNAMIC_PROCESS_SETS"]),
        two_d=bool(value["HIERARCHICAL_ALLREDUCE"] or value["TORUS_ALLREDUCE"]),
        always_reduce=bool(value["ELASTIC"]),
    )


def unsupported(environ: Mapping[str, str]) -> list[str]:
    """HOROVOD_* variables that are set but not supported."""
    known = {variable.name for variable in SETTINGS + RANK_VARIABLES}
    asked = (item for item in environ.items() if item[0].startswith(PREFIX) and item[1] not in _OFF and item not in _GIVEN)
    return sorted(name for name, _ in asked if name not in known)


def _number(environ: Mapping[str, str], name: str, without: int | None = None) -> int:
    word = environ.get(name, "")
    if not word and without is not None:
        return without
    try:
        return int(word)
    except ValueError:
        raise Refused(f"{name}={word} is not a number", "have the launcher set it: mpirun, torchrun or horovodrun do") from None
