"""Command lines in text: one line, or a script with continued lines and exported variables."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from busbw.check.command.manifest import operator_variables, with_lists_as_lines
from busbw.check.command.nccl_tests import perf
from busbw.check.command.parse_line import parse
from busbw.check.command.sbatch import job_variables
from busbw.check.command.shell_split import captured, split_commands
from busbw.core.errors import UsageError

_EXPORTED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
MAX_DEPTH = 8  # of assignments within assignments
# <<EOF, <<-EOF and <<'EOF', not <<<.
_HERE_DOCUMENT = re.compile(r"""(?<!<)<<-?\s*(["']?)([A-Za-z_]\w*)\1""")
_BEFORE_COMMANDS = ("if", "elif", "while", "until", "then", "else", "do", "!", "{", "(")
_NAMING = ("echo", "printf", "which", "type", "hash")  # they take names of programs, and start none


@dataclass(frozen=True, slots=True)
class ScriptCommand:
    """One command of a text: its words, the number of its first line, counted from 1.

    `exported` are the variables that earlier commands of the text export, and those that sbatch
    sets.
    """

    words: tuple[str, ...]
    number: int
    exported: dict[str, str]


def commands(text: str, source: str) -> list[ScriptCommand]:
    """The commands with a launcher or a program of nccl-tests.

    Without any, the last one for which the text exports variables of NCCL, as of deepspeed or
    python. UsageError if there is none, or a quotation does not end.
    """
    parsed, other = list[ScriptCommand](), list[ScriptCommand]()
    exported = operator_variables(text) | job_variables(text)
    for number, joined_line in _join_lines(with_lists_as_lines(text).splitlines(), source):
        for words in _with_captured(joined_line):
            line = parse(words)
            if words[0] == "export":
                matches = map(_EXPORTED.fullmatch, words)
                exported = exported | {match[1]: match[2] for match in matches if match}
            elif (line.launcher or perf(line)) and not _only_names(words):
                parsed.append(ScriptCommand(tuple(words), number, exported))
            if any(name.startswith("NCCL_") for name in exported):
                other = [ScriptCommand(tuple(words), number, exported)]
    if not parsed and not other:
        raise UsageError(
            f"{source}: no command of mpirun, srun, torchrun or nccl-tests in it, and no export of"
            " NCCL's variables",
            "busbw check command -- mpirun -n 16 ...",
        )
    return parsed or other


def _with_captured(text: str, depth: int = 0) -> Iterator[list[str]]:
    """The commands of a line, and before each those whose output it assigns to variables."""
    for words in split_commands(text):
        for word in words if depth < MAX_DEPTH else ():
            inside = _with_captured(captured(word), depth + 1)
            yield from (command for command in inside if parse(command).program)
        yield words


def _only_names(words: list[str]) -> bool:
    """Whether it only names programs: it prints or looks for them, as echo and command -v do."""
    start = 0
    while start < len(words) - 1 and words[start] in _BEFORE_COMMANDS:
        start += 1
    if words == ["-", words[-1]]:  # an item of a list in YAML
        return True
    looks_for = words[start] == "command" and words[start + 1 : start + 2] in (["-v"], ["-V"])
    return words[start] in _NAMING or looks_for


def _join_lines(lines: list[str], source: str) -> Iterator[tuple[int, str]]:
    """Each line joined with the lines that continue it, after a backslash or within quotes.

    With the number of its first line, counted from 1. In a here-document a quotation may be open.
    """
    at = document_end = 0
    last = {line.strip(): index for index, line in enumerate(lines)}
    while at < len(lines):
        first = at
        if lines[at].lstrip().startswith("#"):
            at += 1
            continue
        in_document = at < document_end
        joined, closed, at = _join(lines, at, document_end if in_document else len(lines))
        if closed:
            if not in_document:
                document_end = _here_document_end(joined, lines, at, last)
            yield first + 1, joined
        elif in_document:
            at = first + 1
        else:
            raise UsageError(
                f"{source}, line {first + 1}: a quotation does not end",
                "close it, or give the words without quoting them",
            )


def _join(lines: list[str], at: int, end: int) -> tuple[str, bool, int]:
    """The line at `at` with those that continue it, up to `end`.

    A backslash with a blank after it is a word of one blank, as in a shell: the line ends there.

    Whether its quotations end, and the index after it.
    """
    parts, quote, continues = list[str](), "", True
    while at < end and (quote or continues):
        text, quote = _without_comment(lines[at], quote)
        continues = text.endswith("\\")
        if continues:
            parts.append(f"{text[:-1]} ")
        else:
            parts.append(f"{text}\n" if quote else text)
        at += 1
    return "".join(parts), not quote, at


def _here_document_end(joined: str, lines: list[str], at: int, last: dict[str, int]) -> int:
    """The index of the line that ends the here-document of a joined line; 0 without one.

    `last` is the index of the last line with a text.
    """
    match = _HERE_DOCUMENT.search(joined)
    if match is None or last.get(match[2], 0) < at:
        return 0
    return next(index for index in range(at, len(lines)) if lines[index].strip() == match[2])


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
