"""Opening and closing NCCL communicators: the library, its version, the members, the
configuration, and error messages.
"""

import platform
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from busbw.core.errors import NoMeasurement
from busbw.core.sweep import SweepSpec
from busbw.engines.cuda_runtime import INSTALL, Gpu
from busbw.launch.control import Control

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
        raise NoMeasurement(
            f"NCCL needs the package nccl4py, which cannot be imported: {error}", INSTALL
        ) from error
    if not hasattr(nccl, "Comm"):
        raise NoMeasurement(
            f"nccl4py for NCCL {nccl.__version__} is too old: busbw needs nccl4py 0.6", INSTALL
        )
    try:
        nccl.get_version()
    except Exception as error:  # the loader's errors have no common base
        raise NoMeasurement(
            f"the NCCL library cannot be loaded: {error}",
            f"{INSTALL}, or set LD_LIBRARY_PATH to libnccl.so.2",
        ) from error
    return nccl


def version_text(version: int) -> str:
    """22809 as 2.28.9."""
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"


@dataclass(frozen=True, slots=True)
class Members:
    """The ranks of a communicator: this process' first, their number, and (host, bus id) of each
    in order.
    """

    first: int
    size: int
    gpus: tuple[tuple[str, str], ...]

    def shared_gpus(self) -> str:
        """Text that names the GPUs that several ranks share; empty when no GPU is shared."""
        ranks: dict[tuple[str, str], list[int]] = defaultdict(list)
        for rank, gpu in enumerate(self.gpus):
            ranks[gpu].append(rank)
        shared = [
            f"ranks {_and(who)} share GPU {bus} of {host}"
            for (host, bus), who in ranks.items()
            if len(who) > 1
        ]
        return "; ".join(shared[:4])


def _and(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:-1])) + f" and {numbers[-1]}"


def meet(control: Control, gpus: Sequence[Gpu], version: int) -> Members:
    """Exchange the GPUs of all processes; NoMeasurement when their versions of NCCL differ."""
    mine = (platform.node(), version, [gpu.bus for gpu in gpus])
    everyone = control.allgather(mine)
    hosts: dict[int, list[str]] = defaultdict(list)
    for host, other, _ in everyone:
        if host not in hosts[other]:
            hosts[other].append(host)
    if len(hosts) > 1:
        seen = "; ".join(
            f"{version_text(other)} on {', '.join(sorted(names)[:8])}"
            for other, names in sorted(hosts.items())
        )
        raise NoMeasurement(
            f"NCCL differs between processes: {seen}",
            "install one version of nvidia-nccl-cu13 (or libnccl2) on every host",
        )
    every = tuple((host, bus) for host, _, buses in everyone for bus in buses)
    first = sum(len(buses) for _, _, buses in everyone[: control.process])
    return Members(first, len(every), every)


def configuration(spec: SweepSpec, version: int) -> Any:
    """The ncclConfig_t of nccl-tests; NCCL takes other paths with another."""
    config = library().Config()
    if version >= NVLINK_CENTRIC_SINCE:
        config.nvlink_centric_sched = 1
    if version >= MAX_P2P_PEERS_SINCE and spec.collective == "sendrecv":
        config.max_p2p_peers = 2
    newest_policy = 2 if version >= NVLINK_CENTRIC_SINCE else 1
    if version >= CTA_POLICY_SINCE and 0 <= spec.cta_policy <= newest_policy:
        config.cta_policy = spec.cta_policy
    return config


def open_all(
    control: Control, spec: SweepSpec, gpus: Sequence[Gpu], members: Members, version: int
) -> list[Any]:
    """A communicator for each local GPU, all initialized in one group; NoMeasurement with NCCL's
    message when that fails.
    """
    nccl, config = library(), configuration(spec, version)
    comms: list[Any] = []
    try:
        mine = bytes(nccl.get_unique_id()) if control.process == 0 else b""
        shared = nccl.UniqueId.from_buffer(bytearray(control.bcast(mine)))
        if len(gpus) > 1:
            nccl.group_start()
        for number, gpu in enumerate(gpus):
            gpu.activate()
            comms.append(
                nccl.comm_init_rank_config(members.size, shared, members.first + number, config)
            )
        if len(gpus) > 1:
            nccl.group_end()
    except nccl.NCCLError as error:
        raise _cannot_open(error, members, len(gpus)) from error
    for number, comm in enumerate(comms):
        if not comm.handle:
            raise NoMeasurement(
                f"NCCL gave rank {members.first + number} no communicator",
                "set NCCL_DEBUG=WARN to see why",
            )
    return comms


def _cannot_open(error: Exception, members: Members, local: int) -> NoMeasurement:
    failed = failure(error, None, [members.first + number for number in range(local)])
    shared = members.shared_gpus()
    if not shared:
        return failed
    hint = (
        "give every rank its own GPU (fewer ranks per host, or unset NCCL_TESTS_DEVICE), or each"
        " rank its own NCCL_HOSTID"
    )
    return NoMeasurement(f"{failed.message}; {shared}", hint)


def failure(error: Exception | str, comm: Any, ranks: Sequence[int]) -> NoMeasurement:
    """The error for these local ranks (none: the whole process), with NCCL's last message and
    the host.
    """
    who = (
        ""
        if not ranks
        else f" on rank {ranks[0]}"
        if len(ranks) == 1
        else f" on ranks {ranks[0]} to {ranks[-1]}"
    )
    last = ""
    with suppress(Exception):  # the error must be reported even if NCCL has no message for it
        nccl = library()
        last = nccl.get_last_error(comm if comm is not None else nccl.Comm(0)).strip()
    message = f"NCCL failed{who} on {platform.node()}: {error}" + (f"; {last}" if last else "")
    return NoMeasurement(message, "run again with NCCL_DEBUG=WARN to see NCCL's warnings")
