"""The exit codes of the commands that give verdicts: exit_codes.csv of each package of commands.

The help, the manual pages, the page of exit codes and a test of all commands are made from it.
"""

from functools import cache

import msgspec

from busbw.cli.commands import commands
from busbw.core import table_file
from busbw.core.errors import Exit
from busbw.core.finding import Verdict, exit_of

FILE = "exit_codes.csv"


class ExitRow(msgspec.Struct, frozen=True):
    """When a command, or a part of one, ends with 1 and with 3; '' where it never does.

    `warns` is whether it has --fail-on. `unlike` is where and why it differs from the rule.
    """

    command: str
    bad: str = ""
    unknown: str = ""
    warns: bool = False
    unlike: str = ""

    def verdicts(self) -> list[Verdict]:
        """Those that it can give."""
        given = {Verdict.WARN: self.warns, Verdict.FAIL: self.bad, Verdict.UNKNOWN: self.unknown}
        return [Verdict.PASS, *(verdict for verdict, when in given.items() if when)]

    def code(self, verdict: Verdict, fail_on: Verdict = Verdict.FAIL) -> Exit:
        """The exit code for a verdict; 0 for one that it does not judge."""
        return exit_of([verdict] if verdict in self.verdicts() else [], fail_on)

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
    return table_file.rows(FILE, ExitRow, package=package)


def rows() -> list[ExitRow]:
    """All rows, also those of extensions."""
    packages = dict.fromkeys(row.package for row in commands())
    return [row for package in packages for row in rows_of(package)]


def exit_text(path: str) -> str:
    """What the help of a command says: `check launch`; '' for one that gives no verdict."""
    return next((row.text() for row in rows() if row.command == path), "")
