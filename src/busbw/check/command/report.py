"""What is wrong with command lines, read from words, a file or stdin."""

from collections.abc import Sequence
from pathlib import Path

from busbw.check.command.line import parse
from busbw.check.command.lint import lint
from busbw.check.command.local_facts import named_facts, starts_here
from busbw.check.command.nccl_tests import perf
from busbw.check.command.script_parser import Found, commands
from busbw.check.machine import Machine
from busbw.check.types import CommandReport, LineReport
from busbw.core.errors import UsageError
from busbw.core.given_file import read_text
from busbw.core.masking import masked_words

STDIN = "-"


def read(words: Sequence[str], stdin: str = "") -> tuple[list[Found], str]:
    """The commands, and the name of the text that they are in ('' for words).

    One word is a file with a script, `-` for `stdin`, or a whole line in quotes. UsageError without
    a command of a launcher.
    """
    if not words:
        raise UsageError(
            "no command line",
            "give it as you would start it: busbw check command -- mpirun -n 16 -H h1:8,h2:8"
            " PROGRAM",
        )
    if words[0] == STDIN and len(words) == 1:
        return commands(stdin, "stdin"), "stdin"
    if len(words) == 1 and any(letter.isspace() for letter in words[0]):
        return commands(words[0], "the line"), ""
    if len(words) == 1 and Path(words[0]).is_file() and not parse(words).launcher:
        try:
            text = read_text(words[0])
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not text"
            raise UsageError(
                f"{words[0]}: {reason}", "give a script, or a command line after --"
            ) from error
        return commands(text, words[0]), words[0]
    line = parse(words)
    if len(words) == 1 and not (line.launcher or perf(line)):
        raise UsageError(
            f"{words[0]}: neither a file nor a launcher",
            "give a script, or a command line after --",
        )
    return [Found(tuple(words), 0, {})], ""


def report(words: Sequence[str], stdin: str, machine: Machine | None) -> CommandReport:
    """The findings of each command. `machine` is used only if it has the launchers.

    UsageError as `read`.
    """
    found, source = read(words, stdin)
    here = machine if machine and all(starts_here(command.words) for command in found) else None
    lines = [
        LineReport(
            where=f"{source}, line {command.number}" if source else "",
            argv=masked_words(command.words),
            findings=lint(command.words, here, command.exported),
        )
        for command in found
    ]
    return CommandReport(
        lines=lines, facts=named_facts(parse(found[0].words), here) if here else {}
    )
