"""Commands in manifests of Kubernetes: the lists under command: and args: as lines of a shell."""

import re
import shlex
from collections.abc import Sequence

_KEY = re.compile(r"(\s*)(- )?(command|args):\s*(\[.*)?$", re.IGNORECASE)
_ITEM = re.compile(r"(\s*)- (.*)$")
_FLOW_ITEM = re.compile(
    r"""\s*("(?:\\.|[^"\\])*"|'(?:''|[^'])*'|[^,\[\]"'\s][^,\[\]]*)\s*""", re.DOTALL
)
_FOLDED_NEWLINE = re.compile(r"\\?\s*\n\s*")
_COMMENT = re.compile(r"\s#.*$")
_BLOCK_SCALARS = ("|", ">")
_FOLDED = re.compile(r"(\s*)(?:- )?(?:[\w.-]+:\s*)?>[+-]?\s*$", re.ASCII)
_TEMPLATE = "{{-"
_SHELLS = ("bash", "sh")
MAX_FLOW_LINES = 200
_TRAINING_JOB = re.compile(r"^kind:\s*\w*(PyTorchJob|TrainJob|ElasticJob)\b", re.MULTILINE)
# The operator of a training job sets torchrun's variables, this among them.
_OPERATOR_VARIABLES = {"PET_RDZV_ENDPOINT": "$PET_RDZV_ENDPOINT"}


def operator_variables(text: str) -> dict[str, str]:
    """The variables that an operator sets for the commands of a manifest; empty for other texts."""
    return dict(_OPERATOR_VARIABLES) if _TRAINING_JOB.search(text) else {}


def with_lists_as_lines(text: str) -> str:
    """The text with each list of command: and args: as one line, and as many lines as before.

    A list with a block of lines (`- |`) stays, as its lines are those of a shell. So does one with
    {{- ... }}, which a template fills.
    """
    lines = _unfolded(text.splitlines())
    at, first, end = 0, 0, -1
    words = list[str]()
    while at < len(lines):
        key = _KEY.match(lines[at])
        if key is None:
            at += 1
            continue
        if key[4]:
            items, after = _read_flow(lines, at)
        else:
            items, after = _read_items(lines, at + 1, len(key[1] + (key[2] or "")))
        if items and not any(_TEMPLATE in item for item in items):
            if key[2] or end != at:
                words, first = items, at
            else:  # the other list of the same container
                words = [*words, *items] if key[3].lower() == "args" else [*items, *words]
            lines[first:after] = [_as_line(words), *([""] * (after - first - 1))]
            end = after
        at = max(after, at + 1)
    return "\n".join(lines)


def _unfolded(lines: Sequence[str]) -> list[str]:
    """The lines, with those of each folded block (`args: >`) joined up to an empty line, as YAML
    joins them, and empty ones in their place. Lines that are indented further stay as they are.
    """
    unfolded = list(lines)
    outer, inner, head = -1, -1, 0  # indents of the key and of its lines, and the line joined to
    for at, line in enumerate(lines):
        indent = _indent(line)
        if outer >= 0 and line.strip() and indent <= outer:
            outer = -1
        key = _FOLDED.match(line)
        if outer < 0 and key:
            outer, inner, head = len(key[1]), -1, at
        elif outer >= 0 and line.strip():
            inner = indent if inner < 0 else inner
            follows = at and lines[at - 1].strip() and _indent(lines[at - 1]) == inner == indent
            if follows and not lines[at - 1].endswith("\\"):
                unfolded[head], unfolded[at] = f"{unfolded[head]} {line.strip()}", ""
            else:
                head = at
    return unfolded


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _read_items(lines: Sequence[str], at: int, indent: int) -> tuple[list[str], int]:
    """The items of a list from `at` on, and the index after it; none if one is a block of lines."""
    items = list[str]()
    while at < len(lines):
        line = lines[at]
        match = _ITEM.match(line)
        if match and len(match[1]) >= indent:
            if match[2].startswith(_BLOCK_SCALARS):
                return [], at
            items.append(_COMMENT.sub("", match[2]).strip())
        elif items and match is None and line.startswith(" " * (indent + 1)):
            items[-1] += f" {line.strip()}"  # an item goes on in deeper lines
        elif line.strip() and not line.lstrip().startswith("#"):
            break
        at += 1
    return [_plain(item) for item in items], at


def _read_flow(lines: Sequence[str], at: int) -> tuple[list[str], int]:
    """The items of a list in brackets, and the index after it; none if it does not end."""
    text = "\n".join(lines[at : at + MAX_FLOW_LINES])
    position = text.index("[") + 1
    items = list[str]()
    match = _FLOW_ITEM.match(text, position)
    while match:
        items.append(_plain(match[1].strip()))
        position = match.end()
        if text[position : position + 1] == ",":
            position += 1
        match = _FLOW_ITEM.match(text, position)
    rest = text[position:].lstrip()
    if not rest.startswith("]"):
        return [], at
    return items, at + text[: len(text) - len(rest)].count("\n") + 1


def _plain(item: str) -> str:
    """An item without its quotes. A line break in it is a blank."""
    if item[:1] == '"':
        item = item[1:-1].replace('\\"', '"')
    elif item[:1] == "'":
        item = item[1:-1].replace("''", "'")
    return _FOLDED_NEWLINE.sub(" ", item)


def _as_line(words: Sequence[str]) -> str:
    """The words as a line of a shell; the script alone for bash -c SCRIPT, or for one item."""
    shell = words[0].rsplit("/", 1)[-1] in _SHELLS and len(words) > 2 and words[1].endswith("c")
    if shell or (len(words) == 1 and " " in words[0]):
        return words[-1]
    return shlex.join(words)
