"""Tables as nccl-tests of several ages, NCCL 1's tests and others print them, of runs that were
not.
"""

from dataclasses import dataclass

from busbw.core.collectives import BY_NAME
from busbw.core.result import Result

DEVICES = "#  Rank {0:2d} Group  0 Pid {1:6d} on      node1 device {0:2d} [0x0{0}] NVIDIA A100\n"
EIGHT = "".join(DEVICES.format(rank, 800 + rank) for rank in range(8))
SIZES = (1 << 10, 1 << 20, 1 << 26, 1 << 30)
MODERN = (
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     time "
    "  algbw   busbw #wrong"
)
UNITS = (
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us) "
    " (GB/s)  (GB/s)"
)


def ids(result: Result) -> list[str]:
    """The ids of the findings."""
    return [finding.id for finding in result.findings]


@dataclass(frozen=True)
class Printed:
    """A table's lines: titles, then rows, then what stands below; `average` is the mean of the
    rows.
    """

    titles: list[str]
    rows: list[str]
    average: float

    @property
    def text(self) -> str:
        """The table of a run that ended."""
        end = ["# Out of bounds values : 0 OK", f"# Avg bus bandwidth    : {self.average:g} ", "#"]
        return "\n".join([*self.titles, *self.rows, *end]) + "\n"


def modern(collective: str, ranks: int, *, checked: bool = True) -> Printed:
    """The layout since August 2022."""
    row = BY_NAME[collective]
    redop, root = (
        ("sum" if row.reduces or row.redop_column == "op" else row.redop_column),
        (0 if row.rooted else -1),
    )
    lines, busbws = [], []
    for size in SIZES:
        units = row.algbw_multiple(ranks)
        count = size // 4 // units
        size_bytes = count * 4 * (ranks if units > 1 else 1)
        columns_left = f"{size_bytes:12d}  {count:12d}  {'float':>8}  {redop:>6}  {root:6d}"
        text, cells = _sides(collective, count * 4 * units, ranks, checked)
        lines.append(columns_left + text)
        busbws += cells
    return Printed([MODERN, UNITS], lines, sum(busbws) / len(busbws))


def _sides(collective: str, size_bytes: int, ranks: int, checked: bool) -> tuple[str, list[float]]:
    row, text, busbws = BY_NAME[collective], "", []
    for in_place, share in ((False, 1.0), (True, 0.97)):
        time_us = 9.0 + size_bytes / 41_000 * share
        algbw = size_bytes / time_us / 1e3
        busbw = algbw * float(row.bus_factor(ranks))
        wrong = "0" if checked and (row.in_place_checked or not in_place) else "N/A"
        text += f"  {time_us:7.2f}  {algbw:6.2f}  {busbw:6.2f}  {wrong:>5}"
        busbws.append(busbw)
    return text, busbws


# Left columns of the layout before August 2022, by what each program printed.
OLD = {
    "all_reduce": "redop",
    "all_gather": "",
    "reduce_scatter": "redop",
    "broadcast": "root",
    "reduce": "redop root",
    "alltoall": "redop",
    "sendrecv": "",
    "gather": "root",
    "scatter": "root",
}


def old(collective: str, ranks: int, *, checked: bool = True) -> Printed:
    """The layout before August 2022, with deviations for wrong elements."""
    row, columns = BY_NAME[collective], OLD[collective].split()
    titles = (
        f"#       size         count      type   {'   '.join(columns)}     time   algbw   busbw "
        " error     time   algbw   busbw  error"
    )
    lines, busbws = [], []
    for size in SIZES:
        units = row.algbw_multiple(ranks)
        count = size // 4 // units
        shown_columns = {"redop": "sum" if row.reduces else "", "root": "0"}
        columns_left = f"{count * 4 * units:12d}  {count:12d}  {'float':>6}" + "".join(
            f"  {shown_columns[name]:>6}" for name in columns
        )
        text, cells = _sides(collective, count * 4 * units, ranks, checked)
        lines.append(
            columns_left + text.replace("      0", "  2e-07" if row.reduces else "  0e+00")
        )
        busbws += cells
    return Printed([titles, UNITS], lines, sum(busbws) / len(busbws))
