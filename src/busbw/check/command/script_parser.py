"""Command lines in text: one line, or a script with continued lines and exported variables."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from busbw.check.command.line import ASSIGNMENT
from busbw.check.command.manifest import operator_variables, with_lists_as_lines
from busbw.check.command.nccl_tests import perf
from busbw.check.command.parse_line import parse
from busbw.check.command.sbatch import job_variables, sbatch_wrap
from busbw.check.command.shell_split import captured, split_commands
from busbw.core.errors import UsageError

# NAME=(a b), NAME+=(c), NAME="-a b"
_LIST = re.compile(r"([A-Za-z_]\w*)(\+?)=(\(?)(.*)", re.DOTALL)
_USE = re.compile(r"\$(?:\w+|\{\w+\})", re.ASCII)
_OPEN_ARRAY = re.compile(r"\s*(?:\w+ (?:-\w+ )*)?[A-Za-z_]\w*\+?=\((?!.*\)\s*$)", re.DOTALL)
_DECLARING = ("declare", "local", "readonly", "typeset", "then", "else")
_TESTS = ("[", "[[", "test")
MAX_DEPTH = 8  # of assignments within assignments
MAX_WORDS = 4096  # of a list, which may hold others twice
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
    reader = _ScriptReader(operator_variables(text) | job_variables(text))
    for number, joined_line in _join_lines(with_lists_as_lines(text).splitlines(), source):
        reader.read(joined_line, number)
    if not reader.parsed and not reader.other:
        raise UsageError(
            f"{source}: no command of mpirun, srun, torchrun or nccl-tests in it, and no export of"
            " NCCL's variables",
            "busbw check command -- mpirun -n 16 ...",
        )
    return reader.parsed or reader.other


class _ScriptReader:
    """Reads the lines of a script in their order: what they export, and lists of options in
    variables, which it puts in place of `$ARGS` and `"${ARGS[@]}"`.

    What a branch of `if` or `case` assigns holds up to its end, as it may not have run.
    """

    def __init__(self, exported: dict[str, str]) -> None:
        self.parsed: list[ScriptCommand] = []
        self.other: list[ScriptCommand] = []  # the last one after exports of NCCL's variables
        self._exported, self._lists = exported, dict[str, list[str]]()
        self._before_branches: list[dict[str, list[str]]] = []

    def read(self, text: str, number: int) -> None:
        """Take what the commands of a line say."""
        tested = False
        for given in _with_captured(text):
            self._follow_branches(given[0])
            assigns, tested = self._assigns_list(given, keep=not tested), given[0] in _TESTS
            words = [] if assigns else self._expanded(given)
            if not words:
                continue
            line, wrapped = parse(words), sbatch_wrap(words)
            if words[0] == "export":
                matches = map(ASSIGNMENT.fullmatch, words)
                self._exported = self._exported | {match[1]: match[2] for match in matches if match}
            elif wrapped:
                self._exported = self._exported | job_variables(f"#SBATCH {shlex.join(words[1:])}")
                self.read(wrapped, number)
            elif (line.launcher or perf(line)) and not _only_names(words):
                self.parsed.append(ScriptCommand(tuple(words), number, self._exported))
            if any(name.startswith("NCCL_") for name in self._exported):
                self.other = [ScriptCommand(tuple(words), number, self._exported)]

    def _follow_branches(self, word: str) -> None:
        if word in ("if", "case"):
            self._before_branches.append(dict(self._lists))
        elif word in ("elif", "else", "fi", "esac") and self._before_branches:
            self._lists = dict(self._before_branches[-1])
        if word in ("fi", "esac") and self._before_branches:
            self._before_branches.pop()

    def _assigns_list(self, words: list[str], *, keep: bool) -> bool:
        """Whether it assigns an array, or options or a number to a variable; `keep` them."""
        at = 0
        while at < len(words) - 1 and (words[at] in _DECLARING or words[at].startswith("-")):
            at += 1
        match = _LIST.fullmatch(words[at])
        if match is None:
            return False
        name, plus, opening, first = match.groups()
        if opening:
            items = [first, *words[at + 1 :]]
            items[-1] = items[-1].removesuffix(")")
        else:
            items = next(split_commands(first), [""])
            known = items[0].startswith("-") or items[0] in _uses(name) or items[0].isdecimal()
            if len(words) > at + 1 or not known:
                self._lists.pop(name, None)  # what it had is over
                return False
        before = self._lists.get(name, []) if plus else []
        if keep:
            added = self._expanded(list(filter(None, items)))
            self._lists[name] = (before + added)[:MAX_WORDS]
        return True

    def _expanded(self, words: list[str]) -> list[str]:
        uses = {use: items for name, items in self._lists.items() for use in _uses(name)}

        def with_number(use: re.Match[str]) -> str:
            items = uses.get(use[0], [])
            return items[0] if len(items) == 1 and items[0].isdecimal() else use[0]

        return [item for word in words for item in uses.get(word, [_USE.sub(with_number, word)])]


def _uses(name: str) -> tuple[str, ...]:
    """How a shell is asked for all words of a variable."""
    return f"${name}", f"${{{name}}}", f"${{{name}[@]}}", f"${{{name}[*]}}"


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
        elif not quote and _OPEN_ARRAY.match("".join(parts) + text):
            continues = True
            parts.append(f"{text} ")
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
