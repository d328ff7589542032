"""NCCL's RAS service over a real socket, with reports as NCCL writes them
(src/ras/client_support.cc).
"""

import contextlib
import json
import re
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

FUNCTIONS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")
HOST = "127.0.0.1"


@contextlib.contextmanager
def service(*reports: str, old: bool = False, port: int = 0) -> Iterator[str]:
    """HOST:PORT of a service that gives these reports in turn, the last one again and again; an
    `old` one knows no format but text.
    """
    listening = socket.create_server((HOST, port))
    remaining = list(reports)

    def answer(word: str) -> str:
        if word.startswith("CLIENT PROTOCOL"):
            return "SERVER PROTOCOL 2\n"
        if word.startswith("SET FORMAT") and old:
            return f"ERROR: Unknown command {word}\n"
        if word == "STATUS":
            return remaining.pop(0) if len(remaining) > 1 else remaining[0]
        return "OK\n"

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                line, _ = listening.accept()
                with line, line.makefile("r") as words:
                    for word in map(str.strip, words):
                        line.sendall(answer(word).encode())
                        if word == "STATUS":
                            break

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"{HOST}:{listening.getsockname()[1]}"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(5)


def rank(number: int, count: int, pid: int = -1, host: str = HOST, **status: Any) -> dict[str, Any]:
    """A rank that answered, with `count` all-reduces."""
    flags = {
        "init_state": 0,
        "async_error": 0,
        "finalize_called": False,
        "destroy_flag": False,
        "abort_flag": False,
    }
    counts = dict.fromkeys(FUNCTIONS, 0) | {"AllReduce": count}
    return _rank_fields(number, pid, host) | {"status": flags | status, "collective_counts": counts}


def missing(
    number: int, pid: int = -1, host: str = HOST, *, unresponsive: bool = True, dead: bool = False
) -> dict[str, Any]:
    """A rank without an answer."""
    return _rank_fields(number, pid, host) | {
        "status": {"unresponsive": unresponsive, "considered_dead": dead}
    }


def _rank_fields(number: int, pid: int, host: str) -> dict[str, Any]:
    return {
        "rank": number,
        "host": host,
        "pid": 4000 + number if pid < 0 else pid,
        "cuda_dev": number,
        "nvml_dev": number,
    }


def comm(
    name: int, ranks: Sequence[dict[str, Any]], missing: Sequence[dict[str, Any]] = ()
) -> dict[str, Any]:
    """A communicator."""
    size = len(ranks) + len(missing)
    fields = {
        "hash": hex(name),
        "secondary_hash": "0x1:0x2",
        "size": size,
        "ranks_count": len(ranks),
        "missing_ranks_count": len(missing),
    }
    return fields | {"ranks": list(ranks), "missing_ranks": list(missing)}


def as_json(*comms: dict[str, Any], comma: bool = True) -> str:
    """The report of these communicators; NCCL 2.28.9 leaves out a comma in missing ranks."""
    head = {
        "nccl_version": "2.28.9",
        "cuda_runtime_version": 12090,
        "cuda_driver_version": 13000,
        "timestamp": "2026-11-25 06:51:56",
    }
    fields = head | {"communicators_count": len(comms), "communicators": list(comms)}
    text = json.dumps(fields | {"ras": {"collection_time_sec": 0.0, "timeouts_count": 0}}, indent=2)
    return text if comma else re.sub(r',(\s+"status": \{\s+"unresponsive")', r"\1", text)


TEXT_HEAD = """NCCL version 2.27.5 compiled with CUDA 12.9
CUDA runtime version 12090, driver version 13000

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      1          4            1          4        4

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
"""
TEXT_FINE = (
    f"{TEXT_HEAD}    0         1         1         4         4         4   RUNNING     "
    " OK\n\n"
    "Errors\n"
    "======\n\n"
    "Warnings\n"
    "========\n\n"
)
TEXT_DEAD = f"""{TEXT_HEAD}    0         1         1         3         4         3   RUNNING  INCOMPLETE

Errors
======

DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 4002 on node 127.0.0.1 managing GPU 2

#0-0 (00c0ffee00000001) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 2 -- GPU 2 managed by process 4002 on node 127.0.0.1

Warnings
========

TIMEOUT
  Encountered 1 communication timeout while gathering communicator data

"""
TEXT_BEHIND = f"""{TEXT_HEAD}    0         1         1         4         4         4   RUNNING  MISMATCH

Errors
======

Warnings
========

#0-0 (00c0ffee00000001) MISMATCH
  Communicator ranks have different AllReduce operation counts
  3 ranks have launched up to operation 19
  Rank 1 has launched up to operation 12 -- GPU 1 (NVML 5) managed by process 4001 on node 127.0.0.1

"""
TEXT_ERROR = f"""{TEXT_HEAD}    0         1         1         4         4         4   RUNNING  ERROR

Errors
======

#0-0 (00c0ffee00000001) ERROR
  Asynchronous error on 1 rank
  Rank 3 reported Remote process error -- GPU 3 managed by process 4003 on node 127.0.0.1

Warnings
========

"""


if __name__ == "__main__":  # the report on stdin, until stdin of the service closes
    reports = sys.stdin.readline()
    with service(json.loads(reports), port=28028):
        print("ready", flush=True)
        sys.stdin.read()
