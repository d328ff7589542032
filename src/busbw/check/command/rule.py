"""What a rule is: a check of a command line."""

from collections.abc import Callable

from busbw.check.base import CheckOf, Judge
from busbw.check.command.line import Line
from busbw.core.check_row import CheckRow

STAYS = "change the script or note that holds the line"

Rule = CheckOf[Line]
REGISTERED: list[Rule] = []  # by the decorator, as modules are imported


def rule(row: CheckRow) -> Callable[[Judge[Line]], Rule]:
    """Makes a function of a line the rule of `row`, which the registry then has."""

    def register(judge: Judge[Line]) -> Rule:
        made = Rule(row, judge)
        REGISTERED.append(made)
        return made

    return register
