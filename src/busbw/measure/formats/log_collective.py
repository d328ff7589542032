"""Which collectives a table without a name can be of.

Evidence is in its operators and roots, in size / count, and in busbw / algbw.

busbw / algbw is one number over all rows: 2(n-1)/n, (n-1)/n or 1. size / count is the size of an
element, or of one element on each rank. Before June 2020 nccl-tests had all_gather's and
reduce_scatter's factor in algbw already, and printed 1. In NCCL 1, which titles the size `bytes`,
the size of both is one rank's part, and reduce_scatter's factor n-1. Sources: *.cu of nccl-tests
and test/single of NCCL 1.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from busbw.core.collectives import COLLECTIVES, Collective
from busbw.core.dtypes import DTYPES
from busbw.core.result import Cell, ResultRow
from busbw.measure.formats import reading
from busbw.measure.formats.read_nccl_tests_rows import MODERN, Columns, Read

# Half of the last digit that is printed, in GB/s, by the size of the number.
ROUNDINGS = ((1e3, 0.0051), (1e4, 0.051), (math.inf, 0.51))
MAX_RATIO_WIDTH = 0.1  # a ratio that is known less well says nothing
MIN_AGREEING_SHARE = 0.9  # share of the cells that must show one ratio
NO_RATIO = (math.inf, -math.inf)  # of cells that contradict each other
OLD_FACTOR_IN_ALGBW = ("all_gather", "reduce_scatter")


@dataclass(frozen=True, slots=True)
class TableEvidence:
    """What a table says of its collective; what it does not say is None."""

    # the least and the largest busbw / algbw that the printed digits allow, or NO_RATIO
    ratio: tuple[float, float] | None
    parts: int | None  # size / (count x size of an element)
    operator: str | None  # '' where rows have none
    rooted: bool | None  # whether rows have a root
    in_place_checked: bool | None  # whether in-place data was checked where out-of-place data was
    ranks: int  # 0 where no line says how many there are
    old: bool  # a table with deviations (`error`)
    first: bool  # a table of NCCL 1
    blank: bool  # a table whose redop column is empty


def evidence_of(read: Sequence[Read], titles: Columns | None, ranks: int) -> TableEvidence:
    """What the rows say; `ranks` is how many the lines around them say, 0 if none does."""
    rows = [table_row.row for table_row in read]
    titles = titles or MODERN
    left, old = titles.left, "error" in titles.side
    # NCCL's own tests leave a column out where it means nothing; others have fewer columns.
    stated = "type" in left and (titles.sides == 2 or titles.first)
    operators = {row.op for row in rows}
    operator: str | None = operators.pop() if len(operators) == 1 else "all"
    rooted: bool | None = any(row.root >= 0 for row in rows)
    if "redop" not in left:
        operator = "" if stated else None
    if "root" not in left:
        rooted = False if stated else None
    both_checked = [table_row.checked for table_row in read if len(table_row.checked) == 2]
    checks = {checked for checked in both_checked if checked[0]}
    in_place_checked = checks == {(True, True)} if len(checks) == 1 else None
    if old and any(any(table_row.deviates) for table_row in read):
        # Only what was summed deviates. Without an operator the data is wrong.
        in_place_checked = True if operator else None
    parts = _parts(rows)
    blank = operator == "" and "redop" in left
    ranks = ranks or (parts if parts and parts > 1 else 0)
    return TableEvidence(
        ratio(rows), parts, operator, rooted, in_place_checked, ranks, old, titles.first, blank
    )


def candidates(evidence: TableEvidence) -> list[str]:
    """The collectives that the table can be of; [] where its figures contradict each other."""
    names = []
    for row in COLLECTIVES:
        if row.uneven and evidence.parts:
            continue  # its parts would be equal only by chance
        if not any(rule(row, evidence) for rule in RULES):
            names.append(row.name)
    return names


def contradiction(row: Collective, evidence: TableEvidence) -> str:
    """Why the table cannot be of this collective; '' where it can."""
    of_columns: tuple[Rule, ...] = (_operator_fits, _root_fits, _parts_fit, _whole_fits)
    rules = of_columns if evidence.ratio == NO_RATIO else (_ratio_fits, *of_columns)
    reasons = (rule(row, evidence) for rule in rules)
    return next(filter(None, reasons), "")


def ranks_of(row: Collective, evidence: TableEvidence) -> tuple[float, float] | None:
    """The least and largest number of ranks with which busbw / algbw is what the table shows;
    None if it does not depend on them.
    """
    limit = round(row.bus_factor(1 << 40))
    if evidence.ratio is None or row.bus_factor(2) == row.bus_factor(3):
        return None
    low, high = evidence.ratio
    least = math.ceil(limit / (limit - low) - 1e-9) if low < limit else math.inf
    return max(least, 1), math.floor(limit / (limit - high) + 1e-9) if high < limit else math.inf


def ratio_text(evidence: TableEvidence) -> str:
    """The busbw / algbw of the table with the digits that are known, such as `1.75`."""
    low, high = evidence.ratio or (math.nan, math.nan)
    middle, half = (low + high) / 2, max((high - low) / 2, 1e-4)
    if not math.isfinite(half):
        return "no number"
    decimals = max(0, min(4, round(-math.log10(half))))
    return f"{middle:.{decimals}f}"


def _ratio_fits(row: Collective, evidence: TableEvidence) -> str:
    if evidence.ratio is None:
        return ""
    low, high = evidence.ratio
    factor_in_algbw = evidence.old and row.name in OLD_FACTOR_IN_ALGBW
    if factor_in_algbw and low <= 1 <= high and (evidence.first or evidence.parts != 1):
        return ""
    if evidence.first and row.name == "reduce_scatter" and math.ceil(low) <= high:
        return ""
    of_two, allowed_ranks = float(row.bus_factor(2)), ranks_of(row, evidence)
    if evidence.ranks:
        factor = float(row.bus_factor(evidence.ranks))
        text = f"{row.formula}, {factor:.4g} for {evidence.ranks} ranks"
        fits = low - 1e-4 <= factor <= high + 1e-4
    elif allowed_ranks is None:
        text = row.formula
        fits = low <= of_two <= high
    else:
        text = f"{row.formula}, {of_two:g} to {round(row.bus_factor(1 << 40))}"
        fits = allowed_ranks[0] <= allowed_ranks[1] and allowed_ranks[0] < math.inf
    return (
        "" if fits else f"its busbw / algbw is {ratio_text(evidence)}, that of {row.name} is {text}"
    )


def _operator_fits(row: Collective, evidence: TableEvidence) -> str:
    # The first sendrecv printed no operator.
    has_operator = row.reduces or (row.redop_column == "op" and not evidence.old)
    if evidence.operator is None or (has_operator and evidence.operator not in ("", "none")):
        return ""
    if has_operator:
        return f"its rows have no operator, those of {row.name} have one"
    if evidence.operator in ("", "none"):
        return ""
    return f"its rows have the operator {evidence.operator}, those of {row.name} have none"


def _blank_fits(row: Collective, evidence: TableEvidence) -> str:
    """Whether a blank redop column fits: the first alltoall and hypercube print one."""
    prints_blank = row.name == ("alltoall" if evidence.old else "hypercube")
    if evidence.blank:
        return "" if prints_blank else "its redop column is not empty"
    return "its redop column is empty" if prints_blank and evidence.operator is not None else ""


def _root_fits(row: Collective, evidence: TableEvidence) -> str:
    if evidence.rooted is None or evidence.rooted == row.rooted:
        return ""
    if evidence.rooted:
        return f"its rows have a root, those of {row.name} have none"
    return f"its rows have no root, those of {row.name} have one"


def _parts_fit(row: Collective, evidence: TableEvidence) -> str:
    units = [row.algbw_multiple(ranks) for ranks in (2, 3)]
    if not evidence.parts or evidence.parts == 1 or units != [1, 1] or row.uneven:
        return ""
    return (
        f"its size is {evidence.parts} times its count in bytes, that of {row.name} is equal to it"
    )


def _whole_fits(row: Collective, evidence: TableEvidence) -> str:
    if evidence.operator is None:
        return ""  # a table of other programs, which count otherwise
    one_rank = evidence.ranks == 1 or (
        evidence.ratio is not None and evidence.ratio[1] < MAX_RATIO_WIDTH
    )
    if evidence.parts == 1 and row.algbw_multiple(3) > 1 and not evidence.first and not one_rank:
        return f"its size is its count in bytes, that of {row.name} is larger"
    return ""


def _check_fits(row: Collective, evidence: TableEvidence) -> str:
    if evidence.in_place_checked in (None, row.in_place_checked):
        return ""
    return "in-place data of the other kind"


Rule = Callable[[Collective, TableEvidence], str]
RULES: tuple[Rule, ...] = (
    _ratio_fits,
    _operator_fits,
    _blank_fits,
    _root_fits,
    _parts_fit,
    _whole_fits,
    _check_fits,
)


def _parts(rows: Sequence[ResultRow]) -> int | None:
    sizes = {row.name: row.itemsize for row in DTYPES}
    quotients = set()
    for row in rows:
        count_bytes = row.count * sizes.get(reading.element_type(row.dtype), 0)
        if count_bytes:
            quotients.add(row.size_bytes / count_bytes)
    parts = quotients.pop() if len(quotients) == 1 else 0.0
    return int(parts) if parts >= 1 and parts == int(parts) else None


def ratio(rows: Sequence[ResultRow]) -> tuple[float, float] | None:
    """The ratios that all cells allow, from the narrowest bounds on; None where no cell has any."""
    bounds = []
    for row in rows:
        bounds += [_bounds(cell) for cell in (row.out_of_place, row.in_place) if cell is not None]
    known = sorted(filter(None, bounds), key=lambda bound: bound[1] - bound[0])
    if not known:
        return None
    low, high = known[0]
    agreeing = 0
    for cell_low, cell_high in known:
        if cell_low <= high and low <= cell_high:
            low, high = max(low, cell_low), min(high, cell_high)
            agreeing += 1
    return (low, high) if agreeing >= MIN_AGREEING_SHARE * len(known) else NO_RATIO


def _bounds(cell: Cell) -> tuple[float, float] | None:
    """The least and largest busbw / algbw by the printed digits; None where they say too little."""
    algbw, busbw = cell.algbw / 1e9, cell.busbw / 1e9
    if not (math.isfinite(algbw) and math.isfinite(busbw) and algbw > 0):
        return None
    algbw_by, busbw_by = _rounding(algbw), _rounding(busbw)
    if algbw <= algbw_by:
        return None
    low = max(0.0, busbw - busbw_by) / (algbw + algbw_by)
    high = (busbw + busbw_by) / (algbw - algbw_by)
    return (low, high) if high - low <= MAX_RATIO_WIDTH else None


def _rounding(value: float) -> float:
    return next(rounding for limit, rounding in ROUNDINGS if value < limit)
