"""The history in SQLite: every complete result as JSON, and its cells as rows.

It uses a rollback journal. A write-ahead log needs memory that all processes share, which hosts
with a common home directory do not have. `baseline` reads the earlier runs that a run is compared
with.
"""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path

import msgspec

from busbw.core import json_codec
from busbw.core.cells import CellKey, cells, medians
from busbw.core.errors import BusbwError, NoMeasurement, TimedOut, UsageError
from busbw.core.history import StoredRun, StoredTime
from busbw.core.result import Outcome, Result
from busbw.core.sizes import counted
from busbw.history.run_keys import digest, stored
from busbw.history.schema import check, migrate

ID_LIMIT = 1 << 63  # of SQLite
WAIT_S = 10.0  # for another writer
LAST = 30  # runs that a new one is compared with
# Of what busbw keeps by itself, as the number of runs and the size of their JSON; the oldest go
# first. What the user added stays.
MAX_KEPT, MAX_KEPT_BYTES = 2000, 200_000_000
MEASURE = "measure one, like busbw run all_reduce, or add a file: busbw history add result.json"
OTHER_FILE = "name a history that you can read and write: export BUSBW_HISTORY=FILE"
# What a query computes of a run; the peak is the largest cell but for those less certain than it.
COMPUTED = {
    "kept": "kept_bytes IS NOT NULL",
    "uncertain_busbw": "coalesce((SELECT max(busbw) FROM cells WHERE run = runs.id"
    " AND busbw > peak_busbw AND busbw < 9e999), 0)",
}
STORED = tuple(
    name for name in StoredRun.__struct_fields__ if name != "id" and name not in COMPUTED
)
COLUMNS = (*STORED, "id", *COMPUTED)
CELL = CellKey.__struct_fields__
NEWEST_FIRST = "start DESC, id DESC"
# Complete, without wrong data, and of the same machine, collective, bytes and timing. A run that
# the user did not add may have been an experiment: its settings must be the same too.
COMPARABLE = (
    "machine = :machine AND collective = :collective AND timing = :timing AND counts = :counts"
    " AND complete AND NOT wrong AND (kept_bytes IS NULL OR settings = :settings)"
)
AS_IN_A_TABLE = "dtype, op, root, size_bytes, placement DESC, cycle"


class History:
    """An open history, from `opened`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def add(
        self,
        results: Sequence[Outcome],
        when: Sequence[datetime | None] = (),
        what: Sequence[str] = (),
    ) -> list[tuple[int, bool]]:
        """Store all results or none; return the id of each run, and whether it is new.

        Equal content is stored once. `when` has a time for each result, for those that do not say
        when they began; the present takes the place of None and of missing times. `what` names
        each of those that are no sweeps.
        """
        missing = len(results) - len(when)
        times = [*when, *[None] * missing]
        names = what or [""] * len(results)
        with self._writing():
            added = [self._add(*each) for each in zip(results, times, names, strict=True)]
            for id, new in added:
                if not new:  # it was perhaps kept without being added
                    self._connection.execute(
                        "UPDATE runs SET kept_bytes = NULL WHERE id = ?", (id,)
                    )
            return added

    def keep(self, result: Outcome, what: str = "") -> int:
        """Store a run that the user did not add; returns its id. The oldest of such runs go if
        there are more than MAX_KEPT, or MAX_KEPT_BYTES.
        """
        with self._writing():
            id, _ = self._add(result, None, what, kept=True)
            self._delete(self._too_many())
            return id

    def _too_many(self) -> list[int]:
        """Runs to delete: the oldest of those that the user did not add, never the newest."""
        rows = self._connection.execute(
            "SELECT id, kept_bytes FROM runs WHERE kept_bytes IS NOT NULL ORDER BY id DESC"
        )
        ids, total_bytes = [], 0
        for number, (id, size_bytes) in enumerate(rows):
            total_bytes += size_bytes
            if number and (number >= MAX_KEPT or total_bytes > MAX_KEPT_BYTES):
                ids.append(id)
        return ids

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A transaction of all or nothing; UsageError for values that SQLite does not hold."""
        try:
            # commits, or rolls back where the transaction failed and SQLite has not done so
            with self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                yield
        except (OverflowError, UnicodeEncodeError) as error:  # only of a corrupt result
            raise UsageError(
                f"a value of the result cannot be stored: {error}",
                "inspect the result with busbw show",
            ) from error

    def _add(
        self, result: Outcome, when: datetime | None, what: str, *, kept: bool = False
    ) -> tuple[int, bool]:
        stored_id = self.id_of(result)
        if stored_id is not None:
            return stored_id, False
        run = stored(result, when or datetime.now(), what)
        facts = {name: getattr(run, name) for name in STORED}
        text = json_codec.encode(result)
        facts |= {"digest": digest(result), "result": text.decode()}
        facts["kept_bytes"] = len(text) if kept else None
        id = self._insert("runs", facts)
        for key, figure in cells(result) if isinstance(result, Result) else ():
            row = msgspec.structs.asdict(key)
            row |= {"run": id, "time_s": figure.time_s, "busbw": figure.cell.busbw}
            self._insert("cells", row)
        return id, True

    def text(self, id: int) -> str:
        """A stored result as JSON on one line; UsageError if there is no such run."""
        return str(self._read(id, "result"))

    def start(self, id: int) -> str:
        """When a run began, as StoredRun has it; UsageError if there is no such run."""
        return str(self._read(id, "start"))

    def _read(self, id: int, column: str) -> object:
        row = None
        if abs(id) < ID_LIMIT:
            query = f"SELECT {column} FROM runs WHERE id = ?"
            row = self._connection.execute(query, (id,)).fetchone()
        if row is None:
            raise UsageError(f"no run {id} is stored", "busbw history")
        return row[0]

    def remove(self, ids: Sequence[int]) -> None:
        """Remove these runs and their cells, all or none."""
        with self._writing():
            self._delete(ids)

    def _delete(self, ids: Sequence[int]) -> None:
        for id in ids:
            self._connection.execute("DELETE FROM cells WHERE run = ?", (id,))
            self._connection.execute("DELETE FROM runs WHERE id = ?", (id,))

    def last(self, number: int) -> int:
        """The id of the last run for 1, the one before for 2; UsageError if there are fewer."""
        rows = self._connection.execute(
            f"SELECT id FROM runs ORDER BY {NEWEST_FIRST} LIMIT 1 OFFSET ?", (number - 1,)
        ).fetchall()
        if not rows:
            total = self._connection.execute("SELECT count(*) FROM runs").fetchone()[0]
            raise UsageError(f"-{number}: the history has {counted(total, 'run')}", "busbw history")
        return int(rows[0][0])

    def runs(self, machine: str = "", collective: str = "") -> list[StoredRun]:
        """The runs whose machine contains `machine`, of one collective if given, newest first."""
        where = "instr(lower(machine), lower(:machine)) AND :collective IN ('', collective)"
        return list(self._select(where, {"machine": machine, "collective": collective}))

    def comparable(self, result: Result) -> Iterator[StoredRun]:
        """The runs with which the result can be compared, newest first."""
        facts = msgspec.structs.asdict(stored(result, datetime.now()))
        return self._select(COMPARABLE, facts)

    def _select(self, where: str, values: dict[str, object]) -> Iterator[StoredRun]:
        rows = self._connection.execute(
            f"SELECT {', '.join((*STORED, 'id', *COMPUTED.values()))} FROM runs WHERE {where}"
            f" ORDER BY {NEWEST_FIRST}",
            values,
        )
        for row in rows:
            yield msgspec.convert(dict(zip(COLUMNS, row, strict=True)), StoredRun, strict=False)

    def times(self, runs: Sequence[StoredRun]) -> Iterator[StoredTime]:
        """Every cell of these runs, in the order of the runs; missing numbers are nan."""
        for run in runs:
            rows = self._connection.execute(
                f"SELECT {', '.join(CELL)}, time_s, busbw FROM cells WHERE run = ? ORDER BY"
                f" {AS_IN_A_TABLE}",
                (run.id,),
            )
            for *key, time_s, busbw in rows:
                yield StoredTime(run, CellKey(*key), _number(time_s), _number(busbw))

    def id_of(self, result: Outcome) -> int | None:
        """The id of the stored result with the same content, or None."""
        row = self._connection.execute(
            "SELECT id FROM runs WHERE digest = ?", (digest(result),)
        ).fetchone()
        return int(row[0]) if row else None

    def _insert(self, table: str, row: dict[str, object]) -> int:
        statement = f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})"
        return self._connection.execute(statement, tuple(row.values())).lastrowid or 0


def _number(value: float | None) -> float:
    return float("nan") if value is None else value  # SQLite stores nan as NULL


@contextmanager
def opened(file: Path, *, create: bool, wait_s: float = WAIT_S) -> Iterator[History]:
    """The history in `file`.

    If the file does not exist, `create` makes it and its directory; without `create` that is a
    UsageError. Errors of SQLite become a BusbwError that names the file.
    """
    try:
        if create:
            _create(file)
        elif not file.exists():
            raise UsageError(f"{file}: no such history", MEASURE)
        with closing(sqlite3.connect(file, timeout=wait_s, isolation_level=None)) as connection:
            _prepare(connection, file, create=create)
            yield History(connection)
    except sqlite3.Error as error:
        raise explained(error, file, wait_s) from error
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror or error}", OTHER_FILE) from error


def _create(file: Path) -> None:
    """Make the file and its directory; an existing file keeps its mode, which may be shared."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        # SQLite gives its journal the same mode
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def _prepare(connection: sqlite3.Connection, file: Path, *, create: bool) -> None:
    """Check that the file is a history before the first write, then bring its tables up to date."""
    if check(connection, str(file)) == 0 and not create:
        raise UsageError(f"{file}: no such history", MEASURE)
    migrate(connection, str(file))
    connection.execute("PRAGMA foreign_keys = on")  # a migration may replace a table


def explained(error: sqlite3.Error, file: Path, wait_s: float) -> BusbwError:
    """SQLite's error as one of busbw's. A failed transaction has changed nothing."""
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF  # the primary one; 0: none
    if code == sqlite3.SQLITE_BUSY:
        return TimedOut(
            f"{file}: locked by another program for more than {wait_s:g} s", f"fuser -v {file}"
        )
    if code == sqlite3.SQLITE_FULL:
        return NoMeasurement(
            f"{file}: the disk is full; earlier runs are still stored", f"df -h {file.parent}"
        )
    if code == sqlite3.SQLITE_NOTADB:
        return UsageError(f"{file}: {error}", OTHER_FILE)
    if code == sqlite3.SQLITE_CORRUPT:
        return UsageError(
            f"{file}: {error}", f"restore a backup, or move it away: mv {file} {file}.broken"
        )
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return UsageError(f"{file}: {error}", OTHER_FILE)
    return NoMeasurement(f"{file}: {error}", f"df -h {file.parent}; ls -l {file}")


def baseline(
    history: History, result: Result, last: int, without: Sequence[Result] = ()
) -> dict[int, dict[CellKey, float]]:
    """Seconds by run and cell of the newest `last` comparable runs that have every cell of the
    result.

    The result itself does not count, nor those in `without`.
    """
    result_keys = {msgspec.structs.replace(key, cycle=0) for key, _ in cells(result)}
    excluded = {history.id_of(run) for run in (result, *without)}
    times_by_run: dict[int, dict[CellKey, float]] = {}
    for run in history.comparable(result):
        if len(times_by_run) >= last:
            break
        if run.id in excluded:
            continue
        times = medians((time.key, time.time_s) for time in history.times([run]))
        if result_keys <= times.keys():
            times_by_run[run.id] = times
    return times_by_run
