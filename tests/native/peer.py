"""One process of a job, driven by lines of JSON: `python peer.py LIBRARY VERSION`.

A line in is {"do": NAME, ...arguments}, a line out is its answer, or {"raised": TEXT, "code": N}
for an error of the plugin. Comms are the plugin's own addresses.
"""

import json
import resource
import sys
import threading
import time
from collections.abc import Callable
from ctypes import CDLL, c_char
from pathlib import Path
from typing import Any

import flow
from nccl_net import HANDLE_BYTES, Net, NetError

PAUSE_S = 200e-6
_Try = Callable[[Any], int | None]


class Peer:
    """The requests: one method `do_NAME` each."""

    def __init__(self, library: Path, version: int) -> None:
        self.net = Net(library, version)
        self.lines: list[list[Any]] = []
        self.handles: dict[str, Any] = {}
        self.flows: dict[int, list[flow.Flow]] = {}
        self.behind: dict[str, tuple[threading.Thread, list[dict[str, Any]]]] = {}

    def answer(self, words: dict[str, Any]) -> dict[str, Any]:
        """Execute a request."""
        words = dict(words)
        try:
            return getattr(self, f"do_{words.pop('do')}")(**words)
        except NetError as error:
            return {"raised": str(error), "code": error.code}

    def do_init(self) -> dict[str, Any]:
        """Call init; returns name, devices and properties."""
        self.net.init(lambda level, flags, text: self.lines.append([level, flags, text]))
        devices = [self.net.properties(device) for device in range(self.net.devices())]
        return {"name": self.net.name, "present": sorted(self.net.present), "devices": devices}

    def do_finalize(self) -> dict[str, Any]:
        """Call finalize."""
        self.net.finalize()
        return {}

    def do_listen(self, device: int = 0) -> dict[str, Any]:
        """A listener, its handle, and the seconds of the call."""
        began = time.perf_counter()
        comm, handle = self.net.listen(device)
        return {"comm": comm, "handle": handle.hex(), "seconds": time.perf_counter() - began}

    def do_connect(self, handles: list[str], device: int = 0, limit_s: float = 0) -> dict[str, Any]:
        """Senders by handle.

        Calls connect in turn until all are open or the limit has passed; with limit 0 once for
        each.
        """

        def connect(text: str) -> int | None:
            # The plugin may keep its state in these bytes between calls, so they are one object per
            # handle.
            handle_buffer = self.handles.setdefault(
                text, (c_char * HANDLE_BYTES).from_buffer_copy(bytes.fromhex(text))
            )
            return self.net.connect(device, handle_buffer)

        return _in_turn(connect, handles, limit_s)

    def do_accept(self, listeners: list[int], limit_s: float = 0) -> dict[str, Any]:
        """Receivers by listener. Each listener is closed at once, as NCCL does."""

        def accept(listener: int) -> int | None:
            comm = self.net.accept(listener)
            if comm is not None:
                self.net.close_listen(listener)
            return comm

        return _in_turn(accept, listeners, limit_s)

    def do_memory(self, comm: int, kind: int = 1) -> dict[str, Any]:
        """Registers and deregisters memory."""
        self.net.dereg_mr(comm, self.net.reg_mr(comm, 0x1000, 4096, kind))
        return {}

    def do_iflush(self, comm: int) -> dict[str, Any]:
        """Calls iflush, which is refused."""
        self.net.iflush(comm)
        return {}

    def do_traffic(
        self, flows: list[dict[str, Any]], limit_s: float = 30, until_posted: bool = False
    ) -> dict[str, Any]:
        """Run flows to their end, or until their windows are posted.

        Buffers stay valid until the comm is closed.
        """
        started = [flow.Flow(**fields) for fields in flows]
        for started_flow in started:
            self.flows.setdefault(started_flow.comm, []).append(started_flow)
        began, cpu = time.monotonic(), time.thread_time()
        flow.run(self.net, started, limit_s, until_posted)
        return {
            "flows": [started_flow.report() for started_flow in started],
            "began": began,
            "cpu_s": time.thread_time() - cpu,
        }

    def do_faults(self, comm: int) -> dict[str, Any]:
        """Writes outside the buffers of outstanding requests."""
        return {
            "faults": [
                fault
                for outstanding in self.flows.get(comm, [])
                for fault in outstanding.outstanding_faults()
            ]
        }

    def do_close(self, way: str, comm: int) -> dict[str, Any]:
        """Close a comm; returns the seconds of the call."""
        began = time.perf_counter()
        {"send": self.net.close_send, "recv": self.net.close_recv, "listen": self.net.close_listen}[
            way
        ](comm)
        self.flows.pop(comm, None)
        return {"seconds": time.perf_counter() - began}

    def do_begin(self, name: str, line: dict[str, Any]) -> dict[str, Any]:
        """Execute the request `line` in another thread."""
        answers: list[dict[str, Any]] = []
        thread = threading.Thread(target=lambda: answers.append(self.answer(line)))
        self.behind[name] = (thread, answers)
        thread.start()
        return {}

    def do_end(self, name: str) -> dict[str, Any]:
        """The answer of that request."""
        thread, answers = self.behind.pop(name)
        thread.join()
        return answers[0]

    def do_log(self) -> dict[str, Any]:
        """All lines so far: level, subsystems, text."""
        return {"lines": self.lines}

    def do_usage(self) -> dict[str, Any]:
        """CPU seconds, threads, memory."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        status = dict(
            line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines()
        )
        return {
            "cpu_s": used.ru_utime + used.ru_stime,
            "rss": int(status["VmRSS"].split()[0]) * 1024,
            "threads": int(status["Threads"]),
        }


def _in_turn(call: _Try, arguments: list[Any], limit_s: float) -> dict[str, Any]:
    """Comms in the order of `arguments`, None for those that are not ready, how many calls it took
    and the slowest in seconds.

    A call that was preempted does not count for the slowest: only calls that wait do.
    """
    deadline = time.monotonic() + limit_s
    comms: dict[int, int] = {}
    calls, slowest = 0, 0.0
    while True:
        for number, argument in enumerate(arguments):
            if number in comms:
                continue
            preempted = resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw
            began = time.perf_counter()
            comm = call(argument)
            took = time.perf_counter() - began
            calls += 1
            if resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw == preempted:
                slowest = max(slowest, took)
            if comm is not None:
                comms[number] = comm
        if len(comms) == len(arguments) or time.monotonic() >= deadline:
            return {
                "comms": [comms.get(number) for number in range(len(arguments))],
                "calls": calls,
                "slowest_s": slowest,
            }
        time.sleep(PAUSE_S)


def main() -> None:
    """Answer requests until the input ends."""
    peer = Peer(Path(sys.argv[1]), int(sys.argv[2]))
    for line in sys.stdin:
        print(json.dumps(peer.answer(json.loads(line))), flush=True)
    # Like a C program that exits without destroying its communicators. A normal exit would finalize
    # the interpreter, whose logger the plugin's threads may still call.
    CDLL(None).exit(0)


if __name__ == "__main__":
    main()
