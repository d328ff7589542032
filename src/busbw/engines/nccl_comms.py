"""Opening and closing NCCL communicators: the library, its version, who takes part, the configuration, and errors in plain words."""

import platform
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from busbw.core.errors import NoMeasurement
from busbw.core.sweep import SweepSpec
from busbw.engines.base import Control
from busbw.engines.cuda_runtime import INSTALL, Gpu

SUCCESS, IN_PROGRESS = 0, 7  # ncclResult_t
CTA_POLICY_SINCE = 22700
NVLINK_CENTRIC_SINCE, COLLECTIVE_ALLTOALL_SINCE = 22800, 22800
MAX_P2P_PEERS_SINCE = 23000


@lru_cache(maxsize=1)
def library() -> Any:
    """nccl4py's bindings with the NCCL library loaded; NoMeasurement when either is missing."""
    try:
        from nccl.bindings import nccl
    except ImportError as error:
        raise NoMeasurement(f"NCCL needs the package nccl4py, which cannot be imported: {error}", INSTALL) from error
    if not hasattr(nccl, "Comm"):
        raise NoMeasurement(f"nccl4py for NCCL {nccl.__version__} is too old: busbw needs nccl4py 0.6", INSTALL)
    try:
        nccl.get_version()
    except Exception as error:  # the loader's errors have no common base
        raise NoMeasurement(f"the NCCL library cannot be loaded: {error}", f"{INSTALL}, or set LD_LIBRARY_PATH to libnccl.so.2") from error
    return nccl


def version_text(version: int) -> str:
    """22809 as 2.28.9."""
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"


@dataclass(frozen=True, slots=True)
class Party:
    """Who takes part: this process' first rank, the number of ranks, and (host, bus id) of each in order."""

    first: int
    size: int
    places: tuple[tuple[str, str], ...]

    def doubled(self) -> str:
        """The GPUs that several ranks share, in words; empty where there are none."""
        ranks: dict[tuple[str, str], list[int]] = defaultdict(list)
        for rank, place in enumerate(self.places):
            ranks[place].append(rank)
        shared = [f"ranks {_and(who)} share GPU {bus} of {host}" for (host, bus), who in ranks.items() if len(who) > 1]
        return "; ".join(shared[:4])


def _and(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:-1])) + f" and {numbers[-1]}"


def meet(control: Control, gpus: Sequence[Gpu], version: int) -> Party:
    """Tell all processes who is there; NoMeasurement when they run different versions of NCCL."""
    mine = (platform.node(), version, [gpu.bus for gpu in gpus])
    everyone = control.allgather(mine)
    hosts: dict[int, list[str]] = defaultdict(list)
    for host, other, _ in everyone:
        if host not in hosts[other]:
            hosts[other].append(host)
    if len(hosts) > 1:
        seen = "; ".join(f"{version_text(other)} on {', '.join(sorted(names)[:8])}" for other, names in sorted(hosts.items()))
        raise NoMeasurement(
            f"NCCL differs between processes: {seen}", "install one version of nvidia-nccl-cu13 (or libnccl2) on every host"
        )
    places = tuple((host, bus) for host, _, buses in everyone for bus in buses)
    first = sum(len(buses) for _, _, buses in everyone[: control.rank])
    return Party(first, len(places), places)


def configuration(spec: SweepSpec, version: int) -> Any:
    """ncclConfig_t with what nccl-tests sets: without it the same collective takes other paths and gives other numbers."""
    config = library().Config()
    if version >= NVLINK_CENTRIC_SINCE:
        config.nvlink_centric_sched = 1
    if version >= MAX_P2P_PEERS_SINCE and spec.collective == "sendrecv":
        config.max_p2p_peers = 2
    newest_policy = 2 if version >= NVLINK_CENTRIC_SINCE else 1
    if version >= CTA_POLICY_SINCE and 0 <= spec.cta_policy <= newest_policy:
        config.cta_policy = spec.cta_policy
    return config


def open_all(control: Control, spec: SweepSpec, gpus: Sequence[Gpu], party: Party, version: int) -> list[Any]:
    """A communicator for each local GPU, all initialised in one group; NoMeasurement with NCCL's words when that fails."""
    nccl, config = library(), configuration(spec, version)
    comms: list[Any] = []
    try:
        mine = bytes(nccl.get_unique_id()) if control.rank == 0 else b""
        shared = nccl.UniqueId.from_buffer(bytearray(control.bcast(mine)))
        if len(gpus) > 1:
            nccl.group_start()
        for number, gpu in enumerate(gpus):
            gpu.activate()
            comms.append(nccl.comm_init_rank_config(party.size, shared, party.first + number, config))
        if len(gpus) > 1:
            nccl.group_end()
    except nccl.NCCLError as error:
        raise _cannot_open(error, party, len(gpus)) from error
    for number, comm in enumerate(comms):
        if not comm.handle:
            raise NoMeasurement(f"NCCL gave rank {party.first + number} no communicator", "set NCCL_DEBUG=WARN to see why")
    return comms


def _cannot_open(error: Exception, party: Party, local: int) -> NoMeasurement:
    told = failure(error, None, [party.first + number for number in range(local)])
    doubled = party.doubled()
    if not doubled:
        return told
    hint = "give every rank a GPU of its own (fewer ranks a host, or unset NCCL_TESTS_DEVICE), or a different NCCL_HOSTID to each rank"
    return NoMeasurement(f"{told.message}; {doubled}", hint)


def failure(error: Exception | str, comm: Any, ranks: Sequence[int]) -> NoMeasurement:
    """NCCL's error on these local ranks (none: the whole process), with its last words and the host."""
    who = "" if not ranks else f" on rank {ranks[0]}" if len(ranks) == 1 else f" on ranks {ranks[0]} to {ranks[-1]}"
    words = ""
    with suppress(Exception):  # the error itself must be told even where NCCL has no words for it
        nccl = library()
        words = nccl.get_last_error(comm if comm is not None else nccl.Comm(0)).strip()
    message = f"NCCL failed{who} on {platform.node()}: {error}" + (f"; {words}" if words else "")
    return NoMeasurement(message, "run again with NCCL_DEBUG=WARN to see what NCCL did before")
