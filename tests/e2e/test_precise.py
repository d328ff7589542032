"""Precise timing with real ranks: clocks that differ, a rank that begins late, and the words
that follow.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from busbw.launch import mpirun

Busbw = Callable[..., Any]
Results = Callable[..., dict[str, Any]]
LIMIT_S = 120
PYTHON = sys.executable  # one that starts anew
pytestmark = pytest.mark.usefixtures("ranks_are_forks")
SCRIPT = """
import json, sys, time
from busbw.launch.rendezvous import join
from busbw.measure.batches import Clocks
import os
control = join(dict(os.environ), expect=int(sys.argv[1]))
clocks = Clocks(control)
found = [clocks.offset_s() for _ in range(3)][-1]
every = control.gather((found, time.perf_counter() - time.clock_gettime(time.CLOCK_REALTIME)))
if control.process == 0:
    print(json.dumps(every))
control.close()
"""


def unshared() -> list[str]:
    """The command prefix that starts a program with another monotonic clock; skips where the
    kernel or util-linux cannot.
    """
    words = ["unshare", "--time", "--monotonic", "5000", "--fork"]
    if (
        not shutil.which("unshare")
        or subprocess.run([*words, "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("no time namespaces here")
    return words


@pytest.mark.parametrize("ranks", [2, 3])
def test_clocks_that_differ_are_brought_together(ranks: int) -> None:
    other = unshared()
    launcher = mpirun.find()
    line = [
        launcher.path,
        "--bind-to",
        "none",
        "--mca",
        "pml",
        "ob1",
        *(["--allow-run-as-root"] if os.geteuid() == 0 else []),
    ]
    line += ["--oversubscribe"] if launcher.major < 5 else ["--map-by", ":OVERSUBSCRIBE"]
    program = [PYTHON, "-c", SCRIPT, str(ranks)]
    line += ["-n", "1", *program, ":", "-n", str(ranks - 1), *other, *program]
    done = subprocess.run(line, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    clocks = json.loads(next(row for row in done.stdout.splitlines() if row.startswith("[[")))
    assert clocks[0][0] == 0.0
    for offset, real in clocks[1:]:
        assert offset == pytest.approx(clocks[0][1] - real, abs=2e-3), (
            "what the clock of the day says of both"
        )
        assert offset == pytest.approx(-5000, abs=10)


@pytest.fixture
def result_of(here: Busbw, tmp_path: Path) -> Results:
    """The result of `busbw run all_reduce` with these words, and what it printed."""

    def call(*words: str) -> dict[str, Any]:
        done = here("busbw", "run", "all_reduce", *words, "--json", "result.json")
        assert done.code == 0, done.err
        return {**json.loads((tmp_path / "result.json").read_text()), "stdout": done.out}

    return call


def test_two_cpu_ranks_are_measured_precisely_by_default(result_of: Results) -> None:
    result = result_of("-np", "2", "-b", "1K", "-e", "64K", "-f", "8", "--max-time", "0.3")
    for row in result["rows"]:
        for placement in ("out_of_place", "in_place"):
            cell = row[placement]
            assert cell["stopped"] in ("ok", "budget", "unstable")
            assert cell["low_s"] is None or cell["low_s"] <= cell["time_s"] <= cell["high_s"]
            assert 0 < cell["op_s"] <= cell["time_s"] * 1.5
            assert len(cell["late_s"]) == 2
            assert cell["wrong"] == 0
        assert row["machine"], "the host's own counters stand beside"


def test_a_rank_that_begins_late_is_named(result_of: Results) -> None:
    # 150 ms, so that a machine busy with other tests does not drown it.
    words = shlex.split("-np 3 -b 1M -e 1M --iters 5 --inject late:rank=1,us=150000")
    result = result_of(*words)
    late = [finding for finding in result["findings"] if finding["id"] == "late_rank"]
    assert len(late) == 1, result["stdout"]
    assert "rank 1 on " in late[0]["message"]
    assert "is late" in str(result["stdout"])


def test_iters_fixes_the_number_of_samples(result_of: Results) -> None:
    result = result_of("-np", "2", "-b", "1K", "-e", "1K", "--iters", "11")
    cell = result["rows"][0]["in_place"]
    assert (len(cell["samples_s"]), cell["stopped"]) == (11, "fixed")


def test_classic_timing_takes_no_samples_and_open_mpi_needs_no_home(
    result_of: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOME", raising=False)
    result = result_of("-np", "2", "-b", "1K", "-e", "1K", "--timing", "classic")
    assert result["spec"]["sampling"] is None
    assert result["rows"][0]["in_place"]["stopped"] == ""
