"""The command line of nccl-tests, by its rules: options in any order, `-b8`, `--minb 8`, the
last wins, other arguments are ignored.
"""

import getopt
from collections.abc import Sequence
from dataclasses import dataclass

from busbw.core.errors import BusbwError, UsageError
from busbw.core.options import OPTIONS, Option
from busbw.core.sizes import parse_int, scan_size

SHORT = "".join(f"{row.short}:" for row in OPTIONS) + "h"
LONG = [f"{row.long}=" for row in OPTIONS] + ["help"]
_BY_FLAG: dict[str, Option] = {
    flag: row for row in OPTIONS for flag in (f"-{row.short}", f"--{row.long}")
}


class BadArguments(UsageError):
    """Arguments that nccl-tests rejects with exit code 255."""


@dataclass(frozen=True, slots=True)
class ParsedOptions:
    """Values by SweepSpec field. `help` is set for -h and for an unknown option, which has getopt's
    `message`.
    """

    fields: dict[str, int | str]
    help: bool
    message: str = ""


def parse(args: Sequence[str]) -> ParsedOptions:
    """The options of a command line; BadArguments for an invalid size."""
    fields: dict[str, int | str] = {row.field: row.default for row in OPTIONS}
    try:
        pairs, _ = getopt.gnu_getopt(list(args), SHORT, LONG)
    except getopt.GetoptError as error:
        return ParsedOptions(fields, True, str(error))
    for flag, text in pairs:
        if flag in ("-h", "--help"):
            return ParsedOptions(fields, True)
        row = _BY_FLAG[flag]
        fields[row.field] = _value(row, text)
    return ParsedOptions(fields, False)


def _value(row: Option, text: str) -> int | str:
    if row.kind == "word":
        return text
    if row.kind == "int":
        return parse_int(text)
    try:
        return scan_size(text)
    except BusbwError as error:
        name = "stepBytes" if row.long == "stepbytes" else row.long
        raise BadArguments(f"invalid size specified for '{name}'", error.hint) from error


def usage(program: str) -> str:
    """The text of -h, from the option table."""
    lines = [f"USAGE: {program} "]
    lines += [f"\t[-{row.short},--{row.long} <{row.kind}>] {row.help}" for row in OPTIONS]
    return "\n".join([*lines, "\t[-h,--help]"]) + "\n"
