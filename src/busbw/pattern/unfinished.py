"""Whether the capture in a folder has come to its end: it may still run, or have been killed."""

import math
import platform
import time
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from busbw.core.pattern_weights import ranks_text
from busbw.host import process

KEPT = "pattern.jsonl"  # what busbw makes of a capture at its end
CAPTURED = (".capture", ".fr")  # files with calls, the best first
OF_RANKS = (*CAPTURED, ".ddp")
NOW = ".rank_*.now"
FRESH_S = 10.0  # a rank that runs writes its file about once a second


class RankProcess(msgspec.Struct):
    """What `.rank_N.now` (recorder/busbw_rank_now.py) says of the process."""

    rank: int
    host: str
    pid: int
    started: int
    pid_namespace: str
    ended: bool
    world: int = 0  # ranks of the job; 0 if unknown


def is_unfinished(folder: Path) -> bool:
    """Whether ranks have written to a folder for which busbw has made no pattern."""
    if not folder.is_dir() or (folder / KEPT).exists():
        return False
    return any(path.suffix in CAPTURED for path in folder.iterdir()) or has_ranks(folder)


def in_pattern(folder: Path) -> list[Path]:
    """The files of the ranks that the pattern of a folder is made of: those that are not newer."""
    try:
        until_s = (folder / KEPT).stat().st_mtime
    except OSError:
        until_s = math.inf
    files = [path for path in folder.iterdir() if path.suffix in OF_RANKS]
    return [path for path in files if path.stat().st_mtime <= until_s]


def has_ranks(folder: Path) -> bool:
    """Whether ranks have said in a folder what they do."""
    return any(folder.glob(NOW))


def note(folder: Path) -> str:
    """Which ranks had not come to the end of their program, and until when their calls are there;
    '' if the capture has ended.
    """
    if (folder / KEPT).exists():
        return ""
    unended = {rank.rank: _runs(folder, rank) for rank in rank_processes(folder) if not rank.ended}
    if not unended:
        return ""
    running = [rank for rank, runs in unended.items() if runs]
    ranks = ranks_text(running or list(unended))
    if running:
        state = f"the capture is not finished: {ranks} still run{'s' if len(running) == 1 else ''}"
    else:
        state = f"the capture was not ended: {ranks} did not come to the end of the program"
    written = [path.stat().st_mtime for path in folder.glob("rank_*.fr")]
    if not written:
        return state
    until = datetime.fromtimestamp(min(written), UTC)
    return f"{state}; all calls until {until:%H:%M:%S} UTC are read, and some later ones"


def rank_process(path: Path) -> RankProcess | None:
    """The process of a rank; None if its file is being replaced, or is of another version."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=RankProcess)
    except (OSError, ValueError):
        return None


def rank_processes(folder: Path) -> list[RankProcess]:
    """The processes of the ranks whose files can be read."""
    found = [rank_process(path) for path in sorted(folder.glob(NOW))]
    return [rank for rank in found if rank]


def _runs(folder: Path, rank: RankProcess) -> bool:
    """Whether its process runs; of one of another host or container, whether it wrote lately."""
    namespace = str(Path("/proc/self/ns/pid").readlink())
    if (rank.host, rank.pid_namespace) != (platform.node(), namespace):
        written_s = (folder / NOW.replace("*", str(rank.rank))).stat().st_mtime
        return time.time() - written_s < FRESH_S
    if process.start_time(rank.pid) != rank.started:
        return False
    return process.state(rank.pid) not in process.ENDED
