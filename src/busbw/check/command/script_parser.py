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
class Found:
    """One command of a text: its words, the number of its first line, variables exported before."""

    words: tuple[str, ...]
    number: int
    exported: dict[str, str]


def commands(text: str, source: str) -> list[Found]:
    """The commands with a launcher or a program of nccl-tests.

    UsageError if there is none, or a quotation does not end.
    """
    found: list[Found] = []
    exported: dict[str, str] = {}
    for number, logical in _logical(text.splitlines(), source):
        for words in _split(logical):
            if words[0] == "export":
                exported = {
                    **exported,
                    **{
                        match.group(1): match.group(2)
                        for word in words
                        if (match := _EXPORTED.fullmatch(word))
                    },
                }
            elif (line := parse(words)).launcher or perf(line):
                found.append(Found(tuple(words), number, exported))
    if not found:
        raise UsageError(
            f"{source}: no command of mpirun, srun, torchrun or nccl-tests in it",
            "busbw check command -- mpirun -n 16 ...",
        )
    return found


def _logical(lines: list[str], source: str) -> Iterator[tuple[int, str]]:
    """Lines joined with their continuations, after a backslash or within quotes."""
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


def _words(text: str) -> shlex.shlex:
    lexer = shlex.shlex(text, posix=True, punctuation_chars=_ENDS)
    lexer.whitespace_split, lexer.commenters = True, ""
    return lexer


def _split(text: str) -> Iterator[list[str]]:
    """The words of each command of a line, up to ; & and |."""
    words: list[str] = []
    for word in [*_words(text), ";"]:
        if set(word) <= set(_ENDS) and word:
            if words:
                yield words
            words = []
        else:
            words.append(word)
