"""A whole job in one process and in several: its events, averages over ranks, groups, and the
report of a failing rank.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from busbw.core import rank_messages
from busbw.core.errors import Exit, NoMeasurement, UsageError
from busbw.core.result import Result, ResultRow
from busbw.core.sweep import SweepSpec
from busbw.engines.sim import SimEngine
from busbw.launch import job as launched
from busbw.launch import mpirun
from busbw.launch.control import SoloControl
from busbw.measure.events import Ended, Event, Note, RowDone, Started
from busbw.measure.job import SWEEP, SweepJob, encode, perform
from busbw.measure.process_groups import Party
from busbw.measure.rank import fail
from busbw.measure.rank_failure import failure
from busbw.measure.sweep import allocate_buffers, measure

LIMIT_S = 100
PROGRAM = str(Path(__file__).with_name("job_rank.py"))
SOURCE = str(Path(__file__).parents[3] / "src")
Run = Callable[..., list[bytes]]


def spec(name: str = "all_reduce", **fields: Any) -> SweepSpec:
    return SweepSpec(
        collective=name,
        **({"min_bytes": 1024, "max_bytes": 4096, "step_factor": 2, "iters": 2} | fields),
    )


def events(job: SweepJob) -> list[Event]:
    events_seen: list[Event] = []
    measure(job, SoloControl(), events_seen.append)
    return events_seen


def test_a_job_emits_start_row_and_end_events() -> None:
    first, *rows, last = events(
        SweepJob(
            sweep=spec(),
            engine="sim",
            gpus_per_process=4,
            argv=["busbw", "run"],
            program="busbw run",
        )
    )
    assert isinstance(first, Started)
    result = first.result
    assert (result.rows, result.complete, result.spec, result.argv, result.library.engine) == (
        [],
        False,
        spec(),
        ["busbw", "run"],
        "sim",
    )
    assert (result.world.ranks, result.world.processes, result.world.groups) == (4, 1, 1)
    assert len(result.topology.hosts) == 1
    assert [row.row.size_bytes for row in rows if isinstance(row, RowDone)] == [1024, 2048, 4096]
    assert isinstance(last, Ended)
    assert last.end[:2] == "20"
    assert [row.out_of_bounds for row in rows if isinstance(row, RowDone)] == [0, 0, 0]


def test_wrong_data_is_counted_after_every_row() -> None:
    events_seen = events(
        SweepJob(sweep=spec(), engine="sim", gpus_per_process=2, simulation={"corrupt_rank": 1})
    )
    counts = [event.out_of_bounds for event in events_seen if isinstance(event, RowDone)]
    assert counts == [2, 4, 6], "three sizes in two placements"


def test_alltoallv_prints_bytes_per_rank_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY", "1")
    events_seen = events(
        SweepJob(sweep=spec("alltoallv", max_bytes=1024), engine="sim", gpus_per_process=2)
    )
    assert [event.text for event in events_seen if isinstance(event, Note)] == [
        "# rank 0 sends 1024 bytes: 0 1024",
        "# rank 1 sends 1024 bytes: 1024 0",
    ]
    monkeypatch.setenv("NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY", "0")
    assert not any(
        isinstance(event, Note)
        for event in events(
            SweepJob(sweep=spec("alltoallv", max_bytes=1024), engine="sim", gpus_per_process=2)
        )
    )


def test_counts_are_in_the_result_with_their_traffic() -> None:
    counts = "zipf:1.2,rows=1000,ids=500,dedup"
    first, note, *later_events = events(
        SweepJob(
            sweep=spec("alltoallv", counts=counts, max_bytes=1 << 20),
            engine="sim",
            gpus_per_process=3,
        )
    )
    assert isinstance(first, Started) and isinstance(note, Note)
    assert note.text == "note: a batch of 500 ids asks for 146 different rows"
    traffic = first.result.traffic
    assert traffic is not None
    assert (traffic.source, traffic.ranks, traffic.size_bytes) == (
        "zipf:1.2,rows=1000,ids=500,dedup,seed=1",
        3,
        (1 << 20) // 48 * 48,
    )
    assert all(
        row.row.out_of_place.wrong == 0
        for row in later_events
        if isinstance(row, RowDone) and row.row.out_of_place
    )
    assert (
        events(SweepJob(sweep=spec("alltoall"), engine="sim", gpus_per_process=3))[0].result.traffic
        is None
    )


def test_ranks_that_read_different_files_do_not_start(tmp_path: Path) -> None:
    class Other(SoloControl):
        def allgather(self, value: object) -> list[object]:
            return [value, "matrix sha256:other"] if isinstance(value, str) else [value]

    (tmp_path / "counts.csv").write_text("0 1\n1 0\n")
    job = SweepJob(sweep=spec("alltoallv", counts=str(tmp_path / "counts.csv")), engine="sim")
    with pytest.raises(
        UsageError,
        match="alltoallv: process 1 reads matrix sha256:other, but process 0 matrix sha256:",
    ):
        allocate_buffers(job, Party(SoloControl(), Other(), 0, 1, 0), Small(2, {}))


class Small(SimEngine):
    """A machine of 3 MiB."""

    def memory_bytes(self) -> int | None:
        return 3 << 20


def test_a_size_beyond_memory_is_lowered_with_a_note() -> None:
    party = Party(SoloControl(), SoloControl(), 0, 1, 0)
    lowered, _ = allocate_buffers(
        SweepJob(sweep=spec(max_bytes=1 << 30), engine="sim"), party, Small(2, {})
    )
    assert lowered.reduced_max_bytes == (3 << 20) // 2 // 3
    assert lowered.spec.max_bytes == 1 << 30, "the requested size stays in the result"
    lowered_job, max_bytes = allocate_buffers(
        SweepJob(sweep=spec(), engine="sim"), party, Small(2, {})
    )
    assert (lowered_job.reduced_max_bytes, max_bytes) == (None, 4096)


def test_secrets_of_the_environment_are_not_in_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NCCL_AUTH_TOKEN", "MY_PASSWORD", "UCX_SECRET"):
        monkeypatch.setenv(name, "hunter2")
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    for compat in (False, True):
        first = events(SweepJob(sweep=spec(), engine="sim", gpus_per_process=2, compat=compat))[0]
        assert isinstance(first, Started)
        assert "hunter2" not in repr(first)
        assert first.result.environment["NCCL_ALGO"] == "Ring"
        assert ("MY_PASSWORD" in first.result.environment) == compat


@pytest.mark.parametrize(
    ("error", "code", "message", "hint"),
    [
        (UsageError("-b 0: no", "start at 1"), Exit.USAGE, "-b 0: no", "start at 1"),
        (NoMeasurement("no GPU"), Exit.UNKNOWN, "no GPU", ""),
        (KeyError("x"), Exit.BUG, "a rank failed: KeyError: 'x'", "please report this"),
    ],
)
def test_a_failing_rank_reports_reason_and_exit_code(
    capfd: pytest.CaptureFixture[str], error: BaseException, code: Exit, message: str, hint: str
) -> None:
    assert fail(error, None) == code
    failures = [report for line in capfd.readouterr().err.splitlines() if (report := failure(line))]
    assert [(report.message, report.exit, report.rank) for report in failures] == [
        (message, code, -1)
    ]
    assert failures[0].hint.startswith(hint)


@pytest.mark.usefixtures("ranks_are_forks")
def test_a_ranks_stdout_contains_only_events() -> None:
    job = encode(SweepJob(sweep=spec(), engine="sim", gpus_per_process=2))
    line = [sys.executable, "-m", "busbw.measure.rank", job]
    result = subprocess.run(
        line,
        capture_output=True,
        timeout=LIMIT_S,
        env={**os.environ, "PYTHONPATH": SOURCE},
        check=False,
    )
    assert result.returncode == 0
    kinds = [type(rank_messages.decode(line)) for line in result.stderr.decode().splitlines()]
    # Other processes of this one may end meanwhile: a rank takes them for its neighbours.
    assert [kind for kind in kinds if kind is not rank_messages.Gone] == [
        rank_messages.Here,
        rank_messages.Leaving,
    ]
    assert [type(SWEEP.decode_event(line)) for line in result.stdout.splitlines()] == [
        Started,
        RowDone,
        RowDone,
        RowDone,
        Ended,
    ]


@pytest.fixture(scope="module")
def ranks(warm_busbw: str) -> Run:
    """Runs job_rank.py on a number of ranks; returns the JSON lines it printed."""
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    try:
        launcher = mpirun.find()
    except NoMeasurement as error:
        pytest.skip(error.message)

    def run(count: int, *words: str, **env: str) -> list[bytes]:
        captured: list[bytes] = []
        talk: list[bytes] = []
        line = mpirun.command(launcher, [warm_busbw, PROGRAM, *words], count, env=env)
        status = launched.run(
            line,
            {**os.environ, "PYTHONPATH": SOURCE, "OMPI_MCA_mpi_yield_when_idle": "1"},
            captured.append,
            talk.append,
            LIMIT_S,
        )
        assert status == 0, b"\n".join(talk).decode(errors="replace")
        return captured or talk

    return run


def test_times_over_ranks_are_first_mean_minimum_or_maximum(ranks: Run) -> None:
    (line,) = ranks(3, "averages")
    assert json.loads(line) == [[1.0, 2.0, 1.0, 3.0, 2.0]] * 3, (
        "-a 0 to 3, and any other is the mean; the same on all ranks"
    )


def single_row(lines: list[bytes]) -> tuple[Result, list[ResultRow]]:
    events_seen = [SWEEP.decode_event(line) for line in lines]
    assert isinstance(events_seen[0], Started)
    assert isinstance(events_seen[-1], Ended)
    assert all(event.out_of_bounds == 0 for event in events_seen if isinstance(event, RowDone))
    return events_seen[0].result, [event.row for event in events_seen if isinstance(event, RowDone)]


def test_cell_samples_are_the_maxima_over_processes(ranks: Run) -> None:
    fields = {
        "min_bytes": 64,
        "max_bytes": 64,
        "per_iter_timing": 1,
        "per_iter_skip": 1,
        "iters": 4,
        "average": 3,
    }
    result, (row,) = single_row(ranks(2, "measure", json.dumps(fields)))
    assert (result.world.processes, result.world.ranks) == (2, 2)
    assert [device.rank for device in result.world.devices] == [0, 1]
    for cell in (row.out_of_place, row.in_place):
        assert cell is not None
        assert cell.samples_s is not None
        assert cell.process_samples_s is not None
        assert [len(samples) for samples in cell.process_samples_s] == [4, 4]
        assert cell.samples_s == [max(pair) for pair in zip(*cell.process_samples_s, strict=True)]
        assert (cell.wrong, cell.skipped) == (0, 1)


def test_groups_of_a_split_measure_simultaneously(ranks: Run) -> None:
    fields = {"min_bytes": 4096, "max_bytes": 4096, "iters": 2}
    result, (row,) = single_row(ranks(4, "measure", json.dumps(fields), NCCL_TESTS_SPLIT="MOD 2"))
    assert (result.world.processes, result.world.groups, result.world.ranks) == (4, 2, 2)
    assert [(device.rank, device.group) for device in result.world.devices] == [
        (0, 0),
        (1, 1),
        (2, 0),
        (3, 1),
    ]
    assert row.out_of_place is not None
    assert row.out_of_place.wrong == 0
    assert row.out_of_place.busbw == pytest.approx(row.out_of_place.algbw), (
        "2(n-1)/n of two ranks is 1"
    )


def test_a_package_that_cannot_be_imported_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: str) -> None:
        raise ImportError("libcudart.so.13: cannot open shared object file", name="torch")

    monkeypatch.setattr("busbw.measure.job.import_module", broken)
    job = SweepJob(engine="sim", sweep=spec())
    with pytest.raises(NoMeasurement) as caught:
        perform(job, SoloControl(), lambda _: None)
    assert caught.value.message.startswith("torch cannot be imported: libcudart.so.13")
