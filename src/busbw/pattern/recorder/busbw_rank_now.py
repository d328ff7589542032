"""What a rank does now: the recorder's file `.rank_N.now`, small enough to be written each second.

It names the process, and has the last steps and the numbers of the last calls. The calls themselves
are in it while the rank makes none, since a dump of the Flight Recorder may take a second.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import platform
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

VERSION = 1
WRITE_EVERY_S = 1.0
# At most so much of the job's time is for dumps: PyTorch holds the interpreter's lock in one, for
# some 0.6 s of 20000 calls, and all ranks wait. One that makes no call and no step is dumped soon.
WRITING_SHARE = 0.002
STILL_SHARE = 0.1
STILL = 3  # times WRITE_EVERY_S
LAST_CALLS = 64
LAST_STEPS = 100  # a reader that looks each second misses none of 10 ms
DEFAULT_GROUP = ("0", "default_pg")  # its name and description
WORLD_VARIABLES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
DUMPS = ("_dump_nccl_trace", "_dump_fr_trace")  # of PyTorch, by kind of device


class DumpPace:
    """How far a rank is, and when its calls are dumped again: seldom while it makes calls, and soon
    when it stands still.
    """

    def __init__(self) -> None:
        self.dumped: dict[str, Any] = {}
        self._dumped_at: Any = None  # how far the rank was then
        self._at: Any = None
        self._still = 0  # for how many looks
        self._end_s, self._took_s = time.monotonic(), 0.0
        self._world = 1

    def now(
        self,
        rank: int | None,
        world: int | None,
        launch: str,
        steps: dict[str, Any],
        *,
        ended: bool,
        is_dumped: bool = False,
    ) -> bytes:
        """The content of `.rank_N.now`. `launch` names the busbw that started the rank, `ended` is
        whether Python comes to its end, `is_dumped` whether the calls were dumped just now.
        """
        status = dump(world, calls=False)
        self._world = world or 1
        at = repr(status.get("pg_status")), steps.get("first_step"), len(steps.get("steps_us", ()))
        self._still = self._still + 1 if at == self._at else 0
        self._at = at
        self._dumped_at = at if ended or is_dumped else self._dumped_at
        is_current = at == self._dumped_at
        entries = self.dumped.get("entries", []) if is_current else []
        earlier = [entry for entry in entries[:-LAST_CALLS] if not _has_ended(entry)][:LAST_CALLS]
        record = {
            "version": VERSION,
            "rank": rank,
            "world": world or 0,
            "host": platform.node(),
            "pid": os.getpid(),
            "started": _start_time(),
            "pid_namespace": str(Path("/proc/self/ns/pid").readlink()),
            "launch": launch,
            "ended": ended,
            "written_ns": time.time_ns(),
            **steps,
            "pg_config": status.get("pg_config", {}),
            "pg_status": status.get("pg_status", {}),
            "entries": earlier + entries[-LAST_CALLS:],
        }
        return json.dumps(record, default=str).encode()

    def is_due(self) -> bool:
        """Whether the calls are to be dumped now."""
        is_still = self._still >= STILL and self._at != self._dumped_at
        share = STILL_SHARE if is_still else WRITING_SHARE / self._world
        return time.monotonic() >= self._end_s + self._took_s / share

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """Around a dump."""
        start_s = time.monotonic()
        yield
        self._end_s, self._dumped_at = time.monotonic(), self._at
        self._took_s = self._end_s - start_s


def dump(world: int | None, *, calls: bool = True) -> dict[str, Any]:
    """The Flight Recorder's dump of NCCL's calls, or of Gloo's; {} without a call. Without `calls`
    it has their numbers alone, and takes 40 us.
    """
    import torch

    for name in DUMPS:
        make = getattr(torch._C._distributed_c10d, name, None)
        data: bytes = make(calls, False, False) if make else b""  # without stack traces
        if (b"profiling_name" if calls else b"last_enqueued") in data:
            content: dict[str, Any] = pickle.loads(data)
            add_world(content, world)
            return content
    return {}


def last_steps(starts: list[int], waits_us: dict[int, float]) -> dict[str, Any]:
    """The last steps, from their starts in ns and the waits by number of the step."""
    count = max(0, len(starts) - 1)  # it grows meanwhile
    first = max(0, count - LAST_STEPS)
    numbers = range(first, count)
    return {
        "first_step": first,
        # of CLOCK_MONOTONIC, as the profiler plugin's times are: when the last of them ended
        "step_end_ns": starts[count] if starts else 0,
        "steps_us": [(starts[at + 1] - starts[at]) / 1e3 for at in numbers],
        "waits_us": [round(waits_us[at], 1) if at in waits_us else None for at in numbers],
    }


def _has_ended(entry: dict[str, Any]) -> bool:
    return entry.get("state") == "completed" or bool(entry.get("retired"))


def _start_time() -> int:
    """Clock ticks since boot (proc(5)). With the pid they identify the process."""
    return int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])


def add_world(dump: dict[str, Any], world: int | None) -> None:
    """Add the ranks of the default group, which a dump of Gloo's calls does not name."""
    groups = dump.setdefault("pg_config", {})
    if world and not any(name in groups for name in DEFAULT_GROUP):
        name, description = DEFAULT_GROUP
        groups[name] = {"name": name, "desc": description, "ranks": str(list(range(world)))}


_of_group: list[int] = []  # rank and world of the default group, where no launcher states them


def note_group() -> None:
    """Take rank and world from PyTorch where the launcher's are not those of its default group: a
    server starts its workers itself, and all of them may have the variables of the server.
    """
    import torch.distributed as dist

    rank, world = dist.get_rank(), dist.get_world_size()
    if _from_environment(WORLD_VARIABLES) != world:
        _of_group[:] = rank, world


def world_of_process() -> int | None:
    """How many ranks there are, by the launcher or PyTorch; None if neither says."""
    return _of_group[1] if _of_group else _from_environment(WORLD_VARIABLES)


def rank_of_process() -> int | None:
    """The rank of this process, by the launcher or PyTorch; None if neither says."""
    return _of_group[0] if _of_group else _from_environment(RANK_VARIABLES)


def _from_environment(names: tuple[str, ...]) -> int | None:
    """The number in the first of these variables that is set."""
    return next((int(os.environ[name]) for name in names if name in os.environ), None)
