"""Collectives on GPUs through NCCL, called at nccl4py's binding level.

One process drives one or several GPUs.
"""

import os
import platform
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from weakref import WeakSet

from busbw.core.collectives import Collective
from busbw.core.dtypes import DType
from busbw.core.dtypes import dtype as dtype_row
from busbw.core.errors import BusbwError, NoMeasurement, TimedOut
from busbw.core.redops import RedOp
from busbw.core.result import EngineLibrary, RankDevice
from busbw.core.sweep import SweepSpec, dtypes, redops
from busbw.engines import nccl_comms
from busbw.engines.base import CollectiveCall, Engine, Launch, LaunchSequence
from busbw.engines.cuda_kernels import cubins
from busbw.engines.cuda_memory import CudaMemory, placed
from busbw.engines.cuda_runtime import CudaGpu, Events, Gate, Stream, call
from busbw.engines.nccl_calls import CALLS, GraphReplay, Groups, Message, OneGroup, Rank
from busbw.engines.nccl_comms import CommBuffers
from busbw.engines.nccl_devices import checked, package_version, requested
from busbw.engines.nccl_loop import NcclLoop, Queues
from busbw.engines.nccl_profiler import NcclProfiler
from busbw.engines.nccl_tuner import NcclTuner
from busbw.host.cpu import usable_by_gpu
from busbw.launch.control import Control

FENCE_BYTES = 256
POLLS_PER_CHECK = 8  # asking NCCL for errors costs as much as asking CUDA whether a stream is idle
# Shorter waits than SPIN_S spin. Longer ones leave the core to NCCL's network threads, at a cost of
# up to 0.2 %.
SPIN_S, NAP_S = 0.1, 1e-4

# For these operators NCCL multiplies the inputs. Its kernel for one rank has no 8-bit floats.
PRESCALED = ("avg", "mulsum")


class NcclEngine(Engine):
    """Runs collectives with NCCL on `local_devices` of this process.

    Ranks are in order of process, then of device. `control` joins the processes of the
    communicator. `process` is the number of this one in the whole job, if it is another there.
    """

    name = "nccl"
    asynchronous = True

    def __init__(
        self,
        control: Control,
        spec: SweepSpec,
        local_devices: Sequence[int],
        group: int = 0,
        process: int | None = None,
    ) -> None:
        self._nccl = nccl_comms.library()
        self._spec, self._group = spec, group
        self._process = control.process if process is None else process
        self._gpus = [CudaGpu(index) for index in checked(requested(local_devices))]
        self._free = [self._gpus[0].free_bytes()]  # before NCCL, after it, and after the buffers
        self._compile_first()
        self._version = int(self._nccl.get_version())
        members = nccl_comms.exchange_members(control, self._gpus, self._version)
        self._comms = nccl_comms.open_all(control, spec, self._gpus, members, self._version)
        self.ranks: Sequence[int] = range(members.first, members.first + len(self._gpus))
        self.size = members.size
        self._free.append(self._gpus[0].free_bytes())
        self._streams = [Stream(gpu, 0 if spec.stream_null else None) for gpu in self._gpus]
        self._events = [Events(stream) for stream in self._streams]
        self._buffers = CommBuffers(
            self._nccl, self._version, self._gpus, self._comms, spec.local_register
        )
        self._gate = Gate(self._gpus[0])
        self._fences = [(gpu, gpu.allocate(FENCE_BYTES)) for gpu in self._gpus]
        self._memories: list[CudaMemory] = []
        self._replays: WeakSet[GraphReplay] = WeakSet()

    def _compile_first(self) -> None:
        """Start compiling the first check's kernel while NCCL starts."""
        if self._spec.check:
            op = redops(self._spec)[0] if self._spec.row.reduces else None
            cubins(self._gpus[0].sm).start(dtypes(self._spec)[0], op)

    # -- what it is --------------------------------------------------------------------------------

    def devices(self) -> list[RankDevice]:
        count = len(self._gpus)
        return [
            RankDevice(
                rank=self._process * count + number,
                pid=os.getpid(),
                host=platform.node(),
                index=gpu.index,
                bus=gpu.bus,
                name=gpu.name,
                group=self._group,
                memory_bytes=gpu.memory_bytes,
                process=self._process,
            )
            for number, gpu in enumerate(self._gpus)
        ]

    def library(self) -> EngineLibrary:
        """The versions of NCCL and of the packages that call it, and the buffers' allocator."""
        packages = {name: package_version(name) for name in ("nccl4py", "cuda-bindings")}
        versions = {name: number for name, number in packages.items() if number}
        driver = int(call("cuDriverGetVersion"))
        versions["cuda driver"] = f"{driver // 1000}.{driver % 1000 // 10}"
        versions["buffers"] = self._buffers.source
        return EngineLibrary("nccl", self._version, versions)

    def memory_bytes(self) -> int | None:
        return min(usable_by_gpu(gpu.memory_bytes, unified=gpu.unified) for gpu in self._gpus)

    def unsupported(self, collective: Collective, dtype: DType, op: RedOp | None) -> str | None:
        """Why the GPU or this NCCL lacks the element type, or on one rank the operator of it."""
        if self._version < dtype.min_nccl:
            needed = nccl_comms.version_text(dtype.min_nccl)
            present = nccl_comms.version_text(self._version)
            return f"{dtype.name} needs NCCL {needed}, and this is {present}"
        oldest = min(self._gpus, key=lambda gpu: gpu.sm)
        if oldest.sm < dtype.min_sm:
            needed = f"a GPU of sm_{dtype.min_sm}"
            return f"{dtype.name} needs {needed}, and {oldest.name} is sm_{oldest.sm}"
        float_of_8_bits = dtype.is_float and dtype.itemsize == 1
        prescaled = collective.reduces and op is not None and op.name in PRESCALED
        if self.size == 1 and op and prescaled and float_of_8_bits:
            return f"NCCL has no {op.name} of {dtype.name} on one rank"
        return None

    def memory_use(self) -> dict[str, int]:
        """Bytes of the first local GPU that NCCL's start, the buffers, and the collectives took."""
        before, started, allocated = self._free
        now = self._gpus[0].free_bytes()
        parts = {
            "init": before - started,
            "user": started - allocated,
            "collective": allocated - now,
        }
        return {**parts, "total": before - now}

    # -- buffers -----------------------------------------------------------------------------------

    def allocate(self, send_bytes: int, recv_bytes: int) -> None:
        """Allocate both buffers of every GPU.

        Both have the larger size, because in place the receive buffer holds both.
        """
        self._buffers.allocate(max(send_bytes, recv_bytes, 1))
        self._free.append(self._gpus[0].free_bytes())
        self._memories = [
            CudaMemory(gpu, stream, placed(rank, *pair))
            for gpu, stream, rank, pair in zip(
                self._gpus, self._streams, self.ranks, self._buffers.pairs, strict=True
            )
        ]

    def memories(self) -> Sequence[CudaMemory]:
        return self._memories

    # -- calls -------------------------------------------------------------------------------------

    def bind(self, call: CollectiveCall) -> Launch:
        """A thunk with every address computed.

        It is one NCCL call, a group of them, ordered steps, or nothing if no data moves.
        """
        local_ranks = range(len(self._gpus))
        launches_of = CALLS[call.collective.name]
        by_rank = [launches_of(self._message(call, number)) for number in local_ranks]
        # A single call is a group of its own in NCCL; send and receive need theirs.
        launches = [step[0] if len(step) == 1 else OneGroup(step) for step in _steps(by_rank)]
        return launches[0] if len(launches) == 1 else LaunchSequence(launches)

    def _message(self, call: CollectiveCall, number: int) -> Message:
        rank = Rank(
            self._nccl,
            self._version,
            self._comms[number],
            self._streams[number],
            self.ranks[number],
            self.size,
        )
        address = placed(self.ranks[number], *self._buffers.pairs[number])
        return Message(rank, call, address(call, "send"), address(call, "recv"))

    def grouped(self, launches: Sequence[Launch]) -> Launch:
        """All launches in one NCCL group.

        Collectives of several ordered steps run one after the other.
        """
        if len(launches) == 1:
            return launches[0]
        if any(isinstance(launch, LaunchSequence) for launch in launches):
            return LaunchSequence(launches)
        return OneGroup(launches)

    def capture(self, launches: Sequence[Launch]) -> Launch:
        """Record the launches on every local stream.

        The thunk enqueues the graph of each GPU, which lives as long as the thunk.
        """
        if self._spec.stream_null:
            raise NoMeasurement(
                "-G with -y: CUDA cannot capture the NULL stream", "leave out -y or -G"
            )
        capturing: list[Stream] = []
        try:
            for stream in self._streams:
                stream.begin_capture()
                capturing.append(stream)
            for launch in launches:
                launch()
        except BaseException:
            for stream in capturing:
                stream.abandon_capture()
            raise
        recordings = [stream.end_capture() for stream in self._streams]
        graphs = [
            stream.instantiate(recording)
            for stream, recording in zip(self._streams, recordings, strict=True)
        ]
        replay = GraphReplay(graphs)
        self._replays.add(replay)
        return replay

    # -- time --------------------------------------------------------------------------------------

    def synchronize(self, limit_s: float) -> None:
        """Poll every stream, and NCCL for errors of peers and network, until all are idle."""
        began, polls = time.perf_counter(), 0
        for gpu, stream in zip(self._gpus, self._streams, strict=True):
            if len(self._gpus) > 1:
                gpu.activate()
            while not stream.idle():
                polls += 1
                if polls % POLLS_PER_CHECK == 0:
                    self._check_wait(time.perf_counter() - began, limit_s)
                    gpu.activate()

    def _check_wait(self, waited_s: float, limit_s: float) -> None:
        """NoMeasurement for NCCL's asynchronous errors and for a wait beyond the limit."""
        for comm, rank in zip(self._comms, self.ranks, strict=True):
            result = int(self._nccl.comm_get_async_error(comm))
            if result not in (nccl_comms.SUCCESS, nccl_comms.IN_PROGRESS):
                raise nccl_comms.failure(self._nccl.get_error_string(result), comm, [rank])
        if 0 < limit_s < waited_s:
            raise self._timed_out(limit_s)
        if waited_s > SPIN_S:
            time.sleep(NAP_S)

    def _timed_out(self, limit_s: float) -> TimedOut:
        """The error that names the local ranks whose GPU is not idle."""
        late = []
        for gpu, stream, rank in zip(self._gpus, self._streams, self.ranks, strict=True):
            gpu.activate()
            if not stream.idle():
                late.append(str(rank))
        return TimedOut(
            f"rank {', '.join(late)} on {platform.node()}: the GPU did not finish within"
            f" {limit_s:g} s",
            "a rank may not have joined, or a link may have stalled; `ncclras` on any host shows"
            " which ranks wait; -T sets the limit",
        )

    def held(self) -> AbstractContextManager[None]:
        return self._gate.shut(self._streams)

    def fence(self) -> Launch:
        """An all_reduce of one float, in memory of its own."""
        kind, op = dtype_row("float").nccl, 0
        launches = [
            partial(self._nccl.all_reduce, address, address, 1, kind, op, comm, stream.handle)
            for (_, address), comm, stream in zip(
                self._fences, self._comms, self._streams, strict=True
            )
        ]
        return launches[0] if len(launches) == 1 else OneGroup(launches)

    def tuner(self) -> NcclTuner:
        return NcclTuner()

    def profiler(self) -> NcclProfiler:
        return NcclProfiler()

    def loop(self) -> NcclLoop:
        queues = Queues(self._gpus, self._streams, self._events)
        return NcclLoop(
            self._nccl, self._version, queues, partial(self.synchronize, self._spec.timeout)
        )

    def follow(self, other: Engine) -> None:
        """Every local stream waits for the other engine's stream on the same GPU."""
        assert isinstance(other, NcclEngine)
        for stream, other_stream in zip(self._streams, other._streams, strict=True):
            stream.wait_for(other_stream)

    def mark(self, index: int) -> None:
        """Record event `index` on every local stream."""
        for gpu, events in zip(self._gpus, self._events, strict=True):
            if len(self._gpus) > 1:
                gpu.activate()
            events.record(index)

    def elapsed_s(self, first: int, last: int) -> list[float]:
        return [events.seconds(first, last) for events in self._events]

    def explained(self, error: Exception) -> Exception:
        """NCCL's errors as NoMeasurement.

        Thunks do not catch them, which would cost 0.25 us of a call's 6.
        """
        if isinstance(error, self._nccl.NCCLError):
            return nccl_comms.failure(error, self._comms[0] if self._comms else None, self.ranks)
        return error

    # -- end ---------------------------------------------------------------------------------------

    def close(self, *, abort: bool = False) -> None:
        """Free everything.

        With `abort`, communicators are torn down without waiting for peers, and errors are ignored.
        """
        # Graphs come first, because NCCL waits for those that hold its work.
        steps: list[Launch] = [replay.close for replay in list(self._replays)]
        if not abort:
            steps.append(self._buffers.deregister)
        close_comm = self._nccl.comm_abort if abort else self._nccl.comm_destroy
        steps += [partial(close_comm, comm) for comm in self._comms]
        steps += [memory.close for memory in self._memories]
        steps += [events.close for events in self._events]
        steps += [stream.close for stream in self._streams]
        steps += [self._buffers.free, self._gate.close]
        steps += [partial(gpu.free, address) for gpu, address in self._fences]
        self._comms, self._memories, self._events, self._streams, self._fences = [], [], [], [], []
        for step in steps:
            try:
                step()
            except (BusbwError, self._nccl.NCCLError) as error:
                if not abort:
                    raise nccl_comms.failure(error, None, self.ranks) from error


def _steps(by_rank: Sequence[Groups]) -> list[list[Launch]]:
    """The launches of each step, of all local ranks; steps without launches are left out.

    Ranks of one collective have the same number of steps, except that some begin with a copy.
    """
    count = max(map(len, by_rank))
    steps: list[list[Launch]] = [[] for _ in range(count)]
    for groups in by_rank:
        for number, group in enumerate(groups, count - len(groups)):
            steps[number] += group
    return [step for step in steps if step]
