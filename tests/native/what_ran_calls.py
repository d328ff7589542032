"""An application that asks the plugin what its calls run, with each profiler table in turn. Prints, as
JSON, what the plugin answered for each version.
"""

import ctypes
import json
import sys
from pathlib import Path
from typing import Any

from abi import PROFILERS
from nccl_profiler import (
    CE_COLL,
    COLL,
    COLL_API,
    GROUP_API,
    LAUNCHES_SINCE,
    P2P,
    Profiler,
    collective,
)

ROOM = 4096


def asked(library: Any, room: int = ROOM) -> tuple[str, int]:
    """What the plugin was told since the start, and the lines without room."""
    text = ctypes.create_string_buffer(ROOM)
    lost = library.busbw_ran_stop(text, room)
    return text.value.decode(), lost


def without_tasks(library: Any, profiler: Profiler, context: Any) -> tuple[str, int]:
    """The answer after calls that NCCL reports no task of: kernels over symmetric memory before v7,
    broadcasts of 2.29 and newer. It reports one of the two all-gathers, which copy engines run.
    """
    library.busbw_ran_start()
    for func in (b"AllReduce", b"Broadcast", b"AllGather"):
        group = profiler.start(context, GROUP_API)
        call = {"func": func, "count": 8, "datatype": b"ncclFloat32"}
        api = profiler.start(context, COLL_API, group, **call)
        profiler.stop(api)
        if func == b"AllGather" and profiler.version > LAUNCHES_SINCE:
            profiler.stop(profiler.start(context, CE_COLL, api, func=func, count=8))
        profiler.stop(group)
    return asked(library)


def answers(library: Any, path: str, version: int) -> dict[str, Any]:
    """The answers of one version."""
    library.busbw_ran_ask()
    nothing = library.busbw_ran_start(), asked(library)
    profiler = Profiler(Path(path), version)
    context, mask = profiler.init(0x1000, b"comm", 0, 2, 1)
    call = {"func": b"AllReduce", "count": 8, "datatype": b"ncclFloat32", "comm_id": 0x1000}

    def run() -> None:
        collective(profiler, context, 1, gpu=None, **call)
        names = {"name": b"comm", "commHash": 0x1000} if version == 2 else {"nChannels": 2}
        profiler.stop(profiler.start(context, P2P, None, func=b"Send", count=8, peer=1, **names))
        if version >= 6:
            profiler.stop(profiler.start(context, CE_COLL, None, func=b"AllGather", count=8))
        if version >= 7:
            body = {"isSymColl": True, "kernelVariant": b"AR_LL", "algo": b"LL", "proto": b""}
            profiler.stop(profiler.start(context, COLL, None, func=b"AllReduce", **body))

    run()  # before the start
    interface, asking = library.busbw_ran_start(), profiler.mask.value
    for _ in range(3):
        run()
    answer = asked(library)
    run()  # after the end
    stopped = profiler.mask.value
    library.busbw_ran_start()
    for channels in range(20):
        names = {"name": b"comm", "commHash": 1} if version == 2 else {}
        body = {"func": b"Reduce", "nChannels": channels, "algo": b"TREE\t\n", "proto": b"LL"}
        profiler.stop(profiler.start(context, COLL, None, **names, **body))
    many = asked(library)
    library.busbw_ran_start()
    run()
    little = asked(library, 40)
    silent = without_tasks(library, profiler, context) if version >= LAUNCHES_SINCE else ("", 0)
    profiler.finalize(context)
    return {
        "nothing": nothing,
        "interface": interface,
        "masks": [mask, asking, stopped],
        "answer": answer,
        "many": [many[0].splitlines(), many[1]],
        "little": little,
        "silent": silent,
        "log": profiler.log,
    }


def main(path: str) -> None:
    """Print the answers."""
    library = ctypes.CDLL(path)
    library.busbw_ran_start.restype = ctypes.c_uint64
    library.busbw_ran_stop.argtypes = (ctypes.c_char_p, ctypes.c_size_t)
    library.busbw_ran_stop.restype = ctypes.c_size_t
    library.busbw_log_touch()  # without a logger: nothing
    print(json.dumps({version: answers(library, path, version) for version in PROFILERS}))


if __name__ == "__main__":
    main(sys.argv[1])
