"""Misspelled NCCL variables."""

from collections.abc import Iterator
from difflib import get_close_matches

from busbw.check.base import Check, no_environment, passed, warned
from busbw.check.machine import Machine
from busbw.check.nccl.known_names import NAMES, OTHERS, PREFIXES
from busbw.check.nccl.settings import READS, STAYS, settings
from busbw.check.nccl.torch_names import RENAMED
from busbw.check.shell_words import assignment
from busbw.check.types import Found
from busbw.core.check_row import CheckRow, Layer

ROW = CheckRow(
    id="BW192",
    name="nccl-names",
    layer=Layer.NCCL,
    title="names of NCCL variables",
    right="names that a version of NCCL reads",
    why="NCCL silently ignores a name that it does not know. For example, NCCL_TIMEOUT is often set in training scripts and does nothing.",
    fix="unset {variable}",
    stays=STAYS,
    reads=READS,
    sources=("NCCL user guide, environment variables", "names in the libraries of NCCL 2.14.3 to 2.32.3"),
)


def look(machine: Machine) -> Iterator[Found]:
    """All variables that begin with NCCL_."""
    every = settings(machine)
    if every is None:
        yield no_environment()
        return
    named = [one for name, one in every.items() if name.startswith("NCCL_") and not name.startswith(PREFIXES)]
    strange = [one for one in named if one.name not in NAMES | OTHERS and one.name not in RENAMED]
    for one in strange:
        near = get_close_matches(one.name, NAMES, 1, cutoff=0.85)
        meant = f"; the closest name is {near[0]}" if near else ""
        fix = f"{one.unset}; export {assignment(near[0], one.value)}" if near else one.unset
        yield warned(
            one.name, f"no version of NCCL from 2.14 to 2.32 reads {one.name}{meant}", one.evidence(near[0] if near else ""), fix=fix
        )
    if not strange:
        yield passed("", f"{len(named)} variables, all known" if named else "no NCCL variable is set", *(one.evidence() for one in named))


CHECK = Check(ROW, look)
