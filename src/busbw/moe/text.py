"""Dispatch and combine for people: a table for each direction, and what its columns count."""

from collections.abc import Collection, Sequence

from busbw.core.sizes import counted
from busbw.model.findings import all_findings
from busbw.moe.registry import BACKENDS
from busbw.moe.types import ALLTOALLV, PHASES, MoeResult, MoeRow, MoeSpec, MoeTime
from busbw.moe.verdicts import by_tokens, spans_text
from busbw.moe.volumes import DIRECTIONS
from busbw.ui.columns import Column, aligned, wrapped
from busbw.ui.number_formats import (
    bandwidth_text,
    finding_text,
    library,
    machine,
    micro_text,
    percent_text,
    run_problems,
    text_or_unknown,
)

DROP_ORDER = ("sel", "imb", "+-%")
DEFINITIONS = (
    "time: us from the first rank's start to the last rank's end, median",
    "exchange: us of the exchange between ranks alone",
    "pack, unpack, reduce: us of this phase alone, on the slowest rank",
    "wire: GB/s that leave a rank for other ranks; the rank with the most counts",
    "recv: GB/s of rows that a rank receives (combine: returns), its own included",
    "sel: GB/s of tokens x top-k rows, as if each choice got a row of its own",
    "imb: imbalance, the received rows of the rank with the most over the mean",
    "wrong: elements over all ranks; every element of one operation was compared",
)
PART_OF_EXCHANGE = "-"
FUSED = f"{PART_OF_EXCHANGE}: a phase that is part of the exchange"
OF_FASTEST = "x: time of the second fastest / time of the fastest; `or`: they cannot be told apart"
OF_BOUND = "bound: the least time of the exchange over the links, in % of its time"


def header(result: MoeResult) -> str:
    """What is measured, and on what."""
    spec = result.moe
    lines = [
        f"# {counted(spec.experts, 'expert')} on {counted(result.world.ranks, 'rank')},"
        f" {shape(spec)}",
        "# " + ", ".join(filter(None, (machine(result), library(result), *_versions(result)))),
    ]
    return "".join(f"{line}\n" for line in lines)


def shape(spec: MoeSpec) -> str:
    """`top-8, hidden 7168, bfloat16, routing uniform, seed 1`; a file's routing has no seed."""
    seed = "" if spec.routing.startswith("file:") else f", seed {spec.seed}"
    return f"top-{spec.top_k}, hidden {spec.hidden}, {spec.datatype}, routing {spec.routing}{seed}"


def render_all(result: MoeResult, width: int | None = None) -> str:
    """The whole text."""
    parts = [wrapped(header(result), width)]
    shown = set[str]()
    for direction in DIRECTIONS:
        rows = [row for row in result.rows if row.direction == direction]
        if rows:
            table = aligned(columns(rows), rows, width, DROP_ORDER)
            parts.append(f"\n{direction}\n{table}")
            shown.update(table.splitlines()[0].split())
    parts.append(wrapped("\n" + "".join(f"{line}\n" for line in legend(result, shown)), width))
    if found := all_findings(result):
        parts.append(wrapped("\n" + "".join(map(finding_text, found)), width))
    return "".join(parts)


def columns(rows: Sequence[MoeRow]) -> list[Column]:
    """The columns of a direction's table."""
    phases = [name for name in PHASES[rows[0].direction] if any(name in row.phases for row in rows)]
    found = [
        Column(title="tokens", value=lambda row: row.tokens),
        Column(title="by", value=lambda row: row.backend, left=True),
        Column(title="time", value=lambda row: micro_text(row.whole.time_s)),
        Column(title="+-%", value=lambda row: _half_width(row.whole)),
        *(_phase_column(name) for name in phases),
        Column(title="wire", value=lambda row: bandwidth_text(row.wire)),
        Column(title="recv", value=lambda row: bandwidth_text(row.received)),
        Column(title="sel", value=lambda row: bandwidth_text(row.selections)),
        Column(title="imb", value=lambda row: f"{row.imbalance:.2f}"),
        Column(title="bound", value=lambda row: text_or_unknown(row.of_bound, _percent)),
        Column(title="wrong", value=lambda row: row.wrong),
    ]
    unused = set()
    if not any(row.of_bound for row in rows):
        unused.add("bound")
    if all(row.backend == ALLTOALLV for row in rows):
        unused.add("by")
    return [column for column in found if column.title not in unused]


def legend(result: MoeResult, shown: Collection[str] = ()) -> list[str]:
    """A line for each definition, and where the bound comes from.

    `shown` has the titles of the columns that are shown; all, if it is empty.
    """
    lines = [line for line in DEFINITIONS if not shown or _titles(line) & set(shown)]
    if any(len(row.phases) < len(PHASES[row.direction]) for row in result.rows):
        lines.append(FUSED)
    largest = max(result.rows, key=lambda row: row.tokens, default=None)
    if largest is not None and largest.bound:
        lines += [OF_BOUND, f"least time at {largest.tokens} tokens: {largest.bound}"]
    elif result.no_bound:
        lines.append(f"no bound: {result.no_bound}")
    vague = sum(row.whole.stopped != "ok" for row in result.rows)
    if vague:
        see = ", see +-%" if not shown or "+-%" in shown else ""
        lines.append(
            f"{vague} of {counted(len(result.rows), 'time')} less precise than wanted{see}:"
            " give more --max-time, or stop other jobs"
        )
    lines += fastest(result)
    lines += [f"left out: {name}: {why}" for name, why in result.left_out.items()]
    return lines + run_problems(result)


def _titles(definition: str) -> set[str]:
    """The columns that a line defines: `pack, unpack, reduce: us of ...`."""
    return set(definition.partition(":")[0].split(", "))


def fastest(result: MoeResult) -> list[str]:
    """A line for each direction of which several backends were measured."""
    lines = []
    for direction in DIRECTIONS:
        found = by_tokens(row for row in result.rows if row.direction == direction)
        if found:
            lines.append(f"fastest {direction}: {spans_text(found)}")
    return [*lines, OF_FASTEST] if lines else []


def _versions(result: MoeResult) -> list[str]:
    """`deepep 1.2.1`, of each backend that is not part of the engine."""
    versions = result.library.versions
    return [f"{row.name} {versions[row.name]}" for row in BACKENDS if row.name in versions]


def _phase_column(name: str) -> Column:
    def text(row: MoeRow) -> str:
        taken = row.phases.get(name)
        return micro_text(taken.time_s) if taken else PART_OF_EXCHANGE

    return Column(title=name, value=text)


def _half_width(taken: MoeTime) -> str:
    if taken.low_s is None or taken.high_s is None:
        return "-"
    wider = max(taken.time_s - taken.low_s, taken.high_s - taken.time_s)
    percent = 100 * wider / taken.time_s
    return ">999" if percent > 999 else f"{percent:.1f}"


def _percent(share: float) -> str:
    return percent_text(share, 1.0)
