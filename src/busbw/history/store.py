"""The history in SQLite: every result whole, and its cells as rows.

Write-ahead log, so that readers and writers do not wait for each other.
"""

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path

import msgspec

from busbw.core import wire
from busbw.core.cells import CellKey, cells
from busbw.core.errors import BusbwError, NoMeasurement, TimedOut, UsageError
from busbw.core.history import StoredRun, StoredTime, digest, stored
from busbw.core.result import Result
from busbw.history.schema import check, migrate

WAIT_S = 10.0  # for another writer
PAUSE_S = 0.02
ADD = "busbw history add result.json"
RUN = StoredRun.__struct_fields__
CELL = CellKey.__struct_fields__
NEWEST_FIRST = "start DESC, id DESC"
AS_IN_A_TABLE = "dtype, op, root, size_bytes, placement DESC, cycle"


class History:
    """An open history; made by `opened`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def add(self, results: Sequence[Result]) -> list[tuple[int, bool]]:
        """Each run's id, and whether it is new: the same content is stored once. All are stored, or none."""
        with self._transaction(), _storable():
            return [self._add(result) for result in results]

    def _add(self, result: Result) -> tuple[int, bool]:
        there = self.id_of(result)
        if there is not None:
            return there, False
        run = stored(result, datetime.now())
        facts = {name: getattr(run, name) for name in RUN if name != "id"}
        facts |= {"digest": digest(result), "result": wire.encode(result).decode()}
        id = self._insert("runs", [facts]) or 0
        rows = [msgspec.structs.asdict(key) | {"run": id, "time_s": cell.time_s, "busbw": cell.busbw} for key, cell in cells(result)]
        self._insert("cells", rows)
        return id, True

    def runs(self, machine: str = "", collective: str = "") -> list[StoredRun]:
        """Newest first: those whose machine contains `machine`, of one collective where one is named."""
        rows = self._connection.execute(
            f"SELECT {', '.join(RUN)} FROM runs WHERE instr(lower(machine), lower(:machine)) AND :collective IN ('', collective) "
            f"ORDER BY {NEWEST_FIRST}",
            {"machine": machine, "collective": collective},
        )
        return [msgspec.convert(dict(zip(RUN, row, strict=True)), StoredRun, strict=False) for row in rows]

    def times(self, runs: Sequence[StoredRun]) -> Iterator[StoredTime]:
        """Every cell of these runs, in their order; figures that are no numbers are nan."""
        for run in runs:
            rows = self._connection.execute(
                f"SELECT {', '.join(CELL)}, time_s, busbw FROM cells WHERE run = ? ORDER BY {AS_IN_A_TABLE}", (run.id,)
            )
            for *key, time_s, busbw in rows:
                yield StoredTime(run, CellKey(*key), _figure(time_s), _figure(busbw))

    def id_of(self, result: Result) -> int | None:
        """The id under which the result is stored already."""
        row = self._connection.execute("SELECT id FROM runs WHERE digest = ?", (digest(result),)).fetchone()
        return int(row[0]) if row else None

    def _insert(self, table: str, rows: Sequence[dict[str, object]]) -> int | None:
        """Insert rows of one shape; the last one's id."""
        cursor = self._connection.cursor()
        for row in rows:
            cursor.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", tuple(row.values()))
        return cursor.lastrowid

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:  # a full disk ends it by itself
                self._connection.execute("ROLLBACK")
            raise


@contextmanager
def _storable() -> Iterator[None]:
    """UsageError for numbers and texts that SQLite has no room for, as only a broken file holds."""
    try:
        yield
    except (OverflowError, UnicodeEncodeError) as error:
        raise UsageError(f"a figure of the result cannot be stored: {error}", "look at it with busbw show") from error


def _figure(value: float | None) -> float:
    return float("nan") if value is None else value  # SQLite stores nan as NULL


@contextmanager
def opened(file: Path, *, create: bool, wait_s: float = WAIT_S) -> Iterator[History]:
    """The history in `file`. `create`: make it and its folder where there is none, else that is a UsageError.

    What SQLite cannot do becomes a BusbwError that names the file.
    """
    if not create and not file.exists():
        raise UsageError(f"{file}: there is no history yet", ADD)
    try:
        if create:
            file.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(file, timeout=wait_s, isolation_level=None)) as connection:
            _prepare(connection, file, wait_s, create=create)
            yield History(connection)
    except sqlite3.Error as error:
        raise explained(error, file, wait_s) from error
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror or error}", "name a file in a directory that you may write, with --db") from error


def _prepare(connection: sqlite3.Connection, file: Path, wait_s: float, *, create: bool) -> None:
    """The file is a history, which is checked before anything is written to it, and its tables are up to date."""
    until = time.monotonic() + wait_s
    while True:  # SQLite does not wait by itself while the log is being set up
        try:
            if check(connection, str(file)) == 0 and not create:
                raise UsageError(f"{file}: there is no history yet", ADD)
            if create and connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                connection.execute("PRAGMA journal_mode = wal")
            break
        except sqlite3.OperationalError as error:
            if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(PAUSE_S)
    connection.execute("PRAGMA foreign_keys = on")
    migrate(connection, str(file))


def _code(error: sqlite3.Error) -> int:
    """SQLite's primary result code, 0 where the error has none."""
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


def explained(error: sqlite3.Error, file: Path, wait_s: float) -> BusbwError:
    """What SQLite said, as one of busbw's errors. A transaction that failed has changed nothing."""
    code = _code(error)
    if code == sqlite3.SQLITE_BUSY:
        return TimedOut(f"{file}: another program has held it for {wait_s:g} seconds", f"fuser -v {file}")
    if code == sqlite3.SQLITE_FULL:
        return NoMeasurement(f"{file}: the disk is full; what was stored before is still there", f"df -h {file.parent}")
    if code == sqlite3.SQLITE_NOTADB:
        return UsageError(f"{file}: {error}", "name the history's own file with --db")
    if code == sqlite3.SQLITE_CORRUPT:
        return UsageError(f"{file}: {error}", f"put back a copy of it, or move it away: mv {file} {file}.broken")
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return UsageError(f"{file}: {error}", "name a file in a directory that you may write, with --db")
    return NoMeasurement(f"{file}: {error}", f"df -h {file.parent}; ls -l {file}")
