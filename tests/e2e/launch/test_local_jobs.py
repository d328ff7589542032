"""Real launchers on this machine: ranks meet, failures end the job with the right code, a split
brain is refused.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from busbw.core.errors import NoMeasurement
from busbw.launch import job, mpirun
from busbw.launch.failures import launcher_error
from busbw.launch.signal_handlers import terminable

ROOT = Path(__file__).parents[3]
RANK = str(ROOT / "tests/netlab/rank.py")
ENV = {**os.environ, "PYTHONPATH": str(ROOT / "src")}


@pytest.fixture
def open_mpi() -> mpirun.Mpirun:
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    try:
        return mpirun.find()
    except NoMeasurement as error:
        pytest.skip(error.message)


def run(argv: list[str], limit_s: float = 60) -> tuple[int, list[dict[str, object]], str]:
    lines: list[bytes] = []
    talk: list[bytes] = []
    status = job.run(argv, ENV, lines.append, talk.append, limit_s)
    return status, [json.loads(line) for line in lines], b"\n".join(talk).decode(errors="replace")


def test_three_local_ranks_meet(open_mpi):
    status, (facts,), _ = run(mpirun.command(open_mpi, [sys.executable, RANK, "meet", "3"], 3))
    assert status == 0
    assert (facts["size"], facts["total"], facts["parts"]) == (3, [6.0, 3.0], [0, 2])


def test_abort_ends_the_job_with_its_code(open_mpi):
    status, _, _ = run(mpirun.command(open_mpi, [sys.executable, RANK, "abort"], 2))
    assert status == 3


def test_a_rank_that_fails_ends_the_job_instead_of_hanging_it(open_mpi):
    status, _, talk = run(mpirun.command(open_mpi, [sys.executable, RANK, "raise"], 2))
    assert status == 1
    assert "RuntimeError: told to" in talk


def test_a_rank_that_dies_is_named(open_mpi):
    die = (
        "import os; from mpi4py import MPI; MPI.COMM_WORLD.rank and os.kill(os.getpid(), 9);"
        " MPI.COMM_WORLD.Barrier()"
    )
    status, _, talk = run(mpirun.command(open_mpi, [sys.executable, "-c", die], 2))
    assert status == 137
    error = launcher_error(status, talk)
    assert "rank 1 on host" in error.message
    assert "died of signal 9 (SIGKILL)" in error.message


def test_a_program_that_is_not_there_is_named(open_mpi):
    status, _, talk = run(mpirun.command(open_mpi, ["/no/such/program"], 1))
    assert status != 0
    assert "/no/such/program does not exist" in launcher_error(status, talk).message


def test_a_temporary_directory_that_cannot_be_made_is_named(open_mpi, monkeypatch):
    # of these tests, before TMPDIR
    monkeypatch.delitem(ENV, "PRTE_MCA_prte_local_tmpdir_base", raising=False)
    monkeypatch.setitem(ENV, "TMPDIR", "/proc/none")
    status, _, talk = run(mpirun.command(open_mpi, ["true"], 1))
    assert "Open MPI cannot create its directory /proc/none" in launcher_error(status, talk).message


def test_the_wrong_number_of_ranks_is_refused(open_mpi):
    status, lines, _ = run(mpirun.command(open_mpi, [sys.executable, RANK, "meet", "4"], 2))
    assert status == 3
    assert "4 ranks were requested, but Open MPI started 2" in str(lines[0]["error"])


@pytest.mark.parametrize(
    ("env", "launcher", "hint"),
    [
        (
            {"OMPI_COMM_WORLD_RANK": "{rank}", "OMPI_COMM_WORLD_SIZE": "2"},
            "Open MPI",
            "mpirun -n 2",
        ),
        (
            {
                "SLURM_STEP_ID": "0",
                "SLURM_PROCID": "{rank}",
                "SLURM_NTASKS": "2",
                "SLURM_JOB_ID": "1",
            },
            "Slurm",
            "srun --mpi=pmix -n 2",
        ),
        ({"PMI_RANK": "{rank}", "PMI_SIZE": "2"}, "MPICH", "mpirun -n 2"),
    ],
)
def test_a_split_brain_is_refused_by_every_process(open_mpi, env, launcher, hint):
    clean = {
        name: value
        for name, value in ENV.items()
        if not name.startswith(("OMPI_", "PMIX_", "PMI_", "SLURM_"))
    }
    for rank in range(2):
        settings = {name: value.format(rank=rank) for name, value in env.items()}
        done = subprocess.run(
            [sys.executable, RANK, "meet"],
            env={**clean, **settings},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 3, done.stderr
        error = json.loads(done.stdout)["error"]
        assert f"{launcher} started 2 ranks, but Open MPI" in error
        assert "sees 1: each would measure only itself" in error
        assert hint in error.partition("hint: ")[2]


def test_a_silent_launcher_and_its_children_are_killed(tmp_path):
    pids = tmp_path / "pids"
    script = (
        f"trap '' TERM; (setsid sleep 600 & echo $! >{pids}); echo talk >&2; echo not an event;"
        " while :; do sleep 600; done"
    )
    talk: list[bytes] = []
    with pytest.raises(NoMeasurement, match=r"no rank reported within 0\.5 s of starting sh"):
        job.run(["sh", "-c", script], ENV, lambda _: None, talk.append, 0.5)
    assert sorted(talk) == [b"not an event", b"talk"]
    assert b"sleep" not in _read(Path("/proc", pids.read_text().strip(), "cmdline"))


def test_much_on_both_streams_at_once_does_not_block():
    noise = (
        "import sys; e, o = sys.stderr.write, sys.stdout.write;"
        "[(e('e' * 9999 + '\\n'), o('{' + 'o' * 9999 + '}\\n')) for _ in range(300)]; o('{end')"
    )
    lines: list[bytes] = []
    talk: list[bytes] = []
    assert job.run([sys.executable, "-c", noise], ENV, lines.append, talk.append, 30) == 0
    assert (len(lines), lines[-1], len(talk)) == (301, b"{end", 300)
    assert {len(line) for line in lines[:-1]} == {10001}


def test_a_second_sigterm_does_not_cut_cleanup_short(tmp_path):
    mark = f"BUSBW_TEST={tmp_path}".encode()
    script = "trap '' TERM; setsid sleep 600 & echo '{}'; while :; do sleep 600; done"
    main = (
        "import os, sys; from busbw.launch import job;"
        "job.run(sys.argv[1:], os.environ, lambda _: print('up', flush=True), lambda _: None, 60)"
    )
    words = [sys.executable, "-c", main, "sh", "-c", script]
    with subprocess.Popen(
        words, env={**ENV, "BUSBW_TEST": str(tmp_path)}, stdout=subprocess.PIPE
    ) as busbw:
        assert busbw.stdout is not None
        assert busbw.stdout.readline() == b"up\n"
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGHUP):
            busbw.send_signal(number)
            time.sleep(0.5)
        assert busbw.wait(20) == 128 + signal.SIGTERM
    left = [entry for entry in Path("/proc").glob("[0-9]*/environ") if mark in _read(entry)]
    assert left == []


@pytest.mark.parametrize(
    ("number", "printed"),
    [(signal.SIGTERM, "SystemExit(143)"), (signal.SIGINT, "KeyboardInterrupt()")],
)
def test_sigterm_in_a_finalizer_still_ends_the_process(number, printed):
    program = f"""
import os, time
from busbw.launch.signal_handlers import terminable

class Told:
    def __del__(self):
        os.kill(os.getpid(), {number:d})
        time.sleep(0.1)

try:
    with terminable():
        Told()
        time.sleep(5)
        print("went on")
except BaseException as error:
    print(repr(error))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=ENV,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.stdout, done.stderr) == (f"{printed}\n", "")


@pytest.mark.parametrize(
    ("number", "reason", "code"),
    [(signal.SIGTERM, "terminated", 143), (signal.SIGINT, "interrupted", 130)],
)
def test_sigterm_under_an_outer_mpirun_saves_the_result(open_mpi, tmp_path, number, reason, code):
    file = tmp_path / "out.json"
    words = [*shlex.split("run all_reduce -b 8 -e 256M --engine mpi --iters 200 --json"), str(file)]
    argv = mpirun.command(open_mpi, [sys.executable, "-m", "busbw", *words], 2)
    with subprocess.Popen(
        argv, env=ENV, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as launcher:
        end = time.monotonic() + 90
        while b'"time_s"' not in _read(file) and launcher.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        os.kill(json.loads(file.read_bytes())["world"]["devices"][0]["pid"], number)
        launcher.communicate(timeout=30)
    result = json.loads(file.read_bytes())
    assert (launcher.returncode, result["errors"], result.get("complete", False)) == (
        code,
        [reason],
        False,
    )
    assert result["rows"]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_was_ignored_stays_ignored(number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_IGN)  # nohup does so with SIGHUP
    try:
        with terminable(), job.terminable():
            assert signal.getsignal(number) is signal.SIG_IGN
            signal.raise_signal(number)
        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, before)
