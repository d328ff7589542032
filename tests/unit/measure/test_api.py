"""`busbw.run` as called by a program: on simulated ranks in this process, and on real MPI ranks."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import busbw
from busbw import UsageError
from busbw.core.json_codec import decode
from busbw.measure.record import RunRecord
from busbw.measure.sink import Sink


def test_a_sweep_by_name_returns_rows_and_findings() -> None:
    spec = busbw.SweepSpec(
        collective="all_reduce",
        min_bytes=1024,
        max_bytes=4096,
        step_factor=2,
        sampling=busbw.Sampling(max_time_s=60),
    )
    result = busbw.run(spec, engine="sim", ranks=4, ideal="400GB/s")
    assert isinstance(result, busbw.Result)
    assert [row.size_bytes for row in result.rows] == [1024, 2048, 4096]
    assert (result.complete, result.world.ranks, result.program) == (True, 4, "busbw.run")
    assert "data" in [finding.id for finding in result.findings]


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    busbw.run(busbw.SweepSpec(collective="broadcast", max_bytes=8), engine="sim", ranks=2)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("spec", "options", "message"),
    [
        ("all_reduec", {}, "unknown collective 'all_reduec'"),
        (busbw.SweepSpec(collective="all_reduce", min_bytes=0), {}, "--minbytes 0"),
        (
            busbw.SweepSpec(collective="all_reduce", min_bytes=3, max_bytes=3),
            {"engine": "sim"},
            "needs 4 B or more",
        ),
        (
            busbw.SweepSpec(collective="all_gather", min_bytes=8, max_bytes=64),
            {"engine": "sim", "ranks": 8},
            "needs 128 B or more",
        ),
        ("all_reduce", {"engine": "ncl"}, "unknown engine 'ncl'"),
        ("all_reduce", {"engine": "sim", "hosts": "h1:2"}, "runs in this process"),
        ("all_reduce", {"engine": "sim", "ranks": 0}, "0 ranks: there must be at least one"),
        ("all_reduce", {"hosts": "h1:2", "hostfile": Path("hosts")}, "exclude each other"),
    ],
)
def test_invalid_arguments_are_usage_errors(
    spec: str | busbw.SweepSpec, options: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        busbw.run(spec, **options)  # type: ignore[arg-type]
    assert message in caught.value.message


PROGRAM = """
import json, logging, busbw
logging.basicConfig(level=logging.INFO)
result = busbw.run(busbw.SweepSpec(collective="all_reduce", min_bytes=8, max_bytes=64, step_factor=8), engine="mpi", ranks=2)
print(json.dumps([result.world.ranks, [row.size_bytes for row in result.rows], result.complete]))
"""


@pytest.mark.usefixtures("ranks_are_forks")
def test_ranks_are_started_and_followed() -> None:
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=100,
        env=dict(os.environ),
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == [2, [8, 64], True]


def test_import_loads_neither_click_nor_an_engine() -> None:
    code = (
        "import sys, busbw; print([name for name in ('click', 'numpy', 'torch', 'msgspec')"
        " if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert result.stdout == "[]\n"


def test_messages_are_logged(logged: Callable[[], list[str]]) -> None:
    from busbw.measure.record import RunRecord
    from busbw.measure.sink import Sink

    Sink(RunRecord()).note("note: measuring on CPUs")
    assert logged() == ["note: measuring on CPUs"]


def _watchdogs(before: set[threading.Thread]) -> list[threading.Thread]:
    """Those that were started since `before`: other tests of this process may have left some."""
    return [
        thread
        for thread in threading.enumerate()
        if thread.name == "watchdog" and thread not in before
    ]


def test_a_failed_rank_of_a_running_job_stops_its_watchdog(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    for name, value in (("RANK", "0"), ("SIZE", "1"), ("LOCAL_RANK", "0")):
        monkeypatch.setenv(f"OMPI_COMM_WORLD_{name}", value)
    before = set(threading.enumerate())
    with pytest.raises(UsageError, match="the sim engine runs in one process"):
        busbw.run("all_reduce", engine="sim")
    end = time.monotonic() + 5
    while time.monotonic() < end and _watchdogs(before):
        time.sleep(0.05)
    assert not _watchdogs(before)


def test_added_text_is_part_of_the_error() -> None:
    error = UsageError("boom")
    error.add(", after the row of 1M")
    assert str(error) == "boom, after the row of 1M"


def test_a_result_holds_no_secret_and_only_its_owner_reads_it(tmp_path, monkeypatch):
    file, secret = tmp_path / "result.json", "s3cret-v4lue"
    setting = "-o PasswordAuthentication=no"
    for name, value in (
        ("SLURM_JWT", secret),
        ("NCCL_X", f"--password {secret}"),
        ("NCCL_Y", f"Bearer {secret}"),
        ("NCCL_SSH", setting),
    ):
        monkeypatch.setenv(name, value)
    argv = [
        "busbw",
        "run",
        "--launcher-args",
        f"-x HF_TOKEN={secret}",
        f"--token={secret}",
        "-np",
        "2",
    ]
    spec = busbw.SweepSpec(collective="all_reduce", min_bytes=8, max_bytes=8)
    result = busbw.run(spec, engine="sim", ranks=2, argv=argv, sink=Sink(RunRecord(file)))
    assert secret not in file.read_text() and file.stat().st_mode & 0o777 == 0o600
    assert result.argv == [
        "busbw",
        "run",
        "--launcher-args",
        "-x HF_TOKEN=***",
        "--token=***",
        "-np",
        "2",
    ]
    assert result.environment["NCCL_SSH"] == setting and result.environment["SLURM_JWT"] == "***"
    assert decode(file.read_bytes(), busbw.Result).rows == result.rows
