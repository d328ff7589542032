"""NCCL's library, communicators and buffers.

Communicators are opened with the configuration of nccl-tests, after the processes have exchanged
their GPUs and versions. The send and receive buffers of the local GPUs come from ncclMemAlloc, and
are registered with the communicators on request.
"""

import platform
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from busbw.core.errors import NoMeasurement
from busbw.core.host_ranges import listed
from busbw.core.sweep import SweepSpec
from busbw.engines.cuda_runtime import INSTALL, CudaGpu
from busbw.launch.control import Control

SUCCESS, IN_PROGRESS = 0, 7  # ncclResult_t
CTA_POLICY_SINCE = 22700
NVLINK_CENTRIC_SINCE, COLLECTIVE_ALLTOALL_SINCE = 22800, 22800
MAX_P2P_PEERS_SINCE = 23000
MEM_ALLOC_SINCE = 21900
REGISTER_SINCE, SYMMETRIC_SINCE = 21900, 22700
LOCAL, SYMMETRIC = 1, 2  # SweepSpec.local_register
SYMMETRIC_WINDOW = 1  # NCCL_WIN_COLL_SYMMETRIC


@lru_cache(maxsize=1)
def library() -> Any:
    """nccl4py's bindings with the NCCL library loaded; NoMeasurement if either is missing."""
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
    """NCCL's version number as text: 22809 as 2.28.9."""
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"


@dataclass(frozen=True, slots=True)
class Members:
    """The ranks of a communicator.

    `first` is the first rank of this process, `size` the number of ranks. `gpus` has host and bus
    id of each rank in order.
    """

    first: int
    size: int
    gpus: tuple[tuple[str, str], ...]

    def shared_gpus(self) -> str:
        """Text that names the GPUs that several ranks share; '' if no GPU is shared."""
        ranks_by_gpu: dict[tuple[str, str], list[int]] = defaultdict(list)
        for rank, gpu in enumerate(self.gpus):
            ranks_by_gpu[gpu].append(rank)
        shared = [
            f"ranks {_and(ranks)} share GPU {bus} of {host}"
            for (host, bus), ranks in ranks_by_gpu.items()
            if len(ranks) > 1
        ]
        return "; ".join(shared[:4])


def _and(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:-1])) + f" and {numbers[-1]}"


def exchange_members(control: Control, gpus: Sequence[CudaGpu], version: int) -> Members:
    """Exchange the GPUs of all processes; NoMeasurement if their versions of NCCL differ."""
    by_process = control.allgather((platform.node(), version, [gpu.bus for gpu in gpus]))
    hosts_by_version: dict[int, list[str]] = defaultdict(list)
    all_gpus: list[tuple[str, str]] = []
    for host, process_version, buses in by_process:
        if host not in hosts_by_version[process_version]:
            hosts_by_version[process_version].append(host)
        all_gpus += [(host, bus) for bus in buses]
    if len(hosts_by_version) > 1:
        versions = "; ".join(
            f"{version_text(number)} on {listed(sorted(hosts))}"
            for number, hosts in sorted(hosts_by_version.items())
        )
        raise NoMeasurement(
            f"NCCL differs between processes: {versions}",
            "install one version of nvidia-nccl-cu13 (or libnccl2) on every host",
        )
    first = sum(len(buses) for _, _, buses in by_process[: control.process])
    return Members(first, len(all_gpus), tuple(all_gpus))


def configuration(spec: SweepSpec, version: int) -> Any:
    """The ncclConfig_t of nccl-tests; with another one, NCCL takes other paths."""
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
    control: Control, spec: SweepSpec, gpus: Sequence[CudaGpu], members: Members, version: int
) -> list[Any]:
    """A communicator for each local GPU, all initialized in one group.

    NoMeasurement with NCCL's message if that fails.
    """
    nccl, config = library(), configuration(spec, version)
    comms: list[Any] = []
    try:
        own_id = bytes(nccl.get_unique_id()) if control.process == 0 else b""
        unique_id = nccl.UniqueId.from_buffer(bytearray(control.bcast(own_id)))
        if len(gpus) > 1:
            nccl.group_start()
        for number, gpu in enumerate(gpus):
            gpu.activate()
            rank = members.first + number
            comms.append(nccl.comm_init_rank_config(members.size, unique_id, rank, config))
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
    """The error for these local ranks, or for the process without any, with NCCL's last message."""
    where = ""
    if ranks:
        where = f" on rank {ranks[0]}"
    if len(ranks) > 1:
        where = f" on ranks {ranks[0]} to {ranks[-1]}"
    last = ""
    with suppress(Exception):  # the error must be reported even if NCCL has no message for it
        nccl = library()
        last = nccl.get_last_error(comm if comm is not None else nccl.Comm(0)).strip()
    message = f"NCCL failed{where} on {platform.node()}: {error}" + (f"; {last}" if last else "")
    return NoMeasurement(message, "run again with NCCL_DEBUG=WARN to see NCCL's warnings")


class CommBuffers:
    """Pairs of (send, recv) addresses, one per GPU.

    `how` is SweepSpec.local_register, with nccl-tests' fallback on an old NCCL.
    """

    def __init__(
        self, nccl: Any, version: int, gpus: Sequence[CudaGpu], comms: Sequence[Any], how: int
    ) -> None:
        self._nccl, self._version, self._gpus, self._comms = nccl, version, gpus, comms
        self._how = LOCAL if how == SYMMETRIC and version < SYMMETRIC_SINCE else how
        self.pairs: list[tuple[int, int]] = []
        self._registered: list[tuple[Callable[[Any], object], Any]] = []

    @property
    def source(self) -> str:
        """The function that allocates them."""
        return "ncclMemAlloc" if self._version >= MEM_ALLOC_SINCE else "cudaMalloc"

    def allocate(self, size: int) -> None:
        """Allocate and register both buffers of every GPU, of `size` bytes each.

        NoMeasurement if memory is short.
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

    def _new(self, gpu: CudaGpu, size: int) -> int:
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
        """Register one buffer of every GPU.

        Symmetric windows are collective, so that several GPUs of a process need a group.
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
        """Free the buffers, once the communicators are destroyed: these may use them."""
        for gpu, pair in zip(self._gpus, self.pairs, strict=False):
            gpu.activate()
            for address in pair:
                if self._version >= MEM_ALLOC_SINCE:
                    self._nccl.mem_free(address)
                else:
                    gpu.free(address)
        self.pairs = []
