"""Lists of reference curves, and one run of them, as text."""

from collections.abc import Sequence

from busbw.core.collectives import BY_NAME
from busbw.core.sizes import counted, format_size, short_size
from busbw.model.reference.curves import CurveSource, Reference, ReferenceCurve, ReferenceTable
from busbw.ui.columns import Column, aligned, wrapped
from busbw.ui.number_formats import bandwidth_text

DROP_ORDER = ("fabric", "peak GB/s", "NCCL", "NICs", "type", "sizes")


# The values take a ReferenceCurve.
COLUMNS: tuple[Column, ...] = (
    Column(
        title="system", value=lambda curve: f"{curve.hosts} x {curve.per_host} {curve.gpu.upper()}"
    ),
    Column(title="NICs", value=lambda curve: curve.nics or "-", left=True),
    Column(title="fabric", value=lambda curve: curve.fabric or "-", left=True),
    Column(title="collective", value=lambda curve: curve.collective, left=True),
    Column(title="type", value=lambda curve: curve.dtype or "-", left=True),
    Column(title="NCCL", value=lambda curve: curve.nccl or "-", left=True),
    Column(title="sizes", value=lambda curve: sizes_text(curve), left=True),
    Column(title="peak GB/s", value=lambda curve: bandwidth_text(_peak(curve))),
    Column(title="run", value=lambda curve: curve.run, left=True),
)


def part_of(known: Reference, curves: Sequence[ReferenceCurve]) -> ReferenceTable:
    keys = dict.fromkeys(curve.source for curve in curves)
    sources = [known.sources[key] for key in keys if key in known.sources]
    return ReferenceTable(sources=sources, curves=list(curves))


def table_text(table: ReferenceTable, width: int | None = None) -> str:
    """A table by itself as a list."""
    sources = {source.key: source for source in table.sources}
    return list_text(Reference(tuple(table.curves), sources), table.curves, width)


def list_text(known: Reference, curves: Sequence[ReferenceCurve], width: int | None = None) -> str:
    """A line for each curve, then how many there are."""
    runs = {curve.run for curve in curves}
    own = len(runs & {curve.run for curve in known.own})
    foot = f"{counted(len(curves), 'curve')} of {counted(len(runs), 'run')}"
    foot += f", {own} of them your own" if own else ""
    foot += "; who measured: busbw reference show RUN\n"
    return aligned(COLUMNS, curves, width, DROP_ORDER) + "\n" + wrapped(foot, width)


def run_text(known: Reference, run: str, width: int | None = None) -> str:
    """A run with its sources, then busbw by size of its curves, a table for each collective."""
    own = [curve for curve in known.own if curve.run == run]
    curves = own or [curve for curve in known.published if curve.run == run]
    whose = "your own run" if own else "published run"
    head = f"{run}: {whose}\n"
    for key in dict.fromkeys(curve.source for curve in curves):
        head += _source_text(known.sources[key])
    for note in dict.fromkeys(curve.note for curve in curves if curve.note):
        head += f"note     {note}\n"
    by_collective: dict[str, list[ReferenceCurve]] = {}
    for curve in curves:
        by_collective.setdefault(curve.collective, []).append(curve)
    tables = [_table(name, alike, width) for name, alike in by_collective.items()]
    return "\n".join([wrapped(head, width), *tables])


def _source_text(source: CurveSource) -> str:
    return (
        f"source   {source.title}\n"
        f"date     {source.date or 'not known'}\n"
        f"link     {source.link or 'not known'}\n"
        f"license  {source.license or 'not stated'}\n"
    )


def _table(collective: str, curves: Sequence[ReferenceCurve], width: int | None) -> str:
    sizes = sorted({size for curve in curves for size in curve.sizes})
    columns = [Column(title="size", value=format_size), *map(_column, curves)]
    title = f"{BY_NAME[collective].title}, busbw in GB/s by GPUs of a host; {_systems(curves)}\n"
    return wrapped(title, width) + aligned(columns, sizes)


def _column(curve: ReferenceCurve) -> Column:
    at = dict(zip(curve.sizes, curve.times_us, strict=True))
    title = " ".join(filter(None, (f"{curve.per_host}", curve.dtype)))
    if curve.hosts > 1:
        title = f"{curve.hosts} x {title}"

    def value(size: int) -> str:
        return bandwidth_text(curve.busbw(size) or 0.0) if size in at else "-"

    return Column(title=title, value=value)


def _systems(curves: Sequence[ReferenceCurve]) -> str:
    systems = dict.fromkeys(
        " ".join(
            filter(
                None,
                (
                    curve.gpu.upper(),
                    f"with {curve.nics}" if curve.nics else "",
                    curve.fabric,
                    f"NCCL {curve.nccl}" if curve.nccl else "",
                    curve.algorithm,
                ),
            )
        )
        for curve in curves
    )
    return ", ".join(systems)


def sizes_text(curve: ReferenceCurve) -> str:
    """`64K to 8G`."""
    first, last = short_size(curve.sizes[0]), short_size(curve.sizes[-1])
    return first if first == last else f"{first} to {last}"


def _peak(curve: ReferenceCurve) -> float:
    return max(curve.busbw(size) or 0.0 for size in curve.sizes)
