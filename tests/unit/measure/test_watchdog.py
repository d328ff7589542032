"""The watchdog in real processes: it speaks in time with what the rank does, does not bark at slow sizes, and leaves nothing behind."""

import math
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest

from busbw.core.reports import Gone, Here, Report, Stalled, decode
from busbw.core.sweep import Sampling, SweepSpec
from busbw.measure.watchdog import SLACK, Pace, Place, Watchdog

SPEC = SweepSpec(collective="all_reduce", min_bytes=8, max_bytes=1 << 20, step_factor=2, iters=20)
SOURCE = str(Path(__file__).parents[3] / "src")


def dog(limit_s: float = 0.2, start_limit_s: float = 0.2, rank: int = 0) -> tuple[Watchdog, list[Report], threading.Event]:
    said: list[Report] = []
    stalled = threading.Event()

    def tell(report: Report) -> None:
        said.append(report)
        if isinstance(report, Stalled):
            stalled.set()

    made = Watchdog(rank, SPEC, limit_s, start_limit_s, tell)
    made.start()
    return made, said, stalled


def test_a_rank_says_that_it_is_here_and_later_where_it_stands_and_what_it_does() -> None:
    made, said, stalled = dog()
    made.at("timing", "8 in place")
    assert stalled.wait(5)
    made.stop()
    here, *_, told = said
    assert isinstance(here, Here)
    assert isinstance(told, Stalled)
    assert (told.phase, told.detail, told.step, told.place) == ("timing", "8 in place", 1, "timing of 8 in place")
    assert 0.2 <= told.waited_s < 2
    assert any("test_watchdog.py" in call for call in told.doing) or any("threading.py" in call for call in told.doing)


def test_places_that_change_in_time_are_left_alone() -> None:
    made, said, stalled = dog(limit_s=0.3)
    for step in range(12):
        made.at("timing", f"{8 << step} in place")
        time.sleep(0.05)
    made.stop()
    assert not stalled.is_set()
    assert {type(one) for one in said} == {Here}


def test_the_phases_before_the_sweep_share_one_limit() -> None:
    made, said, stalled = dog(limit_s=60, start_limit_s=0.4)
    for phase in ("rendezvous", "init", "prepare"):
        made.at(phase)
        time.sleep(0.1)
    assert stalled.wait(2)
    made.stop()
    assert [one.phase for one in said if isinstance(one, Stalled)] == ["prepare"]


def test_an_engine_opened_anew_in_the_sweep_has_the_sweeps_limit() -> None:
    made, _, stalled = dog(limit_s=60, start_limit_s=0.1)
    made.at("timing", "8")
    time.sleep(0.2)
    made.at("init")
    assert not stalled.wait(0.3)
    made.stop()


def test_a_shorter_limit_than_the_one_slept_for_wakes_it() -> None:
    made, _, stalled = dog(limit_s=0.2, start_limit_s=3600)
    made.at("rendezvous")
    time.sleep(0.1)
    made.at("timing", "8")
    assert stalled.wait(2)
    made.stop()


def test_no_limit_is_none() -> None:
    assert Pace(SPEC, 0).allowed_s("timing", "8") == math.inf


def test_a_slow_size_is_given_time_for_all_its_iterations_and_the_next_one_more() -> None:
    pace = Pace(SPEC, 60)
    assert pace.allowed_s("timing", "8 in place") == 60
    pace.learn(Place(1, "warm-up", "1G", 0.0), 5.0)  # one operation took 5 s
    assert pace.allowed_s("timing", "1G in place") == 21 * 5.0 * SLACK
    assert pace.allowed_s("verify", "2G in place") == 2 * 5.0 * SLACK
    pace.learn(Place(2, "teardown", "", 0.0), 1e9)
    assert pace.allowed_s("verify", "1G in place") == 60


def test_the_first_operation_of_a_large_size_may_take_as_long_as_a_slow_network_needs() -> None:
    huge = Pace(msgspec.structs.replace(SPEC, min_bytes=8 << 30, max_bytes=8 << 30), 60)
    assert huge.allowed_s("warm-up", "8G") == pytest.approx(85.9, abs=0.1)


def test_sampling_adds_the_time_that_it_may_take() -> None:
    spec = msgspec.structs.replace(SPEC, sampling=Sampling(max_time_s=100))
    assert Pace(spec, 60).allowed_s("timing", "8") == pytest.approx(60 + 2 * 3 * 100, abs=0.1)


RANK = """
import sys, time
from busbw.core.sweep import SweepSpec
from busbw.measure import watchdog
from busbw.measure.events import say
watchdog.GRACE_S = 0.3
dog = watchdog.Watchdog(int(sys.argv[1]), SweepSpec(collective="all_reduce"), float(sys.argv[2]), 0, say)
dog.start()
dog.at("init")
dog.at("timing", "8")
time.sleep(30)
"""


def started(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", RANK, *words], env={"PYTHONPATH": SOURCE}, stderr=subprocess.PIPE, text=True)


def test_a_rank_that_nobody_ends_ends_itself_with_3() -> None:
    start = time.monotonic()
    with started("1", "0.3") as rank:
        assert rank.wait(20) == 3
        assert rank.stderr is not None
        told = [decode(line) for line in rank.stderr]
    assert [type(one) for one in told] == [Here, Stalled]
    assert time.monotonic() - start < 10


def test_the_end_of_a_neighbour_is_told_at_once() -> None:
    with started("0", "600") as other, started("1", "600") as rank:
        assert other.stderr is not None
        assert rank.stderr is not None
        assert isinstance(decode(rank.stderr.readline()), Here)
        other.stderr.readline()
        time.sleep(0.5)  # until it has looked for its neighbours
        other.kill()
        told = decode(rank.stderr.readline())
        rank.kill()
    assert isinstance(told, Gone)
    assert told.pid == other.pid
