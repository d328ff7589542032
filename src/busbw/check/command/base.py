"""What a rule is: a row of texts, and a pure function of a command line."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from busbw.check.base import Check
from busbw.check.command.line import Line
from busbw.core.checking import CheckRow, Found

STAYS = "change the script or note that holds the line"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. `look` yields at least one finding: skip where the line has nothing that the rule is about."""

    row: CheckRow
    look: Callable[[Line], Iterable[Found]]

    def on(self, line: Line) -> Check:
        """The check of one line; what a machine adds is in the line."""
        return Check(self.row, lambda _machine: self.look(line))
