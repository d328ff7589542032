"""The sections of files whose text is one table: comparisons, tunings and reference curves."""

from xml.etree.ElementTree import Element

from busbw.core.comparison import Comparison
from busbw.history import comparison_text
from busbw.model.reference.curves import ReferenceTable
from busbw.reference import comparison as reference
from busbw.reference import lists
from busbw.tune import text as tune_text
from busbw.tune.types import Tuning
from busbw.ui.html.element import findings
from busbw.ui.html.prose import prose
from busbw.ui.html.table import column_table


def comparison_parts(compared: Comparison) -> list[Element]:
    """Two sides compared: what they are, the outcome, and every cell."""
    columns, order = comparison_text.columns(compared), comparison_text.DROP_ORDER
    return [
        *prose("\n".join(comparison_text.opening(compared))),
        column_table(columns, compared.cells, "Cells", order),
        *prose("\n".join(comparison_text.closing(compared))),
    ]


def tuning_parts(tuning: Tuning) -> list[Element]:
    """Every size with NCCL's choice and the table's, and the outcome."""
    columns, order = tune_text.columns(tuning), tune_text.DROP_ORDER
    parts = [
        *prose(tune_text.title(tuning.collective, tuning.system)),
        *prose(tune_text.outcome(tuning)),
        column_table(columns, tuning.sizes, "Sizes", order),
    ]
    return [*parts, findings(tuning.findings)] if tuning.findings else parts


def reference_parts(compared: reference.ReferenceComparison) -> list[Element]:
    """Every size of a result beside its reference."""
    columns, order = reference.columns(compared), (*reference.DROP_ORDER, "%", "reference")
    return [
        *prose(reference.head(compared)),
        column_table(columns, compared.rows, "Sizes", order),
        *prose(reference.meaning(compared)),
    ]


def curves_parts(table: ReferenceTable) -> list[Element]:
    """A line for each reference curve."""
    return [column_table(lists.COLUMNS, table.curves, "Curves", lists.DROP_ORDER)]
