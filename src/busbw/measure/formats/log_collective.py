"""Which collectives a table without a name can be of: by its operators and roots, by size / count,
and by busbw / algbw.

busbw / algbw is one number over all rows: 2(n-1)/n, (n-1)/n or 1. size / count is the size of an
element, or that of one on each rank. Before June 2020 nccl-tests had all_gather's and
reduce_scatter's factor in algbw already, and printed 1. In NCCL 1, which titles the size `bytes`,
the size of both is one rank's part, and reduce_scatter's factor n-1. Sources: *.cu of nccl-tests
and test/single of NCCL 1.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from busbw.core.collectives import COLLECTIVES, Collective
from busbw.core.dtypes import DTYPES
from busbw.core.result import Cell, Row
from busbw.measure.formats import reading
from busbw.measure.formats.nccl_tests_rows import MODERN, Columns, Read

# Half of the last digit that is printed, in GB/s, by the size of the number.
ROUNDINGS = ((1e3, 0.0051), (1e4, 0.051), (math.inf, 0.51))
INFORMATIVE = 0.1  # a ratio that is known less well says nothing
AGREEING = 0.9  # share of the cells that must show one ratio
NO_RATIO = (math.inf, -math.inf)  # of cells that contradict each other
OLD_FACTOR_IN_ALGBW = ("all_gather", "reduce_scatter")


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a table says of its collective; None is what it does not say.

    `ratio` has the least and the largest busbw / algbw that the printed digits allow, or is
    NO_RATIO. `parts` is size / (count x size of an element). `operator` is '' where rows have none,
    `rooted` whether they have a root. `in_place_checked` is whether in-place data was checked where
    out-of-place data was. `ranks` is 0 where no line says how many there are. `old` is a table with
    deviations (`error`), `first` one of NCCL 1. `blank` is a redop column that is empty.
    """

    ratio: tuple[float, float] | None
    parts: int | None
    operator: str | None
    rooted: bool | None
    in_place_checked: bool | None
    ranks: int
    old: bool
    first: bool
    blank: bool


def evidence(read: Sequence[Read], titles: Columns | None, ranks: int) -> Evidence:
    """What the rows say; `ranks` is how many the lines around them say, 0 if none does."""
    rows = [one.row for one in read]
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
    checks = {one.checked for one in read if len(one.checked) == 2 and one.checked[0]}
    in_place_checked = checks == {(True, True)} if len(checks) == 1 else None
    if old and operator and any(one.deviates for one in read):
        in_place_checked = True  # only what was summed deviates
    parts = _parts(rows)
    blank = operator == "" and "redop" in left
    ranks = ranks or (parts if parts and parts > 1 else 0)
    return Evidence(
        _ratio(rows), parts, operator, rooted, in_place_checked, ranks, old, titles.first, blank
    )


def candidates(seen: Evidence) -> list[str]:
    """The collectives that the table can be of; [] where its figures contradict each other."""
    found = [row for row in COLLECTIVES if not any(rule(row, seen) for rule in RULES)]
    if seen.parts:
        found = [row for row in found if not row.uneven]  # whose parts are equal by chance alone
    return [row.name for row in found]


def contradiction(row: Collective, seen: Evidence) -> str:
    """Why the table cannot be of this collective; '' where it can."""
    of_columns: tuple[Rule, ...] = (_operator_fits, _root_fits, _parts_fit, _whole_fits)
    rules = of_columns if seen.ratio == NO_RATIO else (_ratio_fits, *of_columns)
    return next(filter(None, (rule(row, seen) for rule in rules)), "")


def ranks_of(row: Collective, seen: Evidence) -> tuple[float, float] | None:
    """The least and largest number of ranks with which busbw / algbw is what the table shows;
    None if it does not depend on them.
    """
    limit = round(row.bus_factor(1 << 40))
    if seen.ratio is None or row.bus_factor(2) == row.bus_factor(3):
        return None
    low, high = seen.ratio
    least = math.ceil(limit / (limit - low) - 1e-9) if low < limit else math.inf
    return max(least, 1), math.floor(limit / (limit - high) + 1e-9) if high < limit else math.inf


def ratio_text(seen: Evidence) -> str:
    """`1.75` of the busbw / algbw that was seen, with the digits that are known."""
    low, high = seen.ratio or (math.nan, math.nan)
    middle, half = (low + high) / 2, max((high - low) / 2, 1e-4)
    if not math.isfinite(half):
        return "no number"
    return f"{middle:.{max(0, min(4, round(-math.log10(half))))}f}"


def _ratio_fits(row: Collective, seen: Evidence) -> str:
    if seen.ratio is None:
        return ""
    low, high = seen.ratio
    if (
        seen.old
        and row.name in OLD_FACTOR_IN_ALGBW
        and low <= 1 <= high
        and (seen.first or seen.parts != 1)
    ):
        return ""
    if seen.first and row.name == "reduce_scatter" and math.ceil(low) <= high:
        return ""
    if seen.ranks:
        wanted = float(row.bus_factor(seen.ranks))
        text, fits = (
            f"{row.formula}, {wanted:.4g} for {seen.ranks} ranks",
            low - 1e-4 <= wanted <= high + 1e-4,
        )
    elif (allowed := ranks_of(row, seen)) is None:
        text, fits = row.formula, low <= float(row.bus_factor(2)) <= high
    else:
        text, fits = (
            f"{row.formula}, {float(row.bus_factor(2)):g} to {round(row.bus_factor(1 << 40))}",
            allowed[0] <= allowed[1] and allowed[0] < math.inf,
        )
    return "" if fits else f"its busbw / algbw is {ratio_text(seen)}, that of {row.name} is {text}"


def _operator_fits(row: Collective, seen: Evidence) -> str:
    # the first sendrecv printed none
    has = row.reduces or (row.redop_column == "op" and not seen.old)
    if seen.operator is None or (has and seen.operator not in ("", "none")):
        return ""
    if has:
        return f"its rows have no operator, those of {row.name} have one"
    if seen.operator in ("", "none"):
        return ""
    return f"its rows have the operator {seen.operator}, those of {row.name} have none"


def _blank_fits(row: Collective, seen: Evidence) -> str:
    """An empty redop column was printed by the first alltoall, and is by hypercube; others print
    a word, or had no such column.
    """
    empty = "alltoall" if seen.old else "hypercube"
    if seen.blank:
        return "" if row.name == empty else "its redop column is not empty"
    return "its redop column is empty" if seen.operator is not None and row.name == empty else ""


def _root_fits(row: Collective, seen: Evidence) -> str:
    if seen.rooted is None or seen.rooted == row.rooted:
        return ""
    return (
        f"its rows have {'a root' if seen.rooted else 'no root'}, those of {row.name} have"
        f" {'none' if seen.rooted else 'one'}"
    )


def _parts_fit(row: Collective, seen: Evidence) -> str:
    units = [row.algbw_units(ranks) for ranks in (2, 3)]
    if not seen.parts or seen.parts == 1 or units != [1, 1] or row.uneven:
        return ""
    return f"its size is {seen.parts} times its count in bytes, that of {row.name} is equal to it"


def _whole_fits(row: Collective, seen: Evidence) -> str:
    one_rank = seen.ranks == 1 or (seen.ratio is not None and seen.ratio[1] < INFORMATIVE)
    whole = seen.parts == 1 and row.algbw_units(3) > 1 and not seen.first and not one_rank
    return f"its size is its count in bytes, that of {row.name} is larger" if whole else ""


def _check_fits(row: Collective, seen: Evidence) -> str:
    return (
        ""
        if seen.in_place_checked in (None, row.in_place_checked)
        else "in-place data of the other kind"
    )


Rule = Callable[[Collective, Evidence], str]
RULES: tuple[Rule, ...] = (
    _ratio_fits,
    _operator_fits,
    _blank_fits,
    _root_fits,
    _parts_fit,
    _whole_fits,
    _check_fits,
)


def _parts(rows: Sequence[Row]) -> int | None:
    sizes = {row.name: row.itemsize for row in DTYPES}
    found = set()
    for row in rows:
        own = row.count * sizes.get(reading.element_type(row.dtype), 0)
        if own:
            found.add(row.size_bytes / own)
    parts = found.pop() if len(found) == 1 else 0.0
    return int(parts) if parts >= 1 and parts == int(parts) else None


def _ratio(rows: Sequence[Row]) -> tuple[float, float] | None:
    """The ratios that all cells allow, from the best known on; None where no cell says it."""
    cells = [cell for row in rows for cell in (row.out_of_place, row.in_place) if cell is not None]
    bounds = sorted(filter(None, map(_bounds, cells)), key=lambda one: one[1] - one[0])
    if not bounds:
        return None
    (low, high), agreeing = bounds[0], 0
    for least, most in bounds:
        if least <= high and low <= most:
            low, high, agreeing = max(low, least), min(high, most), agreeing + 1
    return (low, high) if agreeing >= AGREEING * len(bounds) else NO_RATIO


def _bounds(cell: Cell) -> tuple[float, float] | None:
    algbw, busbw = cell.algbw / 1e9, cell.busbw / 1e9
    if not (math.isfinite(algbw) and math.isfinite(busbw) and algbw > 0):
        return None
    algbw_by, busbw_by = _rounding(algbw), _rounding(busbw)
    if algbw <= algbw_by:
        return None
    low, high = (
        max(0.0, busbw - busbw_by) / (algbw + algbw_by),
        (busbw + busbw_by) / (algbw - algbw_by),
    )
    return (low, high) if high - low <= INFORMATIVE else None


def _rounding(value: float) -> float:
    return next(by for most, by in ROUNDINGS if value < most)
