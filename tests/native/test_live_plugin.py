"""A job that the plugin records, watched while it runs: the verdicts of `busbw watch job`."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from busbw.core.finding import Verdict
from busbw.job.live.judge import judge
from busbw.job.live.reader import JobFolder
from busbw.job.live.types import LiveVerdict

PROGRAM = Path(__file__).with_name("live_rank.py")


class Ranks:
    """Three processes that do what they are told (live_rank.py)."""

    def __init__(self, library: Path, environ: dict[str, str]) -> None:
        command = [sys.executable, str(PROGRAM), str(library), "5"]
        self.processes = [
            subprocess.Popen(
                command,
                env=environ | {"RANK": str(rank), "WORLD_SIZE": "3"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(3)
        ]
        self._answers(range(3))

    def do(self, command: str, *ranks: int) -> None:
        """Let these ranks do that, by default all."""
        for rank in ranks or range(3):
            to = self.processes[rank].stdin
            assert to
            to.write(f"{command}\n")
            to.flush()
        self._answers(ranks or range(3))

    def _answers(self, ranks: range | tuple[int, ...]) -> None:
        for rank in ranks:
            answer = self.processes[rank].stdout
            assert answer and answer.readline() == "ok\n"

    def leave(self, *ranks: int) -> None:
        for rank in ranks:
            self.processes[rank].communicate("exit\n", timeout=10)

    def kill(self, *ranks: int) -> None:
        for rank in ranks or range(3):
            self.processes[rank].kill()
            self.processes[rank].communicate(timeout=10)


@pytest.fixture
def start(plugin_library: Path, driver: Path, tmp_path: Path) -> Iterator[Callable[..., Ranks]]:
    started: list[Ranks] = []

    def start(mode: str = "timed") -> Ranks:
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("NCCL_", "BUSBW_", "TORCH_", "RANK", "WORLD_SIZE"))
        }
        clean |= {"LD_LIBRARY_PATH": str(driver), "BUSBW_CAPTURE": str(tmp_path)}
        started.append(Ranks(plugin_library, clean | {"BUSBW_CAPTURE_MODE": mode}))
        return started[-1]

    yield start
    for ranks in started:
        ranks.kill()


def settled(folder: JobFolder, clock: float, calls: int, ranks: int = 3) -> LiveVerdict:
    """The verdict once so many ranks' calls have been read: the plugin writes within 10 ms."""
    for _ in range(2000):
        look = folder.look(clock)
        if sum(rank.last == f"{calls} of comm comm 0" for rank in look.ranks.values()) == ranks:
            return judge(look)
        time.sleep(0.005)
    raise AssertionError(f"the calls do not come: {look.ranks}")


def test_a_late_rank_is_named_by_the_times_of_calls(
    start: Callable[..., Ranks], tmp_path: Path
) -> None:
    ranks = start()
    ranks.do("steps 200")
    settled(JobFolder(tmp_path), 0.0, 600)
    found = judge(JobFolder(tmp_path).look(0.0))
    assert (found.verdict, found.kind) == (Verdict.PASS, "")
    ranks.do("steps 200 1")
    settled(JobFolder(tmp_path), 0.0, 1200)
    found = judge(JobFolder(tmp_path).look(0.0))
    assert (found.verdict, found.kind, found.suspects) == (Verdict.WARN, "late", [1])
    assert re.search(r"^late: rank 1 on .* by (399|400|401)\.\d us in each step ", found.message)


def test_a_rank_without_a_call_then_with_another_one_then_killed(
    start: Callable[..., Ranks], tmp_path: Path
) -> None:
    ranks, watched = start("cheap"), JobFolder(tmp_path)
    ranks.do("steps 100")
    found = settled(watched, 0.0, 300)
    assert (found.kind, found.message.endswith("busbw capture --timed records them")) == (
        "unjudged",
        True,
    )
    ranks.do("call AllReduce 7", 0, 2)
    settled(watched, 1.0, 301, ranks=2)
    found = judge(watched.look(13.0))
    assert (found.verdict, found.kind, found.suspects) == (Verdict.FAIL, "missing", [1])
    assert found.message.startswith("rank 1 has not called all_reduce number 301 of comm comm 0, ")
    ranks.do("call AllReduce 8", 1)
    settled(watched, 14.0, 301)
    found = judge(watched.look(20.0))
    assert (found.kind, found.suspects) == ("mismatch", [1])
    assert "rank 1 all_reduce of 8 float; ranks" in found.message
    os.kill(ranks.processes[2].pid, signal.SIGSTOP)
    os.waitid(os.P_PID, ranks.processes[2].pid, os.WSTOPPED | os.WNOWAIT)
    found = judge(watched.look(21.0))
    assert (found.kind, found.suspects) == ("stopped", [2])
    ranks.kill(2)
    ranks.do("call AllReduce 9", 0, 1)
    found = settled(watched, 22.0, 302, ranks=2)
    assert (found.verdict, found.kind, found.suspects) == (Verdict.FAIL, "dead", [2])


def test_all_ranks_in_a_call_that_does_not_end(start: Callable[..., Ranks], tmp_path: Path) -> None:
    ranks, watched = start(), JobFolder(tmp_path)
    ranks.do("steps 100")
    settled(watched, 0.0, 300)
    ranks.do("launch AllReduce 7")
    settled(watched, 1.0, 301)
    found = judge(watched.look(13.0))
    assert (found.verdict, found.kind) == (Verdict.FAIL, "stalled")
    assert found.message.startswith("all ranks have called all_reduce number 301 of comm comm 0, ")


def test_ranks_that_end_accuse_nobody(start: Callable[..., Ranks], tmp_path: Path) -> None:
    ranks, watched = start("cheap"), JobFolder(tmp_path)
    ranks.do("steps 10")
    settled(watched, 0.0, 30)
    ranks.leave(0)  # without ending its communicators
    assert judge(watched.look(1.0)).kind == "unjudged"
    ranks.do("end", 1, 2)
    ranks.leave(1, 2)
    assert judge(watched.look(2.0)).kind == "over"
