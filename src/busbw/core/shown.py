"""How results and reports show themselves in Python: a line, a table in a notebook, and rows.

Views of all kinds are above the core, so the module that has them is named here as a string.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas

_VIEWS = "busbw.api.shown"


class Shown:
    """What a program or a notebook shows as itself."""

    __slots__ = ()

    def __repr__(self) -> str:
        line: str = import_module(_VIEWS).line(self)
        return line

    def _repr_html_(self) -> str:
        """For notebooks: a table, or the text that `busbw show` prints."""
        html: str = import_module(_VIEWS).html(self)
        return html


class Tabular(Shown):
    """What has rows, too: of a result the cells, of a report its findings."""

    __slots__ = ()

    def records(self) -> list[dict[str, Any]]:
        """The rows as flat dictionaries; None stands for what is not known.

        Of a sweep these are the columns of `busbw show --format csv`, else the fields of the JSON.
        """
        records: list[dict[str, Any]] = import_module(_VIEWS).records(self)
        return records

    def to_pandas(self) -> "pandas.DataFrame":
        """`records` as a table of pandas; UsageError if pandas is not installed."""
        return import_module(_VIEWS).data_frame(self)
