"""Command lines in text: one line, or a script with continued lines and exported variables."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from busbw.check.command.line import parse
from busbw.check.command.nccl_tests import perf
from busbw.core.errors import UsageError

_EXPORTED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_ENDS = ";&|"


@dataclass(frozen=True, slots=True)
class ScriptCommand:
    """One command of a text: its words, the number of its first line, counted from 1.

    `exported` are the variables that earlier commands of the text export.
    """

    words: tuple[str, ...]
    number: int
    exported: dict[str, str]


def commands(text: str, source: str) -> list[ScriptCommand]:
    """The commands with a launcher or a program of nccl-tests.

    UsageError if there is none, or a quotation does not end.
    """
    parsed: list[ScriptCommand] = []
    exported: dict[str, str] = {}
    for number, joined_line in _join_lines(text.splitlines(), source):
        for words in _split_commands(joined_line):
            line = parse(words)
            if words[0] == "export":
                matches = map(_EXPORTED.fullmatch, words)
                exported = exported | {match[1]: match[2] for match in matches if match}
            elif line.launcher or perf(line):
                parsed.append(ScriptCommand(tuple(words), number, exported))
    if not parsed:
        raise UsageError(
            f"{source}: no command of mpirun, srun, torchrun or nccl-tests in it",
            "busbw check command -- mpirun -n 16 ...",
        )
    return parsed


def _join_lines(lines: list[str], source: str) -> Iterator[tuple[int, str]]:
    """Each line joined with the lines that continue it, after a backslash or within quotes.

    With the number of its first line, counted from 1.
    """
    at = 0
    while at < len(lines):
        first, text = at, lines[at]
        at += 1
        if text.lstrip().startswith("#"):
            continue
        parts, quote = list[str](), ""
        while True:
            text, quote = _without_comment(text, quote)
            continues = text.rstrip().endswith("\\")
            if continues:
                parts.append(f"{text.rstrip()[:-1]} ")
            else:
                parts.append(f"{text}\n" if quote else text)
            if at == len(lines) or not (quote or continues):
                break
            text, at = lines[at], at + 1
        if quote:
            raise UsageError(
                f"{source}, line {first + 1}: a quotation does not end",
                "close it, or give the words without quoting them",
            )
        yield first + 1, "".join(parts)


def _without_comment(line: str, quote: str) -> tuple[str, str]:
    """The line up to its comment, and the quotation mark that is open at its end.

    `quote` is the one open at its start.
    """
    at = 0
    while at < len(line):
        letter = line[at]
        if letter == "\\" and quote != "'":
            at += 1
        elif quote:
            quote = "" if letter == quote else quote
        elif letter in ("'", '"'):
            quote = letter
        elif letter == "#" and (not at or line[at - 1].isspace()):
            return line[:at], ""
        at += 1
    return line, quote


def _lexer(text: str) -> shlex.shlex:
    lexer = shlex.shlex(text, posix=True, punctuation_chars=_ENDS)
    lexer.whitespace_split, lexer.commenters = True, ""
    return lexer


def _split_commands(text: str) -> Iterator[list[str]]:
    """The words of each command of a line, up to ; & and |."""
    words: list[str] = []
    for word in [*_lexer(text), ";"]:
        if set(word) <= set(_ENDS) and word:
            if words:
                yield words
            words = []
        else:
            words.append(word)
