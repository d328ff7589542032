"""A profiler table called as NCCL calls it (enqueue.cc, group.cc and plugin/profiler.cc).

As a program, it is an application with three communicators: see `main`.
"""

import ctypes
import os
import sys
from ctypes import (
    CFUNCTYPE,
    POINTER,
    byref,
    c_bool,
    c_char_p,
    c_int,
    c_size_t,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)
from functools import cache
from pathlib import Path

from abi import LOGGER

PLAN, COLL, P2P, KERNEL_CH, GROUP_API, COLL_API, P2P_API = 1, 2, 4, 1 << 6, 1 << 8, 1 << 9, 1 << 10
KERNEL_LAUNCH, CE_COLL = 1 << 11, 1 << 12
KERNEL_CH_STOP = 22
LAUNCHES_SINCE = 5  # versions that report calls and launches
INIT = {
    2: (POINTER(c_void_p), POINTER(c_int)),
    4: (POINTER(c_void_p), POINTER(c_int), c_char_p, c_uint64, c_int, c_int, c_int, LOGGER),
    5: (POINTER(c_void_p), c_uint64, POINTER(c_int), c_char_p, c_int, c_int, c_int, LOGGER),
}
INIT |= dict.fromkeys((6, 7), INIT[5])
NAMES = [("name", c_char_p), ("commHash", c_uint64)]
COLL_FIELDS = [
    ("seqNumber", c_uint64),
    ("func", c_char_p),
    ("sendBuff", c_void_p),
    ("recvBuff", c_void_p),
    ("count", c_size_t),
    ("root", c_int),
    ("datatype", c_char_p),
]
LAST = [("nChannels", c_uint8), ("nWarps", c_uint8), ("algo", c_char_p), ("proto", c_char_p)]
P2P_FIELDS = [
    ("func", c_char_p),
    ("buff", c_void_p),
    ("datatype", c_char_p),
    ("count", c_size_t),
    ("peer", c_int),
]
API_FIELDS = [("func", c_char_p), ("count", c_size_t), ("datatype", c_char_p)]
STREAM = [("stream", c_void_p), ("graphCaptured", c_bool)]
BODIES = {
    (2, COLL): [*NAMES, *COLL_FIELDS, ("trafficBytes", c_size_t), *LAST],
    (2, P2P): [*NAMES, *P2P_FIELDS],
    (4, COLL): [*COLL_FIELDS, *LAST],
    (4, P2P): [*P2P_FIELDS, ("nChannels", c_uint8)],
    (5, COLL): [*COLL_FIELDS, *LAST, ("parentGroup", c_void_p)],
    (5, P2P): [*P2P_FIELDS, ("nChannels", c_uint8), ("parentGroup", c_void_p)],
    (5, GROUP_API): [("graphCaptured", c_bool), ("groupDepth", c_int), ("padding", c_uint64)],
    (5, COLL_API): [*API_FIELDS, ("root", c_int), *STREAM],
    (5, P2P_API): [*API_FIELDS, *STREAM],
    (5, KERNEL_LAUNCH): [("stream", c_void_p)],
    (5, PLAN): [("padding", c_uint64)],
    (6, CE_COLL): [
        *COLL_FIELDS,
        ("syncStrategy", c_char_p),
        ("intraBatchSync", c_bool),
        ("batchSize", c_uint32),
        ("numBatches", c_uint32),
        ("ceSeqNum", c_uint32),
        ("stream", c_void_p),
    ],
}
TAG = ("userTag", c_uint64)
for _version in (6, 7):
    for (_of, _kind), _fields in list(BODIES.items()):
        if _of == _version - 1:
            BODIES.setdefault((_version, _kind), _fields)
BODIES[7, COLL] = [*BODIES[7, COLL], ("kernelVariant", c_char_p), ("isSymColl", c_bool), TAG]
for _kind in (P2P, COLL_API, P2P_API, CE_COLL):
    BODIES[7, _kind] = [*BODIES[7, _kind], TAG]
KERNEL = [("channelId", c_uint8), ("pTimer", c_uint64)]


@cache
def _descriptor(version: int, kind: int) -> type[ctypes.Structure]:
    fields = KERNEL if kind == KERNEL_CH else BODIES[version, kind]
    body = type("Body", (ctypes.Structure,), {"_fields_": fields})
    head = [
        ("type", c_uint64 if version >= 5 else c_uint8),
        ("parent", c_void_p),
        ("rank", c_int),
        ("gap", c_int),
    ]
    return type("Descriptor", (ctypes.Structure,), {"_fields_": [*head, ("body", body)]})


class Profiler:
    """A profiler table of a library."""

    def __init__(self, library: Path, version: int) -> None:
        self.version = version
        table = (c_void_p * 6).in_dll(
            ctypes.CDLL(str(library), mode=os.RTLD_NOW | os.RTLD_LOCAL), f"ncclProfiler_v{version}"
        )
        types = (
            INIT[version],
            (c_void_p, POINTER(c_void_p), c_void_p),
            (c_void_p,),
            (c_void_p, c_int, c_void_p),
            (c_void_p,),
        )
        functions = [
            CFUNCTYPE(c_int, *arguments)(table[1 + at]) for at, arguments in enumerate(types)
        ]
        self._init, self._start, self._stop, self._state, self._finalize = functions
        self.name = ctypes.cast(table[0], c_char_p).value
        self.mask = c_int(-1)  # one for all communicators, which NCCL reads at each call
        self.log: list[str] = []
        self._logger = LOGGER(
            lambda _level, _flags, _file, _line, _form, text: self.log.append(text.decode())
        )

    def init(
        self, comm_id: int, name: bytes, rank: int, ranks: int, hosts: int
    ) -> tuple[c_void_p, int]:
        """The context of a communicator, and the mask."""
        context, mask = c_void_p(), self.mask
        last = (hosts, ranks, rank, self._logger)
        arguments = {2: (), 4: (name, comm_id, *last)}.get(self.version, (name, *last))
        front = (
            (byref(context), comm_id, byref(mask))
            if self.version >= 5
            else (byref(context), byref(mask))
        )
        assert self._init(*front, *arguments) == 0
        return context, mask.value

    def start(
        self, context: c_void_p, kind: int, parent: int | None = None, rank: int = 0, **body
    ) -> int | None:
        """The handle of an event."""
        descr = _descriptor(self.version, kind)()
        descr.type, descr.parent, descr.rank = kind, parent, rank
        for key, value in body.items():
            setattr(descr.body, key, value)
        handle = c_void_p(0xDEAD)
        assert self._start(context, byref(handle), byref(descr)) == 0
        return handle.value

    def stop(self, handle: int | None) -> None:
        """End of an event; NCCL calls it for handles that are not NULL."""
        assert handle is None or self._stop(handle) == 0

    def kernel(
        self, context: c_void_p, task: int | None, channels: int, start: int, end: int
    ) -> None:
        """The channels of a kernel, each a nanosecond longer than the one before."""
        handles = [
            self.start(context, KERNEL_CH, task, channelId=at, pTimer=start)
            for at in range(channels)
        ]
        for at, handle in enumerate(handles):
            timer = c_uint64(end + at)
            assert self._state(handle, KERNEL_CH_STOP, byref(timer)) == 0
            self.stop(handle)

    def finalize(self, context: c_void_p) -> None:
        """The communicator ends."""
        assert self._finalize(context) == 0


def collective(
    profiler: Profiler,
    context: c_void_p,
    sequence: int,
    *,
    func: bytes,
    count: int,
    gpu: tuple[int, int] | None,
    **more,
):
    """One collective with all of its events, timed by NCCL's kernel events."""
    api, group, version = None, None, profiler.version
    if version >= LAUNCHES_SINCE:
        group = profiler.start(context, GROUP_API)
        api = profiler.start(
            context,
            COLL_API,
            group,
            func=func,
            count=count,
            datatype=more["datatype"],
            stream=more.get("stream", 0),
        )
        profiler.stop(api)
    body = {
        "seqNumber": sequence,
        "func": func,
        "count": count,
        "datatype": more["datatype"],
        "root": more.get("root", 0),
    }
    if version == 2:
        body |= {"name": b"comm", "commHash": more["comm_id"]}
    body |= {"nChannels": 2, "algo": b"RING", "proto": b"SIMPLE"}
    task = profiler.start(context, COLL, api, **body)
    profiler.stop(task)
    profiler.stop(group)
    if gpu and version > 2:
        profiler.kernel(context, task, 2, *gpu)


def main(library: str, version: int, count: int, ending: str) -> None:
    """Make `count` calls, in turn on three communicators, whose sizes tell their number; then end
    as requested.
    """
    profiler = Profiler(Path(library), version)
    rank = int(os.environ.get("RANK", "0"))
    contexts = [profiler.init(0x1000 + at, b"comm %d" % at, rank, 2, 1) for at in range(3)]
    print(*(mask for _, mask in contexts), flush=True)
    functions = (b"AllReduce", b"ReduceScatter", b"Broadcast", b"AllGather", b"Reduce")
    for number in range(count):
        context, _ = contexts[number % 3]
        collective(
            profiler,
            context,
            number // 3,
            func=functions[number % 5],
            count=number,
            datatype=b"ncclBfloat16",
            stream=7,
            gpu=(1000 * number, 1000 * number + 500),
            comm_id=0x1000 + number % 3,
        )
    print("done", *profiler.log, flush=True)
    if ending == "kill":
        os.kill(os.getpid(), 9)
    if ending == "exit":
        os._exit(0)
    for context, _ in contexts:
        profiler.finalize(context)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
