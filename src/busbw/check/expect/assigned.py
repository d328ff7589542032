"""Which parts of a node, such as its RDMA ports, stand for which group of a file."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from busbw.check.base import failed, unknown, warned
from busbw.check.expect.base import Asked, Comparison, hidden
from busbw.check.types import Evidence, Found
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
Compare = Callable[[Part, int], Comparison]  # a part with the group of this number


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


def assign(
    parts: Sequence[Part], groups: Sequence[Group], compare: "Compare[Part]"
) -> list[Filled[Part]]:
    """The groups with their parts: by name, then each with the group that it is most like.

    A group that has its number of parts gets no more.
    """

    def likeness(part: Part, filled: Filled[Part]) -> tuple[int, int]:
        compared = compare(part, filled.number)
        return -len(compared.good), len(compared.wrong)

    filled = []
    for number, group in enumerate(groups):
        named = [part for part in parts if part.name in group.names]
        filled.append(Filled(number, group, named))
    taken = {part.name for one in filled for part in one.parts}
    free = [part for part in parts if part.name not in taken]
    pairs = [(likeness(part, one), one, part) for one in filled for part in free]
    for _, one, part in sorted(pairs, key=lambda pair: pair[0]):
        if part.name not in taken and (one.wanted is None or len(one.parts) < one.wanted):
            one.parts.append(part)
            taken.add(part.name)
    return filled


@dataclass(frozen=True, slots=True)
class Kind:
    """What parts of a table of the file are called, where they are listed.

    `fix` is for a part that is missing.
    """

    table: str
    noun: str
    where: str
    fix: str


def missing(asked: Asked, filled: Filled[Part], kind: Kind) -> Iterator[Found]:
    """A failure for each part that is missing, by name where the file has names.

    A warning for each name that another part has.
    """
    wanted, have = filled.wanted, len(filled.parts)
    if wanted is None or have >= wanted:
        yield from _renamed(asked, filled, kind)
        return
    text = f"{counted(have, kind.noun)}, expected {wanted}"
    evidence = _evidence(asked, filled, kind)
    if hides := hidden(asked.machine):
        yield unknown(
            "", f"{text}: {hides} may hide some", evidence, fix="busbw check --expect, on the host"
        )
        return
    absent = filled.absent[: wanted - have]
    for name in absent:
        yield failed(name, f"{name} is missing: {text}", evidence, fix=kind.fix)
    if len(absent) < wanted - have:
        yield failed("", text, evidence, fix=kind.fix)


def _renamed(asked: Asked, filled: Filled[Part], kind: Kind) -> Iterator[Found]:
    for name in filled.absent:
        message = f"no {kind.noun} is called {name}, though all {filled.wanted} are there"
        fix = "if nodes name them differently, delete `names` from the file"
        yield warned(name, message, _evidence(asked, filled, kind), fix=fix)


def _evidence(asked: Asked, filled: Filled[Part], kind: Kind) -> Evidence:
    key = "names" if filled.group.count is None else "count"
    expected = asked.expected(str(filled.wanted), kind.table, filled.number, key)
    return Evidence(kind.where, ", ".join(part.name for part in filled.parts) or "none", expected)
