"""The exit codes of the commands that give verdicts: exit_codes.csv of each package of commands.

The help, the manual pages, the page of exit codes and a test of all commands are made from it.
"""

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from busbw.core import table_file
from busbw.core.errors import Exit

if TYPE_CHECKING:
    from busbw.core.finding import Verdict

FILE = "exit_codes.csv"


@dataclass(frozen=True, slots=True)
class ExitRow:
    """When a command, or a part of one, ends with 1 and with 3; '' where it never does.

    `warns` is whether it has --fail-on. `unlike` is where and why it differs from the rule.
    """

    command: str
    bad: str = ""
    unknown: str = ""
    warns: bool = False
    unlike: str = ""

    def verdicts(self) -> "list[Verdict]":
        """Those that it can give."""
        from busbw.core.finding import Verdict  # with msgspec, which --help does not need

        given = {Verdict.WARN: self.warns, Verdict.FAIL: self.bad, Verdict.UNKNOWN: self.unknown}
        return [Verdict.PASS, *(verdict for verdict, when in given.items() if when)]

    def code(self, verdict: "Verdict", fail_on: "Verdict | None" = None) -> Exit:
        """The exit code for a verdict; 0 for one that it does not judge. `fail_on`: FAIL, if it is
        not given.
        """
        from busbw.core.finding import Verdict, exit_of

        return exit_of([verdict] if verdict in self.verdicts() else [], fail_on or Verdict.FAIL)

    def text(self) -> str:
        """`Exit code 1 if a check fails; 3 if ...; else 0.`; '' if it is always 0."""
        cases = [
            f"{int(code)} if {when}"
            for code, when in ((Exit.BAD, self.bad), (Exit.UNKNOWN, self.unknown))
            if when
        ]
        return f"Exit code {'; '.join(cases)}; else 0." if cases else ""


@cache
def rows_of(package: str) -> tuple[ExitRow, ...]:
    """The rows of a package of commands."""
    return tuple(
        ExitRow(row["command"], row["bad"], row["unknown"], row["warns"] == "true", row["unlike"])
        for row in table_file.cells(FILE, package)
    )


def exit_text(path: str, package: str = "busbw.cli") -> str:
    """What the help of a command says: `check launch`; '' for one that gives no verdict."""
    return next((row.text() for row in rows_of(package) if row.command == path), "")
