"""Applications whose calls the plugin times by CUDA events: the tables v5 to v7, called as NCCL
calls them, with the driver of fake_libcuda.c. One for each scenario; see `SCENARIOS`.
"""

import contextlib
import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from nccl_profiler import (
    CE_COLL,
    COLL,
    COLL_API,
    GROUP_API,
    KERNEL_LAUNCH,
    P2P,
    P2P_API,
    PLAN,
    Profiler,
)

CONTEXT = 1  # of the GPU; its streams are 1, 5, 9 and so on
STREAM, OTHER_STREAM = 5, 9
FLOAT = b"ncclFloat32"
PAIRS = 2048  # of events for each GPU (gpu_clock.rs)
SILENT_SINCE = 6  # versions of NCCL whose broadcasts have neither task nor launch


class Gpu:
    """The driver that the plugin finds."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        self.library.fake_run.argtypes = (ctypes.c_size_t, ctypes.c_double)
        self.library.fake_enter.argtypes = (ctypes.c_size_t,)
        self.library.fake_capture.argtypes = (ctypes.c_size_t, ctypes.c_int)
        self.enter()

    def enter(self, context: int = CONTEXT) -> None:
        """Set the context of this thread."""
        self.library.fake_enter(context)

    def run(self, stream: int, ns: float) -> None:
        """Let a kernel take so long on a stream."""
        self.library.fake_run(stream, ns)


class Communicator:
    """Calls and launches of one communicator."""

    def __init__(
        self, profiler: Profiler, gpu: Gpu, number: int = 0, rank: int = 0, ranks: int = 2
    ) -> None:
        self.profiler, self.gpu, self.number = profiler, gpu, number
        name = b"comm %d" % number
        self.context, self.mask = profiler.init(0x1000 + number, name, rank, ranks, 1)
        self.sequence = 0

    @contextlib.contextmanager
    def group(self, captured: bool = False) -> Iterator[int | None]:
        """A group of calls: what is launched in it is before its end."""
        group = self.profiler.start(self.context, GROUP_API, graphCaptured=captured)
        yield group
        self.profiler.stop(group)

    def call(
        self, group: int | None, func: bytes, count: int, stream: int = STREAM, **more
    ) -> int | None:
        """The application's call of a collective, or of send or receive."""
        kind = P2P_API if func in (b"Send", b"Recv") else COLL_API
        api = self.profiler.start(
            self.context, kind, group, func=func, count=count, datatype=FLOAT, stream=stream, **more
        )
        self.profiler.stop(api)
        return api

    def launch(self, group: int | None, ns: float, stream: int = STREAM) -> None:
        """The launch of a kernel that takes so long."""
        launch = self.profiler.start(self.context, KERNEL_LAUNCH, group, stream=stream)
        self.gpu.run(stream, ns)
        self.profiler.stop(launch)

    def plan(self, *tasks: tuple[int | None, bytes, int], **more) -> list[int | None]:
        """The tasks of a plan, each with its call, function and count."""
        plan = self.profiler.start(self.context, PLAN)
        started = []
        for api, func, count in tasks:
            body = {"func": func, "count": count, "datatype": FLOAT, "nChannels": 2}
            if func in (b"Send", b"Recv"):
                kind, body = P2P, body | {"peer": 1}
            else:
                kind, body = COLL, body | {"algo": b"RING", "proto": b"LL", "seqNumber": 7}
            body |= {"parentGroup": plan} | more
            started.append(self.profiler.start(self.context, kind, api, **body))
        for task in started:
            self.profiler.stop(task)
        self.profiler.stop(plan)
        return started

    def collective(self, func: bytes, count: int, ns: float, stream: int = STREAM) -> None:
        """A call in a group of its own."""
        with self.group() as group:
            api = self.call(group, func, count, stream)
            if func == b"Broadcast" and self.profiler.version >= SILENT_SINCE:
                self.gpu.run(stream, ns)
            else:
                self.launch(group, ns, stream)
                self.plan((api, func, count))


def duration_ns(number: int) -> int:
    """The time of a scripted job's call."""
    return 1000 + number % 89 * 100


def mixed(comms: list[Communicator], gpu: Gpu) -> None:
    """Calls over three communicators on two streams, whose counts tell their number."""
    functions = (b"AllReduce", b"ReduceScatter", b"Broadcast", b"AllGather", b"Reduce")
    for number in range(3000):
        comm = comms[number % 3]
        stream = OTHER_STREAM if comm.number == 2 else STREAM
        comm.collective(functions[number % 5], number + 1, duration_ns(number), stream)
        gpu.run(stream, 50)
        if number % 500 == 499:
            time.sleep(0.03)  # the writer reads what has ended


def grouped(comms: list[Communicator], gpu: Gpu) -> None:
    """Groups: collectives in one launch, in two, sends and receives, and launches of two
    communicators before the tasks of the first.
    """
    first, second = comms[:2]
    with first.group() as group:
        apis = [first.call(group, b"AllReduce", count) for count in (1000, 3000)]
        first.launch(group, 8000)
        first.plan((apis[0], b"AllReduce", 1000), (apis[1], b"AllReduce", 3000))
    with first.group() as group:
        apis = [first.call(group, b"AllGather", count) for count in (10, 20)]
        for api, count, ns in zip(apis, (10, 20), (2000, 5000), strict=True):
            first.launch(group, ns)
            first.plan((api, b"AllGather", count))
    with first.group() as group:
        apis = [first.call(group, func, 64) for func in (b"Send", b"Recv")]
        first.launch(group, 6000)
        first.plan((apis[0], b"Send", 64), (apis[1], b"Recv", 64))
    with first.group() as group:
        apis = [comm.call(group, b"Reduce", 5, STREAM) for comm in (first, second)]
        first.launch(group, 3000)
        second.launch(group, 4000)
        first.plan((apis[0], b"Reduce", 5))
        second.plan((apis[1], b"Reduce", 5))


def pool(comms: list[Communicator], gpu: Gpu) -> None:
    """More launches than there are events, on a GPU that does nothing; then it goes on."""
    gpu.library.fake_hold(1)
    for number in range(PAIRS + 100):
        comms[0].collective(b"AllReduce", number + 1, 1000)
    gpu.library.fake_hold(0)
    time.sleep(0.05)
    comms[0].collective(b"AllReduce", 9999, 1000)


def captured(comms: list[Communicator], gpu: Gpu) -> None:
    """Two calls that are captured into a graph, which runs twice; then one that is not, while
    another stream is captured.
    """
    comm = comms[0]
    gpu.library.fake_capture(STREAM, 1)
    apis = []
    before = gpu.library.fake_calls()
    for count in (8, 16):
        with comm.group(captured=True) as group:
            apis.append(comm.call(group, b"AllReduce", count, graphCaptured=True))
            comm.launch(group, 0)
    assert gpu.library.fake_calls() == before, "no event is touched while a stream is captured"
    comm.collective(b"AllReduce", 32, 7000, OTHER_STREAM)
    time.sleep(0.05)  # the writer reads it in spite of the capture
    gpu.library.fake_capture(STREAM, 0)
    for replay in range(2):
        for api, count, asked in zip(apis, (8, 16), (False, True), strict=True):
            (task,) = comm.plan((api, b"AllReduce", count))
            if asked:  # the first call's mask was read before it was known to be captured
                start = 10_000 * replay + 1000
                comm.profiler.kernel(comm.context, task, 2, start, start + 499)


def failed(comms: list[Communicator], gpu: Gpu) -> None:
    """Calls while the driver fails, and one after that."""
    gpu.library.fake_fail(700)
    for number in range(5):
        comms[0].collective(b"AllReduce", number + 1, 1000)
    gpu.library.fake_fail(0)
    comms[0].collective(b"AllReduce", 6, 1000)


def threads(comms: list[Communicator], gpu: Gpu) -> None:
    """Each communicator on a thread and a stream of its own, and one more thread that keeps the
    clock of other streams going.
    """

    def calls(comm: Communicator) -> None:
        gpu.enter()
        for number in range(700):
            comm.collective(b"AllReduce", number + 1, duration_ns(number), STREAM + 4 * comm.number)

    started = [threading.Thread(target=calls, args=(comm,)) for comm in comms]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    assert gpu.library.fake_current() == CONTEXT


def deferred(comms: list[Communicator], gpu: Gpu) -> None:
    """A communicator that launches on a thread of NCCL, after the call has returned. Its
    broadcasts have no time, as nothing tells when they were launched.
    """
    comm = comms[0]
    for number in range(3):
        with comm.group() as group:
            broadcast = comm.call(group, b"Broadcast", 100 + number)
        if comm.profiler.version < SILENT_SINCE:
            comm.launch(group, 500)
            comm.plan((broadcast, b"Broadcast", 100 + number))
        with comm.group() as group:
            api = comm.call(group, b"AllReduce", number + 1)

        def later(
            group: int | None = group, api: int | None = api, count: int = number + 1
        ) -> None:
            gpu.enter()
            comm.launch(group, 4000)
            comm.plan((api, b"AllReduce", count))

        thread = threading.Thread(target=later)
        thread.start()
        thread.join()


def copies(comms: list[Communicator], gpu: Gpu) -> None:
    """A collective that copy engines run, and from v7 on one over symmetric memory."""
    comm = comms[0]
    if comm.profiler.version >= SILENT_SINCE:
        with comm.group() as group:
            api = comm.call(group, b"AllGather", 128)
            body = {"func": b"AllGather", "count": 128, "datatype": FLOAT, "stream": STREAM}
            copy = comm.profiler.start(comm.context, CE_COLL, api, **body)
            gpu.run(STREAM, 9000)
            comm.profiler.stop(copy)
    if comm.profiler.version >= 7:
        with comm.group() as group:
            api = comm.call(group, b"AllReduce", 256)
            comm.launch(group, 3000)
            symmetric = {"isSymColl": True, "kernelVariant": b"AR_LL", "algo": b"LL", "proto": b""}
            comm.plan((api, b"AllReduce", 256), **symmetric)


def exits(comms: list[Communicator], gpu: Gpu) -> None:
    """A process that ends without ending its communicators, with times that are not yet read; one
    forked from it ends earlier.
    """
    gpu.library.fake_hold(1)
    comms[0].collective(b"AllReduce", 4, 2500)
    time.sleep(0.03)
    child = os.fork()
    gpu.library.fake_hold(0)
    if child:
        os.waitpid(child, 0)
    sys.stdout.flush()
    ctypes.CDLL(None).exit(0)


SCENARIOS: dict[str, Callable[[list[Communicator], Gpu], None]] = {
    scenario.__name__: scenario
    for scenario in (mixed, grouped, pool, captured, failed, threads, deferred, copies, exits)
}


def main(library: str, version: int, scenario: str) -> None:
    """Run a scenario, end the communicators, and print what the plugin logged."""
    gpu = Gpu()
    profiler = Profiler(Path(library), version)
    comms = [Communicator(profiler, gpu, number) for number in range(3)]
    SCENARIOS[scenario](comms, gpu)
    for comm in comms:
        profiler.finalize(comm.context)
    print("mask", profiler.mask.value, "events", gpu.library.fake_events())
    print(*profiler.log, sep="\n")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
