"""Reads the environment: the rank, the address of rank 0, and the HOROVOD_* settings."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from busbw.horovod.torch.errors import Refused
from busbw.horovod.variables import PREFIX, RANK_VARIABLES, SETTINGS

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
