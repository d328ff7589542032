"""Reads the environment: the rank, the address of rank 0, and the HOROVOD_* settings."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from busbw.launch import environment as launchers
from busbw_accel.horovod.torch.errors import Refused
from busbw_accel.horovod.variables import LAUNCHER_VARIABLES, PREFIX, RANK_VARIABLES, SETTINGS

# Values that select what busbw does in any case.
_IMPLIED = {("HOROVOD_CONTROLLER", "gloo"), ("HOROVOD_CPU_OPERATIONS", "gloo")}
_OFF = ("", "0")
# Each launcher's variable for the ranks of this host, where it has one.
_LOCAL_SIZES = {
    "torchrun": "LOCAL_WORLD_SIZE",
    "torch.distributed": "LOCAL_WORLD_SIZE",
    "Open MPI": "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MPICH": "MPI_LOCALNRANKS",
}


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


def rank_info(environ: Mapping[str, str]) -> RankInfo:
    """This process's rank and size, from HOROVOD_* variables or else from its launcher.

    Without a launcher, the process is the only one.

    Raises:
        UsageError: a rank without a size, or numbers that do not fit.
    """
    cross = [_number(environ, name, -1) for name in ("HOROVOD_CROSS_RANK", "HOROVOD_CROSS_SIZE")]
    if environ.get("HOROVOD_RANK"):
        rank, size = _number(environ, "HOROVOD_RANK"), _number(environ, "HOROVOD_SIZE")
        if not 0 <= rank < size:
            raise Refused(
                f"HOROVOD_RANK={rank} is not a rank of HOROVOD_SIZE={size}",
                "ranks go from 0 to one below the size",
            )
        return RankInfo(
            rank,
            size,
            _number(environ, "HOROVOD_LOCAL_RANK", -1),
            _number(environ, "HOROVOD_LOCAL_SIZE", -1),
            *cross,
        )
    launched = launchers.detect(environ)
    if launched is not None:
        local_size = _number(environ, _LOCAL_SIZES.get(launched.launcher.name, ""), -1)
        local_rank = -1 if launched.local_rank is None else launched.local_rank
        return RankInfo(launched.rank, launched.size, local_rank, local_size, *cross)
    if environ.get("RANK") and environ.get("WORLD_SIZE"):
        raise Refused(
            f"RANK={environ['RANK']} and WORLD_SIZE={environ['WORLD_SIZE']} are set without"
            " MASTER_ADDR",
            "set MASTER_ADDR and MASTER_PORT to rank 0's host and a free port of it, or unset RANK"
            " and WORLD_SIZE",
        )
    return RankInfo(0, 1, 0, 1, 0, 1)


def meeting_point(environ: Mapping[str, str]) -> tuple[str, int] | None:
    """Host and port where rank 0 listens. None: the launcher does not set them."""
    for host, port in (
        ("MASTER_ADDR", "MASTER_PORT"),
        ("HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT"),
    ):
        if environ.get(host) and environ.get(port):
            return environ[host], _number(environ, port)
    return None


def read_options(environ: Mapping[str, str]) -> Options:
    """The settings that the variables select.

    Raises:
        Refused: a value is invalid.
    """
    value = {
        variable.name.removeprefix(PREFIX): variable.value(environ, Refused)
        for variable in SETTINGS
    }
    warn_s = float(str(value["STALL_CHECK_TIME_SECONDS"]))
    fail_s = float(str(value["STALL_SHUTDOWN_TIME_SECONDS"]))
    checks = not value["STALL_CHECK_DISABLE"]
    timeline = str(value["TIMELINE"])
    return Options(
        fusion=int(str(value["FUSION_THRESHOLD"])),
        cycle_s=float(str(value["CYCLE_TIME"])) / 1e3,
        cache=int(str(value["CACHE_CAPACITY"])),
        stall_warn_s=warn_s if checks and warn_s else math.inf,
        stall_fail_s=fail_s if checks and fail_s else math.inf,
        timeout_s=float(str(value["GLOO_TIMEOUT_SECONDS"])),
        timeline="" if timeline == "DYNAMIC" else timeline,
        mark_cycles=bool(value["TIMELINE_MARK_CYCLES"]),
        dynamic_sets=bool(value["DYNAMIC_PROCESS_SETS"]),
        two_d=bool(value["HIERARCHICAL_ALLREDUCE"] or value["TORUS_ALLREDUCE"]),
        always_reduce=bool(value["ELASTIC"]),
    )


def unsupported_variables(environ: Mapping[str, str]) -> list[str]:
    """HOROVOD_* variables that are set but not supported."""
    known = {variable.name for variable in SETTINGS + LAUNCHER_VARIABLES + RANK_VARIABLES}
    requested = [
        name
        for name, value in environ.items()
        if value not in _OFF and (name, value) not in _IMPLIED
    ]
    return sorted(name for name in requested if name.startswith(PREFIX) and name not in known)


def _number(environ: Mapping[str, str], name: str, without: int | None = None) -> int:
    word = environ.get(name, "")
    if not word and without is not None:
        return without
    try:
        return int(word)
    except ValueError:
        raise Refused(
            f"{name}={word} is not a number",
            "have the launcher set it: mpirun, torchrun or horovodrun do",
        ) from None
