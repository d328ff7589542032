"""Scattered blocks through NIXL, with which inference engines move a KV cache between hosts.

A transfer is one-sided: a rank reads the blocks out of the memory of the rank before it, or writes
them into that of the rank after it. NIXL's UCX plugin moves the data; UCX_TLS and UCX_NET_DEVICES
say over what.
"""

import ctypes
import importlib
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from math import inf
from typing import Any

import torch

from busbw.core.errors import NoMeasurement, TimedOut
from busbw.core.result import EngineLibrary
from busbw.core.sweep import SweepSpec
from busbw.engines.base import CollectiveCall, Launch, buffer_slice
from busbw.engines.torch_blocks import BlocksEngine
from busbw.launch.control import Control

READ, WRITE = "READ", "WRITE"
PLUGIN = "UCX"
DONE, RUNNING = "DONE", "PROC"  # of NIXL's states
ARRIVED = b"busbw"  # the notification that a transfer has ended
WAIT_SHARE = 0.8  # of --limit, so that the error names what NIXL waits for
# Of the host. A module of UCX for EFA loads it. Where NIXL 1.5 has loaded its own copy first, the
# host's is bound to that, and its destructor ends the process by SIGSEGV.
HOSTS_LIBNL = "libnl-route-3.so.200"


def module_name() -> str:
    """The package of NIXL for PyTorch's CUDA, or on CPUs the one that is installed; '' without."""
    cuda = torch.version.cuda
    names = (f"nixl_cu{cuda.split('.')[0]}",) if cuda else ("nixl_cu13", "nixl_cu12")
    return next((name for name in names if find_spec(name)), "")


def why_missing() -> str:
    """What to install; '' if nothing is missing."""
    if module_name():
        return ""
    major = (torch.version.cuda or "13").split(".")[0]
    return f"NIXL is not installed on {platform.node()}: pip install nixl-cu{major}"


class NixlEngine(BlocksEngine):
    """Reads or writes each block by a descriptor of its own, all in one transfer.

    The descriptors are prepared once, and posted again for each call. A call ends when the own
    blocks have moved, and the other neighbor says that it is done with this rank's memory. It is
    complete when it returns, on GPUs too: NIXL does not use CUDA streams.
    """

    def __init__(
        self,
        control: Control,
        spec: SweepSpec,
        place: tuple[int, int, int],
        blocks: int,
        operation: str,
        limit_s: float,
    ) -> None:
        """`place` is the number of the process on its host, of its group, and in the job. The job
        ends after `limit_s` without a completed operation; 0: never.

        NoMeasurement with fewer than two ranks, or if NIXL cannot start.
        """
        if control.processes < 2:
            raise NoMeasurement("one rank has no other to move blocks to", "start two ranks")
        super().__init__(control, spec, place, blocks, packed=False)
        self.asynchronous = False
        self._operation, self._wait_s = operation, WAIT_SHARE * limit_s or inf
        self._posted, self._arrived, self._failed = 0, 0, ""
        self._handles: list[Any] = []
        os.environ.setdefault("NIXL_LOG_LEVEL", "WARN")
        with suppress(OSError):  # a host without it
            ctypes.CDLL(HOSTS_LIBNL)
        api = importlib.import_module(f"{module_name()}._api")
        bindings = vars(importlib.import_module(f"{module_name()}._bindings")).values()
        self._errors = tuple(
            kind for kind in bindings if isinstance(kind, type) and issubclass(kind, Exception)
        )
        with self._named("start"):
            # Waiting moves the data: a thread for it would take the core of a rank on CPUs.
            config = api.nixl_agent_config(enable_prog_thread=False, backends=[PLUGIN])
            self._agent = api.nixl_agent(f"{operation} {self._process}", config)
        if PLUGIN not in self._agent.backends:
            raise NoMeasurement(f"NIXL has no {PLUGIN} plugin", "unset NIXL_PLUGIN_DIR")

    def library(self) -> EngineLibrary:
        """PyTorch, and NIXL with its plugin."""
        found = super().library()
        try:
            number = version(module_name().replace("_", "-"))
        except PackageNotFoundError:
            number = "unknown"
        found.versions["nixl"] = f"{number} {PLUGIN}"
        return found

    def allocate(self, send_bytes: int, recv_bytes: int) -> None:
        """Allocate and register both buffers."""
        super().allocate(send_bytes, recv_bytes)
        buffers = [self._buffers["send"], self._buffers["recv"]]
        with self._named("register_memory"):
            self._registered = self._agent.register_memory(buffers, backends=[PLUGIN])
            self._metadata = self._agent.get_agent_metadata()

    def share(self) -> None:
        """Exchange where the buffers are."""
        places = {name: tensor.data_ptr() for name, tensor in self._buffers.items()}
        own = self._agent.name, self._metadata, places, self._gpu or 0
        of_ranks = self._control.allgather(own)
        rank = self.ranks[0]
        before, after = of_ranks[rank - 1], of_ranks[(rank + 1) % self.size]
        peer, self._other = (before, after[0]) if self._operation == READ else (after, before[0])
        self._peer, metadata, self._peer_places, self._peer_gpu = peer
        with self._named("add_remote_agent"):
            self._agent.add_remote_agent(metadata)

    def bind(self, call: CollectiveCall) -> Launch:
        """A thunk that moves all blocks of the call, and waits for it."""
        if self._failed:
            raise NoMeasurement(self._failed)
        source, target = ("recv", "send") if self._operation == READ else ("send", "recv")
        local = self.view(call, source)
        blocks = 1 if local.numel() % self._blocks else self._blocks
        length = local.numel() // blocks
        name, used_bytes = buffer_slice(call, self.ranks[0], target)
        remote = self._peer_places[name] + used_bytes.start
        order = self._listed if blocks > 1 else [0]
        with self._named("initialize_xfer"):
            handle = self._agent.initialize_xfer(
                self._operation,
                self._descriptors(local.data_ptr(), length, order, self._gpu or 0),
                self._descriptors(remote, length, order, self._peer_gpu),
                self._peer,
                ARRIVED,
                [PLUGIN],
            )
        self._handles.append(handle)
        return partial(self._transfer, handle)

    def _descriptors(self, start: int, length: int, order: list[int], gpu: int) -> Any:
        blocks = [(start + number * length, length, gpu) for number in order]
        return self._agent.get_xfer_descs(blocks, "DRAM" if self._gpu is None else "VRAM")

    def _transfer(self, handle: Any) -> None:
        """Post the transfer, and wait until both neighbors' transfers with this rank have ended."""
        agent, end = self._agent, time.monotonic() + self._wait_s
        self._posted += 1
        with self._named("transfer"):
            state = agent.transfer(handle)
            while state == RUNNING:
                self._wait(end, f"is still {state}")
                state = agent.check_xfer_state(handle)
            if state != DONE:
                raise NoMeasurement(self._text(f"transfer to {self._peer} ended in state {state}"))
            while self._arrived < self._posted:
                self._wait(end, f"is {DONE}, but {self._other} has not ended its own")
                self._arrived += len(agent.get_new_notifs().get(self._other, ()))

    def _wait(self, end: float, state: str) -> None:
        """Let a rank on the same core run. TimedOut after `end`."""
        os.sched_yield()
        if time.monotonic() > end:
            raise TimedOut(
                self._text(f"transfer with {self._peer} {state} after {self._wait_s:g} s"),
                "look at the other ranks; UCX_LOG_LEVEL=info says over what UCX sends",
            )

    @contextmanager
    def _named(self, step: str) -> Iterator[None]:
        """NIXL's errors as NoMeasurement. After one, this engine refuses all calls: what the other
        ranks have moved is not known.
        """
        try:
            yield
        except self._errors as error:
            self._failed = self._text(f"{step}: {type(error).__name__}: {error}")
            raise NoMeasurement(self._failed, "NIXL_LOG_LEVEL=INFO logs more") from error
        except NoMeasurement as error:
            self._failed = error.message
            raise

    def _text(self, what: str) -> str:
        return f"NIXL on rank {self._process} on {platform.node()}: {what}"

    def close(self, *, abort: bool = False) -> None:
        """Release what NIXL holds, then leave the process group."""
        if not abort:
            self._control.barrier()  # no other rank uses this memory any more
            self._handles.clear()  # which releases them
        try:
            if not abort:
                with self._named("deregister_memory"):
                    self._agent.deregister_memory(self._registered)
        finally:
            super().close(abort=abort)
