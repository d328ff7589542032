"""Which part of a node stands for which group of a file, such as its RDMA ports for the groups of [[ports]]."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from busbw.check.base import failed, unknown, warned
from busbw.core.checking import Evidence, Found
from busbw.core.sizes import counted


class Group(Protocol):
    """A group of parts that are alike."""

    @property
    def count(self) -> int | None:
        """How many there must be."""

    @property
    def names(self) -> list[str]:
        """Their names."""


class Named(Protocol):
    """A part with a name."""

    @property
    def name(self) -> str:
        """Its name."""


Part = TypeVar("Part", bound=Named)
Likeness = Callable[[Part, int], tuple[int, int]]  # of a part and the group with this number: values that are right, and wrong


@dataclass
class Filled(Generic[Part]):
    """A group with the parts that stand for it. `number` counts the groups from 0."""

    number: int
    group: Group
    parts: list[Part]

    @property
    def wanted(self) -> int | None:
        """How many parts there must be; None for any number."""
        return len(self.group.names) or None if self.group.count is None else self.group.count

    @property
    def absent(self) -> list[str]:
        """The expected names that no part has."""
        have = {part.name for part in self.parts}
        return [name for name in self.group.names if name not in have]


def assign(parts: Sequence[Part], groups: Sequence[Group], likeness: "Likeness[Part]") -> list[Filled[Part]]:
    """The groups filled: first by name, then each part with the group that it is most like and that is not full."""
    filled = [Filled(number, group, [part for part in parts if part.name in group.names]) for number, group in enumerate(groups)]
    taken = {part.name for one in filled for part in one.parts}
    free = [part for part in parts if part.name not in taken]
    pairs = [(likeness(part, one.number), one, part) for one in filled for part in free]
    for _, one, part in sorted(pairs, key=lambda pair: (-pair[0][0], pair[0][1])):
        if part.name not in taken and (one.wanted is None or len(one.parts) < one.wanted):
            one.parts.append(part)
            taken.add(part.name)
    return filled


@dataclass(frozen=True, slots=True)
class Words:
    """How findings on the number of parts speak: `noun` is what a part is called, `where` lists the parts."""

    noun: str
    where: str
    fix: str
    expected: str  # the number with its place in the file
    hidden: str  # what may hide parts; '' if nothing does


def numbers(filled: Filled[Part], words: Words) -> Iterator[Found]:
    """A failure for each part that is missing, by name where the file has names; a warning for each name that another part has."""
    wanted, have = filled.wanted, len(filled.parts)
    evidence = Evidence(words.where, ", ".join(part.name for part in filled.parts) or "none", words.expected)
    if wanted is not None and have < wanted:
        text = f"{counted(have, words.noun)}, expected {wanted}"
        if words.hidden:
            yield unknown("", f"{text}: {words.hidden} may hide some", evidence, fix="busbw check --expect, on the host")
            return
        absent = filled.absent[: wanted - have]
        for name in absent:
            yield failed(name, f"{name} is missing: {text}", evidence, fix=words.fix)
        if len(absent) < wanted - have:
            yield failed("", text, evidence, fix=words.fix)
        return
    for name in filled.absent:
        message = f"no {words.noun} is called {name}, though all {wanted} are there"
        yield warned(name, message, evidence, fix="if nodes name them differently, delete `names` from the file")
