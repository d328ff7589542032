"""Opening and closing NCCL communicators: the library, its version, the members, the
configuration, and error messages.

Send and receive buffers of the local GPUs from ncclMemAlloc, and their registration with the
communicators.
"""

import platform
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
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


MEM_ALLOC_SINCE = 21900
REGISTER_SINCE, SYMMETRIC_SINCE = 21900, 22700
LOCAL, SYMMETRIC = 1, 2  # SweepSpec.local_register
SYMMETRIC_WINDOW = 1  # NCCL_WIN_COLL_SYMMETRIC


class Buffers:
    """Pairs of (send, recv) addresses, one per GPU; `how` is SweepSpec.local_register, with
    nccl-tests' fallback on an old NCCL.
    """

    def __init__(
        self, nccl: Any, version: int, gpus: Sequence[Gpu], comms: Sequence[Any], how: int
    ) -> None:
        self._nccl, self._version, self._gpus, self._comms = nccl, version, gpus, comms
        self._how = LOCAL if how == SYMMETRIC and version < SYMMETRIC_SINCE else how
        self.pairs: list[tuple[int, int]] = []
        self._registered: list[tuple[Callable[[Any], object], Any]] = []

    @property
    def source(self) -> str:
        """Their allocator."""
        return "ncclMemAlloc" if self._version >= MEM_ALLOC_SINCE else "cudaMalloc"

    def allocate(self, size: int) -> None:
        """Allocate and register both buffers of every GPU, of `size` bytes each; NoMeasurement
        when memory is short.
        """
        self.pairs = [(self._new(gpu, size), self._new(gpu, size)) for gpu in self._gpus]
        if self._how not in (LOCAL, SYMMETRIC):
            return
        if self._version < REGISTER_SINCE:
            raise NoMeasurement(
                "-R: this NCCL is older than 2.19 and cannot register buffers",
                "leave out -R, or use a newer NCCL",
            )
        for side in (0, 1):
            self._register([pair[side] for pair in self.pairs], size)

    def _new(self, gpu: Gpu, size: int) -> int:
        if self._version < MEM_ALLOC_SINCE:
            return gpu.allocate(size)
        gpu.activate()
        try:
            return int(self._nccl.mem_alloc(size))
        except self._nccl.NCCLError as error:
            hint = "use a smaller -e, or free the GPU: `nvidia-smi` shows what runs on it"
            raise NoMeasurement(
                f"no buffer of {size} bytes on GPU {gpu.index} ({gpu.bus}) of {platform.node()}:"
                f" {error}",
                hint,
            ) from error

    def _register(self, addresses: Sequence[int], size: int) -> None:
        """One buffer of every GPU.

        A symmetric window is collective, so that several GPUs of a process need a group.
        """
        nccl, grouped = self._nccl, self._how == SYMMETRIC and len(self._gpus) > 1
        try:
            if grouped:
                nccl.group_start()
            for gpu, comm, address in zip(self._gpus, self._comms, addresses, strict=True):
                gpu.activate()
                if self._how == SYMMETRIC:
                    window = nccl.comm_window_register(comm, address, size, SYMMETRIC_WINDOW)
                    self._registered.append((partial(nccl.comm_window_deregister, comm), window))
                else:
                    handle = nccl.comm_register(comm, address, size)
                    self._registered.append((partial(nccl.comm_deregister, comm), handle))
            if grouped:
                nccl.group_end()
        except nccl.NCCLError as error:
            failed = failure(error, self._comms[0], ())
            raise NoMeasurement(f"-R {self._how}: {failed.message}", failed.hint) from error

    def deregister(self) -> None:
        """Undo the registrations; to be called before the communicators are destroyed."""
        for undo, handle in reversed(self._registered):
            undo(handle)
        self._registered.clear()

    def free(self) -> None:
        """Free the buffers; to be called after the communicators, which may use them, are
        destroyed.
        """
        for gpu, pair in zip(self._gpus, self.pairs, strict=False):
            gpu.activate()
            for address in pair:
                if self._version >= MEM_ALLOC_SINCE:
                    self._nccl.mem_free(address)
                else:
                    gpu.free(address)
        self.pairs = []
