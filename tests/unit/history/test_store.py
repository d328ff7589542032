"""The history in SQLite: what is stored can be read back, even if other processes write at the
same time.
"""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import datetime
from pathlib import Path

import msgspec
import pytest
from history_runs import add, refused, result

from busbw.core import json_codec
from busbw.core.alltoallv import traffic
from busbw.core.cells import cells
from busbw.core.errors import TimedOut, UsageError
from busbw.core.result import Cell, EngineLibrary, RankDevice, Result, ResultRow, World
from busbw.core.sweep import Sampling, SweepSpec
from busbw.history import schema, store, text
from busbw.history.place import history_file, kept_in
from busbw.history.run_keys import stored
from busbw.history.store import baseline, opened
from busbw.pattern.replay.kind import ReplayResult
from busbw.pattern.replay.types import Replay, ReplaySpec

MANY = 25


def test_only_its_owner_reads_a_new_history_and_a_shared_one_stays_shared(tmp_path: Path) -> None:
    file, before = tmp_path / "h.sqlite", os.umask(0)
    try:
        with opened(file, create=True) as history:
            history.add([result(1)])
            assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}, (
                "its log and index too"
            )
        file.chmod(0o664)
        add(file, result(2))
        assert file.stat().st_mode & 0o777 == 0o664
    finally:
        os.umask(before)


def test_the_same_result_twice_is_stored_once(tmp_path: Path) -> None:
    with opened(tmp_path / "h.sqlite", create=True) as history:
        assert history.add([result(1)]) == [(1, True)]
        assert history.add([result(2), result(1), result(2)]) == [(2, True), (1, False), (2, False)]
        assert [run.id for run in history.runs()] == [2, 1]
        assert history.id_of(result(2)) == 2
        assert history.id_of(result(3)) is None


def test_the_whole_result_and_every_cell_are_there(tmp_path: Path) -> None:
    file = tmp_path / "h.sqlite"
    odd_result = result(
        rows=[
            *result().rows,
            *result().rows,
            ResultRow(32, 8, "half", "", 3, Cell(float("nan"), 0.0, float("inf")), None, 1),
        ]
    )
    add(file, odd_result)
    with sqlite3.connect(file) as connection:
        (stored_text,) = connection.execute("SELECT result FROM runs").fetchone()
    connection.close()
    assert json_codec.encode(json_codec.decode(stored_text, Result)) == json_codec.encode(
        odd_result
    )
    with opened(file, create=False) as history:
        (run,) = history.runs()
        stored_times = {time.key: (time.time_s, time.busbw) for time in history.times([run])}
    assert str(sorted(stored_times.items())) == str(
        sorted((key, (figure.time_s, figure.cell.busbw)) for key, figure in cells(odd_result))
    )
    assert (run.min_bytes, run.max_bytes, run.peak_busbw) == (8, 32, 2e9)
    assert run.complete and not run.wrong and not run.uncertain_busbw


def test_a_run_has_the_cell_above_its_peak(tmp_path: Path) -> None:
    unstable = Cell(1e-6, 3e9, 3e9, stopped="unstable")
    rows = [*result().rows, ResultRow(32, 8, "half", "", 3, unstable, None, 1)]
    add(tmp_path / "h.sqlite", result(rows=rows))
    with opened(tmp_path / "h.sqlite", create=False) as history:
        (run,) = history.runs()
    assert (run.peak_busbw, run.uncertain_busbw) == (2e9, 3e9)


def test_runs_are_listed_newest_first_by_machine(tmp_path: Path) -> None:
    file = tmp_path / "h.sqlite"
    other = result(3, spec=SweepSpec(collective="broadcast"))
    add(file, result(5), other, result(9))
    with opened(file, create=False) as history:
        assert [run.start[8:10] for run in history.runs()] == ["10", "06", "04"]
        assert [run.id for run in history.runs(collective="broadcast")] == [2]
        assert len(history.runs("UNNAMED")) == 3
        assert history.runs("h200") == []


def test_runs_of_many_hosts_are_found_by_each_host_and_shown_folded(tmp_path: Path) -> None:
    file = tmp_path / "h.sqlite"
    devices = [RankDevice(n, 1, f"gpu{n:03}", 0, "", "NVIDIA H20") for n in range(1, 9)]
    many = result(1, world=World(devices, processes=8), library=EngineLibrary("nccl"))
    add(file, many, result(2))
    with opened(file, create=False) as history:
        (run,) = history.runs("gpu003")
    names = "+".join(f"gpu{n:03}" for n in range(1, 9))
    assert run.machine == f"{names}: 8 x NVIDIA H20, nccl"
    assert "gpu[001-008]: 8 x NVIDIA H20, nccl" in text.listed([run])


def test_the_baseline_is_the_last_other_runs_with_these_cells(tmp_path: Path) -> None:
    file = tmp_path / "h.sqlite"
    short = result(20, rows=result().rows[:1])
    add(file, *(result(i) for i in range(6)), short, result(21, complete=False))
    with opened(file, create=False) as history:
        assert list(baseline(history, result(4), 3)) == [6, 4, 3]
        assert list(baseline(history, result(99), 30)) == [6, 5, 4, 3, 2, 1]
        assert list(baseline(history, msgspec.structs.replace(short, tool="other"), 2)) == [7, 6]


def test_only_complete_correct_runs_of_one_kind_are_compared(tmp_path: Path) -> None:
    others = (
        result(1, complete=False),
        result(2, out_of_bounds=1),
        result(3, spec=SweepSpec(collective="all_reduce", sampling=Sampling())),
        result(4, spec=SweepSpec(collective="broadcast")),
        result(5, library=EngineLibrary("mpi")),
    )
    file = tmp_path / "h.sqlite"
    add(file, result(0), *others)
    with opened(file, create=False) as history:
        assert list(baseline(history, result(9), 30)) == [1]
        assert [run.id for run in history.runs()] == [6, 5, 4, 3, 2, 1]


def test_an_id_is_never_given_to_another_run(tmp_path: Path) -> None:
    file = tmp_path / "h.sqlite"
    with opened(file, create=True) as history:
        history.add([result(1), result(2)])
        history.remove([2])
        assert history.add([result(3)]) == [(3, True)]
        history.remove([1, 3])
        assert history.keep(result(4)) == 4


def test_the_baseline_has_the_same_bytes_for_each_pair(tmp_path: Path) -> None:
    file = tmp_path / "h.sqlite"
    runs = [
        result(n, traffic=traffic([[0, 16], [16, 0]], source, ["h", "h"]))
        for n, source in enumerate(("", "zipf:1", "zipf:1", "zipf:2"))
    ]
    add(file, *runs)
    with opened(file, create=False) as history:
        assert [run.counts for run in history.runs()] == ["zipf:2", "zipf:1", "zipf:1", ""]
        assert list(baseline(history, runs[1], 30)) == [3]
        assert list(baseline(history, runs[0], 30)) == []


WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_store import MANY, result
from busbw.history.store import opened
for number in range(MANY):
    with opened(Path(sys.argv[2]), create=True) as history:
        history.add([result(1000 * int(sys.argv[3]) + number)])
        history.add([result(number)])
"""


def test_two_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    file = tmp_path / "new" / "h.sqlite"
    words = [sys.executable, "-c", WRITER, str(Path(__file__).parent), str(file)]
    writers = [
        subprocess.Popen([*words, str(number)], stderr=subprocess.PIPE, text=True)
        for number in (1, 2, 3)
    ]
    errors = [writer.communicate(timeout=100)[1] for writer in writers]
    assert [(writer.returncode, text) for writer, text in zip(writers, errors, strict=True)] == [
        (0, "")
    ] * 3
    with opened(file, create=False) as history:
        runs = history.runs()
        assert len(runs) == 4 * MANY
        assert len(list(history.times(runs))) == 4 * 4 * MANY


def test_a_locked_database_is_waited_for_then_reported(tmp_path: Path) -> None:
    file = tmp_path / "h.sqlite"
    add(file, result(1))
    holder = sqlite3.connect(file, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    error = refused(file)
    assert isinstance(error, TimedOut)
    assert "locked by another program for more than 0.2 s" in error.message
    with opened(file, create=False) as history:  # readers go on
        assert len(history.runs()) == 1
    holder.execute("ROLLBACK")
    holder.close()
    add(file, result(2))


def test_a_run_without_rows_has_no_sizes_and_no_peak() -> None:
    run = stored(result(rows=[], start=""), datetime(2026, 11, 20, 10, 0, 1))
    assert (run.id, run.min_bytes, run.max_bytes, run.peak_busbw) == (0, 0, 0, 0.0)
    assert run.start == "2026-11-20 10:00:01"


def test_a_newer_schema_is_left_alone(tmp_path: Path) -> None:
    file, known = tmp_path / "h.sqlite", len(schema.MIGRATIONS)
    add(file, result(1))
    connection = sqlite3.connect(file)
    connection.execute(f"PRAGMA user_version = {known + 1}")
    connection.close()
    error = refused(file)
    assert isinstance(error, UsageError)
    assert f"schema {known + 1} is newer than this busbw's {known}" in error.message


def test_an_older_schema_is_migrated_with_its_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "h.sqlite"
    add(file, result(1))
    monkeypatch.setattr(
        schema,
        "MIGRATIONS",
        (*schema.MIGRATIONS, ("ALTER TABLE runs ADD COLUMN note TEXT NOT NULL DEFAULT ''",)),
    )
    with opened(file, create=False) as history:
        assert [run.id for run in history.runs()] == [1]
    connection = sqlite3.connect(file)
    assert connection.execute("PRAGMA user_version").fetchone() == (len(schema.MIGRATIONS),)
    assert connection.execute("SELECT note FROM runs").fetchall() == [("",)]
    connection.close()


def test_a_migration_that_fails_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "h.sqlite"
    add(file, result(1))
    released = schema.MIGRATIONS
    monkeypatch.setattr(
        schema, "MIGRATIONS", (*released, ("ALTER TABLE runs ADD COLUMN note TEXT", "no SQL"))
    )
    assert "syntax error" in refused(file).message
    monkeypatch.setattr(schema, "MIGRATIONS", released)
    with opened(file, create=False) as history:
        assert len(history.runs()) == 1


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE books (title TEXT)",
        "CREATE TABLE books (title TEXT); PRAGMA user_version = 1",
        "CREATE TABLE runs (title TEXT); CREATE TABLE cells (title TEXT); PRAGMA user_version = 1",
        "CREATE TABLE books (title TEXT); PRAGMA user_version = 2",
        "CREATE TABLE books (title TEXT); PRAGMA user_version = 77",
        "CREATE TABLE runs (digest, machine, collective, result); PRAGMA user_version = 2",
        "PRAGMA application_id = 7",
    ],
)
def test_another_programs_database_is_not_written_to(
    tmp_path: Path, statement: str, create: bool
) -> None:
    file = tmp_path / "other.sqlite"
    connection = sqlite3.connect(file)
    connection.executescript(statement)
    connection.close()
    before = file.read_bytes()
    error = refused(file, create=create)
    assert isinstance(error, UsageError)
    assert "an SQLite file, but not a history of busbw" in error.message
    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["other.sqlite"]


def test_an_empty_file_can_become_a_history(tmp_path: Path) -> None:
    file = tmp_path / "h.sqlite"
    file.touch()
    assert "no such history" in refused(file, create=False).message
    assert file.read_bytes() == b""
    add(file, result(1))


def test_the_header_identifies_a_history_old_files_included(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "h.sqlite"
    monkeypatch.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:1])
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        schema.migrate(connection, str(file))
        columns = (
            "digest, start, machine, collective, nccl, timing, min_bytes, max_bytes, peak_busbw,"
            " complete, wrong, result"
        )
        values = (
            "'old', '2026-11-01 10:00:00', 'h: 2 x CPU, mpi', 'alltoallv', 0, 'classic', 8, 16,"
            " 2e9, 1, 0, '{}'"
        )
        connection.execute(f"INSERT INTO runs ({columns}) VALUES ({values})")
    assert file.read_bytes()[68:72] == bytes(4)
    monkeypatch.undo()
    add(file, result(2))
    assert file.read_bytes()[68:72] == b"busb"
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",), (
            "a write-ahead log breaks where several hosts share the file"
        )
        indexes = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'index'")
        assert ("runs_of_a_machine",) in indexes.fetchall()
    with opened(file, create=False) as history:
        assert [(run.id, run.counts) for run in history.runs()] == [(2, ""), (1, "")]
        history.remove([2])
        assert history.add([result(3)]) == [(3, True)], "also in a file of an older busbw"


def test_reading_a_history_writes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "h.sqlite"
    add(file, result(1))
    before = file.read_bytes()
    with opened(file, create=False) as history:
        assert len(history.runs()) == 1
        assert [path.name for path in tmp_path.iterdir()] == ["h.sqlite"]
    assert file.read_bytes() == before


@pytest.mark.parametrize("limit", ["MAX_KEPT", "MAX_KEPT_BYTES"])
def test_the_oldest_kept_runs_go_and_added_ones_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    size_bytes = len(json_codec.encode(result(1)))
    most = {"MAX_KEPT": 3, "MAX_KEPT_BYTES": size_bytes * 7 // 2}
    monkeypatch.setattr(store, limit, most[limit])
    with opened(tmp_path / "h.sqlite", create=True) as history:
        history.add([result(20), result(21)])
        for number in range(3):
            history.keep(result(number))
        history.add([result(0)])  # from now on it stays
        for number in range(3, 6):
            history.keep(result(number))
        assert sorted(run.start[8:10] for run in history.runs()) == [
            *("01", "04", "05", "06"),
            *("21", "22"),
        ]
        assert [run.id for run in history.runs() if run.kept] == [8, 7, 6]
        assert len(list(history.times(history.runs()))) == 6 * 4
        monkeypatch.setattr(store, "MAX_KEPT_BYTES", 1)
        newest = history.keep(result(7))
        assert [run.id for run in history.runs() if run.kept] == [newest], "a large one too"


def test_an_experiment_is_no_baseline_unless_it_was_added(tmp_path: Path) -> None:
    ring = result(1, environment={"NCCL_ALGO": "Ring", "PMIX_RANK": "3"})
    with opened(tmp_path / "h.sqlite", create=True) as history:
        first, second = history.keep(result(0)), history.keep(ring)
        assert list(baseline(history, result(9), 30)) == [first]
        of_one_run = {"NCCL_DEBUG_FILE": "2.log", "NCCL_COMM_ID": "h:1", "NCCL_HOSTID": "x"}
        of_one_run |= {"NCCL_TOPO_DUMP_FILE": "t.xml", "NCCL_INSPECTOR_DUMP_DIR": "/tmp/2"}
        again = msgspec.structs.replace(
            ring, start="", environment={"NCCL_ALGO": "Ring", **of_one_run}
        )
        assert list(baseline(history, again, 30)) == [second]
        history.add([ring])
        assert list(baseline(history, result(9), 30)) == [second, first]


def test_simulated_runs_are_compared_with_runs_of_the_same_parameters(tmp_path: Path) -> None:
    runs = [
        result(number, library=EngineLibrary("sim", 0, {"gbps": gbps, "seed": str(number)}))
        for number, gbps in enumerate(("370", "10", "370"))
    ]
    with opened(tmp_path / "h.sqlite", create=True) as history:
        for run in runs:
            history.keep(run)
        assert list(baseline(history, runs[2], 30)) == [1]


def test_other_runs_than_sweeps_are_listed_and_are_no_baseline(tmp_path: Path) -> None:
    replayed = ReplayResult(
        replay=Replay(ReplaySpec("gpt2.jsonl")), start="2026-11-20 10:00:00", complete=True
    )
    with opened(tmp_path / "h.sqlite", create=True) as history:
        history.keep(replayed, "replay of gpt2.jsonl")
        (run,) = history.runs()
        assert (run.what, run.collective, run.peak_busbw) == ("replay of gpt2.jsonl", "", 0.0)
        assert history.text(run.id).startswith('{"schema":"busbw.replay/1"')
        assert list(baseline(history, result(1), 30)) == []


def test_where_it_is_kept_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert history_file({"XDG_DATA_HOME": "/data"}) == Path("/data/busbw/history.sqlite")
    for unset in ({}, {"XDG_DATA_HOME": ""}, {"XDG_DATA_HOME": "relative"}):
        assert history_file(unset) == tmp_path / ".local/share/busbw/history.sqlite"
    for off in ("false", "False", "0"):
        assert kept_in({"BUSBW_HISTORY": off, "XDG_DATA_HOME": "/data"}) is None
        assert history_file({"BUSBW_HISTORY": off, "XDG_DATA_HOME": "/data"}) == Path(
            "/data/busbw/history.sqlite"
        )
    assert kept_in({"BUSBW_HISTORY": "~/runs.sqlite"}) == tmp_path / "runs.sqlite"
