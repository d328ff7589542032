"""Tables of published facts: files beside the code that reads them.

In a CSV file, lines that begin with # are comments, and the first other line names the columns:
the fields of the row's type, then `source` and `date`: where each fact was published, and the date
of that or of the day it was read; tables of secrets and of exit codes have neither. An empty cell
leaves the field's default. Tables whose rows are nested are TOML.
"""

import csv
import pkgutil
from typing import Any, TypeVar

Row = TypeVar("Row")


def rows(
    path: str, row_type: type[Row], lists: tuple[str, ...] = (), package: str = "busbw"
) -> tuple[Row, ...]:
    """The rows of a CSV file in the order of the file; `path` is relative to the package, and cells
    of the columns `lists` are lists of words.
    """
    import msgspec  # takes as long as the rest of a short start

    return tuple(
        msgspec.convert(_values(cells_of_row, lists), row_type, strict=False)
        for cells_of_row in cells(path, package)
    )


def cells(path: str, package: str = "busbw") -> list[dict[str, str]]:
    """The rows of a CSV file as they stand there, by column."""
    lines = _text(path, package).splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def nested(path: str) -> dict[str, Any]:
    """What a TOML file holds."""
    import tomllib  # takes long to import

    return tomllib.loads(_text(path))


def _values(row: dict[str, str], lists: tuple[str, ...]) -> dict[str, str | list[str]]:
    return {name: cell.split() if name in lists else cell for name, cell in row.items() if cell}


def _text(path: str, package: str = "busbw") -> str:
    # It reads zip files too, as importlib.resources does, whose import takes longer.
    data = pkgutil.get_data(package, path)
    assert data is not None
    return data.decode()
