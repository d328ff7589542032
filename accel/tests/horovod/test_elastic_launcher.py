"""The launcher of elastic jobs: which workers form a world when workers are lost, join and
leave, and every limit.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from busbw.core.errors import Exit, UsageError
from busbw_accel.horovod.elastic import launcher

SOURCE = str(Path(__file__).parents[2] / "src")
WORKER = str(Path(__file__).with_name("elastic_worker.py"))
LIMIT_S = 30


class Job:
    """`busbw horovodrun` with an elastic job of workers without a training."""

    def __init__(self, folder, *words, slots=2):
        self.folder, self.worlds = folder, 0
        self.slots(slots)
        script = folder / "discover.sh"
        script.write_text(f"#!/bin/sh\ncat {folder}/hosts\n")
        script.chmod(0o755)
        program = [sys.executable, WORKER, str(folder)]
        line = [
            sys.executable,
            "-m",
            "busbw",
            "horovodrun",
            *words,
            "--host-discovery-script",
            str(script),
            *program,
        ]
        environment = {**os.environ, "PYTHONPATH": SOURCE, "TMPDIR": str(folder)}
        self.process = subprocess.Popen(line, env=environment, stderr=subprocess.PIPE, text=True)

    def slots(self, count):
        part = self.folder / "hosts.part"
        part.write_text(f"localhost:{count}\n")
        part.replace(self.folder / "hosts")

    def touch(self, name):
        (self.folder / name).touch()

    def next_world(self):
        """Wait for the next world; its ranks in order."""
        self.worlds += 1
        self.wait_for(lambda: (ranks := self._world()) and len(ranks) == ranks[0]["size"])
        ranks = self._world()
        assert [rank["rank"] for rank in ranks] == list(range(len(ranks)))
        return ranks

    def _world(self):
        log = self.folder / "log"
        lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        return sorted(
            (event for event in lines if event["number"] == self.worlds),
            key=lambda event: event["rank"],
        )

    def wait_for(self, condition):
        end_s = time.monotonic() + LIMIT_S
        while not condition():
            if time.monotonic() > end_s or self.process.poll() is not None:
                self.process.kill()
                raise AssertionError(f"world {self.worlds}: {self.process.communicate()[1]}")
            time.sleep(0.02)

    def children(self):
        return (
            Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        )

    def end(self):
        """The exit code and stderr."""
        _, output = self.process.communicate(timeout=LIMIT_S)
        return self.process.returncode, output


def slots_of(world):
    return [rank["local_rank"] for rank in world]


def ends_soon(pid):
    """Whether a process ends soon."""
    end_s = time.monotonic() + 10
    while time.monotonic() < end_s:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


def test_lost_workers_are_replaced_on_spare_slots_and_slots_come_and_go(tmp_path):
    job = Job(tmp_path, "-np", "2", "--min-np", "1", "--max-np", "2", slots=3)
    first = job.next_world()
    assert slots_of(first) == [0, 1]
    os.kill(first[0]["pid"], signal.SIGKILL)
    job.touch("next.1")
    second = job.next_world()
    assert slots_of(second) == [1, 2], "the survivor is rank 0, and keeps its slot"
    assert second[0]["pid"] == first[1]["pid"]
    # slot 2 is gone: rank 0 is told, and slot 0 is out of use since its worker was killed
    job.slots(2)
    third = job.next_world()
    assert slots_of(third) == [1] and ends_soon(second[1]["pid"])
    job.slots(3)
    assert slots_of(job.next_world()) == [1, 2]
    job.touch("done")
    code, output = job.end()
    assert code == Exit.OK, output
    assert "busbw horovodrun: the worker on slot 0 (rank 0) was killed by signal 9\n" in output
    assert "busbw horovodrun: world 2: 2 ranks on slots 1, 2\n" in output


def test_a_failed_slot_is_used_again_after_its_cooldown_and_changes_are_limited(tmp_path):
    job = Job(
        tmp_path,
        "-np",
        "2",
        "--min-np",
        "2",
        "--blacklist-cooldown-range",
        "1",
        "1",
        "--reset-limit",
        "1",
    )
    pids = [rank["pid"] for rank in job.next_world()]
    job.slots(1)  # too few: both ranks leave the world and wait
    job.wait_for(lambda: (tmp_path / "next.1").exists())
    job.slots(2)
    world = job.next_world()
    assert [rank["pid"] for rank in world] == pids
    # its slot is used again, for the world that is one too many
    os.kill(world[1]["pid"], signal.SIGKILL)
    job.touch("next.2")
    code, output = job.end()
    assert code == Exit.UNKNOWN and "error: the workers have changed more than 1 times" in output


def test_a_silent_worker_is_killed_and_the_job_fails_if_too_few_are_left(tmp_path):
    job = Job(tmp_path, "-np", "2", "--min-np", "2", "--elastic-timeout", "1")
    job.next_world()
    job.touch("hang.1")
    job.touch("next.1")
    code, output = job.end()
    assert code == Exit.UNKNOWN
    assert "the worker on slot 1 (rank 1) did not join a new world within 1 s" in output
    assert (
        "error: 1 of at least 2 workers are ready, of 2 slots, 1 s after a change\n\n"
        "hint: free more slots" in output
    )


def test_a_new_worker_that_comes_too_late_is_no_failure(tmp_path):
    job = Job(tmp_path, "-np", "1", "--min-np", "1", slots=1)
    job.next_world()
    job.touch("hold")
    job.slots(2)
    job.wait_for((tmp_path / "held").exists)
    job.touch("done")
    assert job.end()[0] == Exit.OK


def test_the_job_ends_with_the_code_of_a_worker_if_all_ranks_fail(tmp_path):
    job = Job(tmp_path, "-np", "2", "--min-np", "1")
    job.next_world()
    job.touch("hold")
    job.slots(3)  # a new worker, which would begin again
    job.wait_for((tmp_path / "held").exists)
    job.touch("fail.0")
    job.touch("fail.1")
    code, output = job.end()
    assert code == 7 and "the worker on slot 1 (rank 1) ended with 7" in output


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGKILL, -signal.SIGKILL),
        (signal.SIGINT, Exit.INTERRUPTED),
        (signal.SIGTERM, 128 + signal.SIGTERM),
    ],
)
def test_workers_end_with_their_launcher(tmp_path, number, code):
    job = Job(tmp_path, "-np", "2", "--min-np", "1")
    job.next_world()
    job.touch("hold")
    job.slots(3)  # one that does not listen to the launcher yet
    job.wait_for((tmp_path / "held").exists)
    pids, before = job.children(), set(tmp_path.iterdir())
    job.process.send_signal(number)
    assert job.process.wait(timeout=LIMIT_S) == code
    job.process.stderr.close()
    assert all(ends_soon(pid) for pid in pids)
    assert set(tmp_path.iterdir()) == before, "the folder for temporary files"


def test_an_elastic_job_runs_on_this_host_only():
    assert (
        launcher.parse("localhost:2\n\n127.0.0.1\nlocalhost:0\n", 3, "d.sh") == 5
        and launcher.parse("", 1, "d.sh") == 0
    )
    with pytest.raises(
        UsageError,
        match=r"d\.sh: h2 is not this host, and the workers of an elastic job run on one host",
    ) as raised:
        launcher.parse("localhost:2\nh2:2\n", 1, "d.sh")
    assert "torchrun" in raised.value.hint


def test_the_last_valid_answer_of_a_script_stays(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(launcher, "PERIOD_S", 0.02)
    answer = tmp_path / "answer"
    answer.write_text("localhost:2\n")
    script = launcher.Script(f"cat '{answer}'", 1)
    output = ""
    for invalid_output in (b"\xff\xfe\n", b"h2:2\n", None):
        if invalid_output is None:
            answer.unlink()
        else:
            answer.write_bytes(invalid_output)
        end_s = time.monotonic() + LIMIT_S
        while not (more := capsys.readouterr().err) and time.monotonic() < end_s:
            time.sleep(0.02)
        output += more
        assert script.slots() == 2
    answer.write_text("localhost:0\n")
    while script.slots() and time.monotonic() < end_s:
        time.sleep(0.02)
    script.stop()
    assert script.slots() == 0
    assert [line.rpartition("; ")[2] for line in output.splitlines()] == [
        "2 slots stay in use"
    ] * 3, output


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(1, 99), max_size=9))
def test_slots_of_all_lines_are_added(slots):
    assert launcher.parse("".join(f"  localhost:{count}\n" for count in slots), 1, "d.sh") == sum(
        slots
    )


def test_cooldowns_double_up_to_the_longest():
    slots = launcher.Slots(lambda: 2, (10, 30))
    times = []
    for _ in range(4):
        slots.fail(1, 100.0)
        assert slots.usable(100.0) == [0]
        times.append(next(after for after in range(1, 99) if slots.usable(100.0 + after) == [0, 1]))
    assert times == [10, 20, 30, 30]
