"""A result as a reference curve."""

from busbw.core.result import Result
from busbw.model.hardware import gpu_word
from busbw.model.reference.curves import ReferenceCurve
from busbw.model.systems import GBIT, System

NUMBERS_FROM_2_9 = 10000


def curve_of(
    result: Result, system: System, placement: tuple[int, int], source: str, run: str
) -> ReferenceCurve | None:
    """The curve of a result that was measured on `system`, on so many hosts with so many ranks
    each; None if no size of it has a time.

    Times are those out of place, or in place where only these were measured.
    """
    hosts, per_host = placement
    times: dict[int, float] = {}
    for row in result.rows:
        cell = row.out_of_place or row.in_place
        if cell and row.size_bytes > 0 and cell.time_s > 0:
            times.setdefault(row.size_bytes, cell.time_s)
    if not times:
        return None
    sizes = tuple(sorted(times))
    return ReferenceCurve(
        source=source,
        run=run,
        gpu=gpu_word(system.gpu),
        per_host=per_host,
        hosts=hosts,
        nics=nics_text(system) if hosts > 1 else "",
        collective=result.spec.row.name,
        dtype=result.spec.datatype,
        nccl=nccl_text(result.library.nccl),
        sizes=sizes,
        times_us=tuple(float(f"{times[size] * 1e6:.5g}") for size in sizes),
    )


def nics_text(system: System) -> str:
    """`8x400G`: the NICs as --nics takes them."""
    return f"{system.nics}x{system.nic / GBIT:g}G"


def nccl_text(number: int) -> str:
    """`2.28.9` for NCCL's version number 22809, `2.8.4` for 2804, as releases before 2.9 had it;
    empty for 0, which is an unknown version.
    """
    if not number:
        return ""
    if number < NUMBERS_FROM_2_9:
        return f"{number // 1000}.{number // 100 % 10}.{number % 100}"
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"
