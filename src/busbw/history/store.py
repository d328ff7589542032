"""The history in SQLite: every complete result as JSON, and its cells as rows.

It uses a write-ahead log, so that readers and writers do not wait for each other. The tables are a
list of migrations: a released one is never changed, new ones are appended. `baseline` reads the
earlier runs that a run is compared with.
"""

import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path

import msgspec

from busbw.core import json_codec
from busbw.core.cells import CellKey, cells, medians
from busbw.core.errors import BusbwError, NoMeasurement, TimedOut, UsageError
from busbw.core.history import StoredRun, StoredTime
from busbw.core.result import Result
from busbw.history.run_keys import alike, digest, stored

APPLICATION_ID = 0x62757362  # "busb" in the file's header
_UNMARKED = 1  # the last schema without an application id
_REQUIRED = {"digest", "machine", "collective", "result"}  # columns of `runs` in every schema
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE runs (
            id INTEGER PRIMARY KEY,
            digest TEXT NOT NULL UNIQUE,
            start TEXT NOT NULL,
            machine TEXT NOT NULL,
            collective TEXT NOT NULL,
            nccl INTEGER NOT NULL,
            timing TEXT NOT NULL,
            min_bytes INTEGER NOT NULL,
            max_bytes INTEGER NOT NULL,
            peak_busbw REAL NOT NULL,
            complete INTEGER NOT NULL,
            wrong INTEGER NOT NULL,
            result TEXT NOT NULL
        )""",
        """CREATE TABLE cells (
            run INTEGER NOT NULL REFERENCES runs (id),
            dtype TEXT NOT NULL,
            op TEXT NOT NULL,
            root INTEGER NOT NULL,
            size_bytes INTEGER NOT NULL,
            placement TEXT NOT NULL,
            cycle INTEGER NOT NULL,
            time_s REAL,
            busbw REAL,
            PRIMARY KEY (run, dtype, op, root, size_bytes, placement, cycle)
        ) WITHOUT ROWID""",
        "CREATE INDEX runs_of_a_machine ON runs (machine, collective, start)",
    ),
    (f"PRAGMA application_id = {APPLICATION_ID}",),
    ("ALTER TABLE runs ADD COLUMN counts TEXT NOT NULL DEFAULT ''",),
)
ID_LIMIT = 1 << 63  # of SQLite
WAIT_S = 10.0  # for another writer
PAUSE_S = 0.02
ADD = "busbw history add result.json"
RUN = StoredRun.__struct_fields__
CELL = CellKey.__struct_fields__
NEWEST_FIRST = "start DESC, id DESC"
AS_IN_A_TABLE = "dtype, op, root, size_bytes, placement DESC, cycle"


def check(connection: sqlite3.Connection, name: str) -> int:
    """The file's schema number, 0 for an empty file; UsageError for a file of another program or
    of a newer busbw.

    Writes nothing.
    """
    with connection:
        connection.execute("BEGIN")  # consistent reads: another process may be creating the tables
        return _read_schema(connection, name)


def _read_schema(connection: sqlite3.Connection, name: str) -> int:
    version = _pragma(connection, "user_version")
    expected_id = 0 if version <= _UNMARKED else APPLICATION_ID
    columns = {
        column for (column,) in connection.execute("SELECT name FROM pragma_table_info('runs')")
    }
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    foreign = not columns >= _REQUIRED if version else tables > 0
    if foreign or _pragma(connection, "application_id") != expected_id:
        raise UsageError(f"{name}: an SQLite file, but not a history of busbw", "use another --db")
    if version > len(MIGRATIONS):
        raise UsageError(
            f"{name}: schema {version} is newer than this busbw's {len(MIGRATIONS)}",
            "use a newer busbw, or another --db",
        )
    return version


def migrate(connection: sqlite3.Connection, name: str) -> None:
    """Apply the missing migrations in one transaction; UsageError as `check`."""
    if check(connection, name) == len(MIGRATIONS):
        return
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        version = _read_schema(connection, name)  # another process may have applied some
        for migration in MIGRATIONS[version:]:
            for statement in migration:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    number: int = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return number


def default_path(environment: Mapping[str, str]) -> Path:
    """`busbw/history.sqlite` under XDG_DATA_HOME, or under ~/.local/share if that is not an
    absolute path (XDG base directories 0.8).
    """
    data_home = Path(environment.get("XDG_DATA_HOME", ""))
    if not data_home.is_absolute():
        data_home = Path.home() / ".local" / "share"
    return data_home / "busbw" / "history.sqlite"


class History:
    """An open history, from `opened`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def add(
        self, results: Sequence[Result], when: Sequence[datetime | None] = ()
    ) -> list[tuple[int, bool]]:
        """Store all results or none; return the id of each run, and whether it is new.

        Equal content is stored once. `when` has a time for each result, for those that do not say
        when they began; the present takes the place of None and of missing times.
        """
        times = [*when, *[None] * (len(results) - len(when))]
        try:
            # commits, or rolls back where the transaction failed and SQLite has not done so
            with self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                return [
                    self._add(result, time) for result, time in zip(results, times, strict=True)
                ]
        except (OverflowError, UnicodeEncodeError) as error:  # only of a corrupt result
            raise UsageError(
                f"a value of the result cannot be stored: {error}",
                "inspect the result with busbw show",
            ) from error

    def _add(self, result: Result, when: datetime | None) -> tuple[int, bool]:
        stored_id = self.id_of(result)
        if stored_id is not None:
            return stored_id, False
        run = stored(result, when or datetime.now())
        facts = {name: getattr(run, name) for name in RUN if name != "id"}
        facts |= {"digest": digest(result), "result": json_codec.encode(result).decode()}
        id = self._insert("runs", facts)
        for key, figure in cells(result):
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
            raise UsageError(f"no run {id} is stored", "busbw history list")
        return row[0]

    def remove(self, ids: Sequence[int]) -> None:
        """Remove these runs and their cells, all or none."""
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            for id in ids:
                self._connection.execute("DELETE FROM cells WHERE run = ?", (id,))
                self._connection.execute("DELETE FROM runs WHERE id = ?", (id,))

    def runs(self, machine: str = "", collective: str = "") -> list[StoredRun]:
        """The runs whose machine contains `machine`, of one collective if given, newest first."""
        rows = self._connection.execute(
            f"SELECT {', '.join(RUN)} FROM runs WHERE instr(lower(machine), lower(:machine)) AND"
            f" :collective IN ('', collective) ORDER BY {NEWEST_FIRST}",
            {"machine": machine, "collective": collective},
        )
        return [
            msgspec.convert(dict(zip(RUN, row, strict=True)), StoredRun, strict=False)
            for row in rows
        ]

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

    def id_of(self, result: Result) -> int | None:
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
    if not create and not file.exists():
        raise UsageError(f"{file}: no such history", ADD)
    try:
        if create:
            _create(file)
        uri = _uri(file, create=create)
        with closing(
            sqlite3.connect(uri, timeout=wait_s, isolation_level=None, uri=True)
        ) as connection:
            _prepare(connection, file, wait_s, create=create)
            yield History(connection)
    except sqlite3.Error as error:
        raise explained(error, file, wait_s) from error
    except OSError as error:
        raise UsageError(
            f"{file}: {error.strerror or error}", "use --db with a file in a writable directory"
        ) from error


def _create(file: Path) -> None:
    """Make the file and its directory; an existing file keeps its mode, which may be shared."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        # SQLite gives its log the same mode
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def _uri(file: Path, *, create: bool) -> str:
    """The file for SQLite.

    In a directory without write access SQLite cannot make its log. It needs none if no writer left
    one: the file is then immutable.
    """
    uri = file.absolute().as_uri()
    if create or os.access(file.parent, os.W_OK) or Path(f"{file}-wal").exists():
        return uri
    return f"{uri}?immutable=1"


def _prepare(connection: sqlite3.Connection, file: Path, wait_s: float, *, create: bool) -> None:
    """Check that the file is a history before the first write, then bring its tables up to date."""
    deadline = time.monotonic() + wait_s
    while True:  # SQLite's own timeout does not apply while the log is created
        try:
            if check(connection, str(file)) == 0 and not create:
                raise UsageError(f"{file}: no such history", ADD)
            if create and connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                connection.execute("PRAGMA journal_mode = wal")
            break
        except sqlite3.OperationalError as error:
            if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(PAUSE_S)
    connection.execute("PRAGMA foreign_keys = on")
    migrate(connection, str(file))


def _code(error: sqlite3.Error) -> int:
    """SQLite's primary result code, 0 where the error has none."""
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


def explained(error: sqlite3.Error, file: Path, wait_s: float) -> BusbwError:
    """SQLite's error as one of busbw's. A failed transaction has changed nothing."""
    code = _code(error)
    if code == sqlite3.SQLITE_BUSY:
        return TimedOut(
            f"{file}: locked by another program for more than {wait_s:g} s", f"fuser -v {file}"
        )
    if code == sqlite3.SQLITE_FULL:
        return NoMeasurement(
            f"{file}: the disk is full; earlier runs are still stored", f"df -h {file.parent}"
        )
    if code == sqlite3.SQLITE_NOTADB:
        return UsageError(f"{file}: {error}", "use --db with the file of a history")
    if code == sqlite3.SQLITE_CORRUPT:
        return UsageError(
            f"{file}: {error}", f"restore a backup, or move it away: mv {file} {file}.broken"
        )
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return UsageError(f"{file}: {error}", "use --db with a file in a writable directory")
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
    for run in history.runs(collective=result.spec.collective):
        if len(times_by_run) >= last:
            break
        if run.id in excluded or not alike(run, result):
            continue
        times = medians((time.key, time.time_s) for time in history.times([run]))
        if result_keys <= times.keys():
            times_by_run[run.id] = times
    return times_by_run
