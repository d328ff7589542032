"""The tables of the history, as the steps that led to them. A step is never changed once released: a new one is added."""

import sqlite3

from busbw.core.errors import UsageError

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
)


def migrate(connection: sqlite3.Connection, name: str) -> None:
    """Bring the tables up to date in one transaction; UsageError for a file of a newer busbw, or of another program."""
    version = _version(connection)
    if version == len(MIGRATIONS):
        return
    if version > len(MIGRATIONS):
        raise UsageError(
            f"{name}: its schema is {version}, this busbw knows up to {len(MIGRATIONS)}",
            "use the busbw that wrote it, or name another --db",
        )
    connection.execute("BEGIN IMMEDIATE")
    try:
        _steps(connection, name)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # a full disk ends it by itself
            connection.execute("ROLLBACK")
        raise


def _steps(connection: sqlite3.Connection, name: str) -> None:
    version = _version(connection)  # another process may have been first
    if version == 0 and connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
        raise UsageError(f"{name}: an SQLite file, but no history of busbw", "name another --db")
    for step in MIGRATIONS[version:]:
        for statement in step:
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {max(version, len(MIGRATIONS))}")


def _version(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version
