"""Folders of a capture as the ranks of a running job leave them."""

import json
import os
import platform
import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from busbw.core.finding import Verdict
from busbw.host import process
from busbw.job.live.types import JobInterval, LiveRank

STEP_US, WAIT_US = 50_000.0, 6_000.0
GROUP = "0"


def steps(count: int = 200, late_us: float = 0.0, seed: int = 0, **changes: Any) -> dict[str, Any]:
    """The steps of a rank that waits less by `late_us` in each."""
    noise = random.Random(seed)
    return {
        "first_step": 0,
        "steps_us": [STEP_US + noise.gauss(0, 500) for _ in range(count)],
        "waits_us": [WAIT_US - late_us + noise.gauss(0, 200) for _ in range(count)],
    } | changes


def call(number: int, *, ended: bool = False, size: int = 4) -> dict[str, Any]:
    """A call as Gloo's ranks record it."""
    return {
        "record_id": number,
        "process_group": [GROUP, "default_pg"],
        "collective_seq_id": number,
        "profiling_name": "gloo:all_reduce",
        "time_created_ns": 1_795_957_000_000_000_000 + number,
        "input_sizes": [[size]],
        "input_dtypes": ["Float"],
        "state": "scheduled",
        "retired": ended,
        "is_p2p": False,
    }


def write(folder: Path, rank: int, of: Mapping[str, Any] | None = None, **changes: Any) -> None:
    """Replace the file of one of three ranks, by default of one that is this process."""
    pid = changes.get("pid", os.getpid())
    record = {
        "version": 1,
        "rank": rank,
        "world": 3,
        "host": platform.node(),
        "pid": pid,
        "started": process.start_time(pid),
        "pid_namespace": str(Path("/proc/self/ns/pid").readlink()),
        "launch": "this",
        "ended": False,
        "written_ns": time.time_ns(),
        "pg_config": {GROUP: {"name": GROUP, "desc": "default_pg", "ranks": "[0, 1, 2]"}},
        "pg_status": {GROUP: {"last_enqueued_collective": 9, "last_completed_collective": 9}},
        "entries": [],
    }
    part = folder / f"..rank_{rank}.now.part"
    part.write_text(json.dumps(record | dict(of or {}) | changes))
    part.replace(folder / f".rank_{rank}.now")


def write_job(folder: Path, late_us: float = 0.0, **of_rank_1: Any) -> None:
    """Three ranks after 200 steps; rank 1 is late by so much in each, or as it is said."""
    for rank in range(3):
        late = late_us if rank == 1 else 0.0
        write(folder, rank, steps(late_us=late, seed=rank), **(of_rank_1 if rank == 1 else {}))


def looks(seconds: int = 1, count: int = 8, of_rank_1: Any = None, **fields: Any) -> list[Any]:
    """What is seen each second of ranks that make ten steps in each, on hosts of eight ranks."""
    ranks = [
        LiveRank(rank=rank, host=f"h{rank // 8}", pid=100 + rank, state="S", late_s=-0.001)
        for rank in range(count)
    ]
    for name, value in (of_rank_1 or {}).items():
        setattr(ranks[1], name, value)
    known: dict[str, Any] = {"verdict": Verdict.PASS, "message": "no rank was late", "world": count}
    known |= {"step_s": 0.1, "usual_s": 0.08, "waiting": 0.25} | fields
    return [
        JobInterval(
            at=f"2026-11-29T15:{second // 60:02}:{second % 60:02}.000+00:00",
            ranks=[msgspec.structs.replace(rank, steps=10 * second) for rank in ranks],
            **known,
        )
        for second in range(seconds)
    ]
