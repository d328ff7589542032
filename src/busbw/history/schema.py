"""The tables of the history, as a list of migrations: a released one is never changed, new ones are
appended.
"""

import sqlite3

from busbw.core.errors import UsageError

APPLICATION_ID = 0x62757362  # "busb" in the file's header
_UNMARKED = 1  # the last schema without an application id
_REQUIRED = {"digest", "machine", "collective", "result"}  # columns of `runs` in every schema
COLUMNS = (
    "id INTEGER PRIMARY KEY",
    "digest TEXT NOT NULL UNIQUE",
    "start TEXT NOT NULL",
    "machine TEXT NOT NULL",
    "collective TEXT NOT NULL",
    "nccl INTEGER NOT NULL",
    "timing TEXT NOT NULL",
    "min_bytes INTEGER NOT NULL",
    "max_bytes INTEGER NOT NULL",
    "peak_busbw REAL NOT NULL",
    "complete INTEGER NOT NULL",
    "wrong INTEGER NOT NULL",
    "counts TEXT NOT NULL DEFAULT ''",
    "what TEXT NOT NULL DEFAULT ''",
    "settings TEXT NOT NULL DEFAULT ''",
    "kept_bytes INTEGER",
)
OLD = ", ".join(column.split()[0] for column in COLUMNS[:-3]) + ", result"
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
    # `result` comes last: to read a column behind it, SQLite reads all of its pages.
    # `kept_bytes` is NULL where the user added the run.
    (
        f"CREATE TABLE new_runs ({', '.join(COLUMNS)}, result TEXT NOT NULL)",
        f"INSERT INTO new_runs ({OLD}) SELECT {OLD} FROM runs",
        "DROP TABLE runs",
        "ALTER TABLE new_runs RENAME TO runs",
    ),
    # AUTOINCREMENT: the id of a removed run is not given to another. With its table, the migration
    # before dropped the index.
    (
        f"CREATE TABLE new_runs ({COLUMNS[0]} AUTOINCREMENT, {', '.join(COLUMNS[1:])},"
        " result TEXT NOT NULL)",
        "INSERT INTO new_runs SELECT * FROM runs",
        "DROP TABLE runs",
        "ALTER TABLE new_runs RENAME TO runs",
        "CREATE INDEX runs_of_a_machine ON runs (machine, collective, start)",
    ),
)


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
