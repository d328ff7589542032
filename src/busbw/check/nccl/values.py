"""Words where NCCL expects a number."""

from collections.abc import Iterator

from busbw.check.base import Check, no_environment, passed, warned
from busbw.check.machine import Machine
from busbw.check.nccl.settings import READS, STAYS, settings
from busbw.check.types import Found
from busbw.core.check_row import CheckRow, Layer

SWITCHES = ("_DISABLE", "_ENABLE")
TRUE = ("true", "yes", "on", "y", "t")

ROW = CheckRow(
    id="BW193",
    name="nccl-values",
    layer=Layer.NCCL,
    title="values of NCCL switches",
    right="numbers",
    why="NCCL reads a switch as a number, and a word as 0. NCCL_P2P_DISABLE=true disables nothing, and NCCL_NVLS_ENABLE=yes disables "
    "NVLink SHARP.",
    fix="export {variable}=1",
    stays=STAYS,
    reads=READS,
    sources=("NCCL, src/misc/param.cc",),
)


def look(machine: Machine) -> Iterator[Found]:
    """All variables whose names end in _DISABLE or _ENABLE."""
    every = settings(machine)
    if every is None:
        yield no_environment()
        return
    switches = [one for name, one in every.items() if name.startswith("NCCL_") and name.endswith(SWITCHES)]
    words = [one for one in switches if not one.value.strip()[:1].isdigit() and one.value.strip()[:1] not in ("-", "+")]
    for one in words:
        meant = "1" if one.value.lower() in TRUE else "0"
        yield warned(one.name, f"NCCL reads {one.text} as 0", one.evidence("a number"), fix=one.to(meant))
    if not words:
        named = ", ".join(one.text for one in switches)
        yield passed("", f"numbers: {named}" if named else "no NCCL switch is set", *(one.evidence() for one in switches))


CHECK = Check(ROW, look)
