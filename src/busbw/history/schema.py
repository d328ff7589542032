"""The tables of the history as a list of migrations.

A released migration is never changed; new ones are appended.
"""

import sqlite3

from busbw.core.errors import UsageError

APPLICATION_ID = 0x62757362  # "busb" in the file's header
_UNMARKED = 1  # the last schema without an application id
_COLUMNS = {"digest", "machine", "collective", "result"}  # of `runs`, from the first schema on
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


def check(connection: sqlite3.Connection, name: str) -> int:
    """The file's schema number, 0 for an empty file; UsageError for another program's file or a
    newer busbw's.

    Writes nothing.
    """
    with connection:
        connection.execute("BEGIN")  # consistent reads: another process may be creating the tables
        return _checked(connection, name)


def _checked(connection: sqlite3.Connection, name: str) -> int:
    version = _number(connection, "user_version")
    mark = _number(connection, "application_id")
    marks = (0,) if version <= _UNMARKED else (APPLICATION_ID,)
    runs = {
        column for (column,) in connection.execute("SELECT name FROM pragma_table_info('runs')")
    }
    filled = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    strange = _COLUMNS - runs if version else filled
    if mark not in marks or strange:
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
        # another process may have applied them
        for step in MIGRATIONS[_checked(connection, name) :]:
            for statement in step:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    number: int = connection.execute(f"PRAGMA {pragma}").fetchone()[0]
    return number
