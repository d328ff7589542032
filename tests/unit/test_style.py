"""The rules of docs/style.md for errors and help, as far as the source shows them."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = (ROOT / "src", ROOT / "accel" / "src")
ERRORS = re.compile(r"(Error|NoMeasurement|TimedOut|Failed|Refused)$")
RAISES_OR_HELPS = re.compile(rf"{ERRORS.pattern[:-1]}\(|\bhelp=")
CLASS = re.compile(r"^ *class _*(\w+)", re.MULTILINE)
# A word in upper and lower case, and not a name such as NCCL, RuntimeClass, Secret or Gbit.
SENTENCE = re.compile(r"(An|The|This|Use|No|Not|Cannot|Could|Please|Invalid|Unknown|It)\b")
TALK = re.compile(r"!(?=\s|$)|\b(?:sorry|oops|invalid value)\b", re.IGNORECASE)


def literal(node: ast.expr) -> str | None:
    """The text of a literal, with `{}` for each value; None for any other expression."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if not isinstance(node, ast.JoinedStr):
        return None
    return "".join(
        str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values
    )


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and text of each error's message and hint, and of each option's help."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        name = call.func.id if isinstance(call.func, ast.Name) else name
        checked_nodes = call.args[:2] if ERRORS.search(name) else []
        checked_nodes = [
            *checked_nodes,
            *(word.value for word in call.keywords if word.arg == "help"),
        ]
        for node in checked_nodes:
            text = literal(node)
            if text:
                yield node.lineno, text


def faults(text: str) -> str:
    """The fault of a message, hint or help; '' if there is none."""
    if text.endswith(".") and not text.endswith("..."):
        return "ends with a period"
    if SENTENCE.match(text):
        return "begins like a sentence"
    return "talks" if TALK.search(text) else ""


def test_errors_and_help_follow_the_style() -> None:
    wrong, count = [], 0
    for path in sorted(path for source in SOURCES for path in source.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        # to parse the files that have neither takes longer than all else
        for line, text in texts(ast.parse(source)) if RAISES_OR_HELPS.search(source) else ():
            count += 1
            if fault := faults(text):
                wrong.append(f"{path.relative_to(ROOT)}:{line} {fault}: {text[:60]}")
    assert count > 1000
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("The file is empty.", "ends with a period"),
        ("No such rank", "begins like a sentence"),
        ("sorry, it failed", "talks"),
        ("it failed!", "talks"),
        ("busbw check command -- mpirun ...", ""),
        ("NCCL has no such algorithm: Rign", ""),
    ],
)
def test_the_style_is_recognized(text: str, fault: str) -> None:
    assert faults(text) == fault


@pytest.mark.parametrize("source", SOURCES, ids=["busbw", "busbw-accel"])
def test_class_names_are_unique(source: Path) -> None:
    """One name is one thing; an underscore makes no other name."""
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted(source.rglob("*.py")):
        for name in CLASS.findall(path.read_text(encoding="utf-8")):
            places[name].append(str(path.relative_to(source)))
    assert len(places) > 100
    assert not {name: found for name, found in places.items() if len(found) > 1}
