"""Precise timing with real ranks: clocks that differ, a rank that begins late, and the words
that follow.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from busbw.launch import mpirun

LIMIT_S = 120
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
    program = [sys.executable, "-c", SCRIPT, str(ranks)]
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


def run(*words: str, folder: Path) -> dict[str, object]:
    file = folder / "result.json"
    line = [
        str(Path(sys.executable).with_name("busbw")),
        "run",
        "all_reduce",
        *words,
        "--json",
        str(file),
    ]
    done = subprocess.run(line, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, object] = json.loads(file.read_text(encoding="utf-8"))
    return {**result, "stdout": done.stdout}


def test_two_cpu_ranks_are_measured_precisely_by_default(tmp_path: Path) -> None:
    result = run(
        "-n", "2", "-b", "1K", "-e", "64K", "-f", "8", "--max-time", "0.3", folder=tmp_path
    )
    for row in result["rows"]:  # type: ignore[attr-defined]
        for placement in ("out_of_place", "in_place"):
            cell = row[placement]
            assert cell["stopped"] in ("ok", "budget", "unstable")
            assert cell["low_s"] is None or cell["low_s"] <= cell["time_s"] <= cell["high_s"]
            assert 0 < cell["op_s"] <= cell["time_s"] * 1.5
            assert len(cell["late_s"]) == 2
            assert cell["wrong"] == 0
        assert row["machine"], "the host's own counters stand beside"


def test_a_rank_that_begins_late_is_named(tmp_path: Path) -> None:
    # 150 ms, so that a machine busy with other tests does not drown it.
    words = ("-n", "3", "-b", "1M", "-e", "1M", "--iters", "5", "--inject", "late:rank=1,us=150000")
    result = run(*words, folder=tmp_path)
    late = [finding for finding in result["findings"] if finding["id"] == "late_rank"]  # type: ignore[attr-defined]
    assert len(late) == 1, result["stdout"]
    assert "rank 1 on " in late[0]["message"]
    assert "is late" in str(result["stdout"])


def test_iters_fixes_the_number_of_samples(tmp_path: Path) -> None:
    result = run("-n", "2", "-b", "1K", "-e", "1K", "--iters", "11", folder=tmp_path)
    cell = result["rows"][0]["in_place"]  # type: ignore[index]
    assert (len(cell["samples_s"]), cell["stopped"]) == (11, "fixed")


def test_classic_timing_takes_no_samples_and_open_mpi_needs_no_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOME", raising=False)
    result = run("-n", "2", "-b", "1K", "-e", "1K", "--timing", "classic", folder=tmp_path)
    assert result["spec"]["sampling"] is None  # type: ignore[index]
    assert result["rows"][0]["in_place"]["stopped"] == ""  # type: ignore[index]
