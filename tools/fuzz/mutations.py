"""Changes to a file that may break its reader: of bytes, of lines and numbers, and of JSON's
structure.
"""

import json
import random
import re
from collections.abc import Callable
from typing import Any

NUMBERS = (
    "0",
    "1",
    "-1",
    "2",
    "7",
    "255",
    "65535",
    "2147483648",
    "9223372036854775808",
    "1e308",
    "-1e308",
    "1e-320",
    "NaN",
    "Infinity",
    "-Infinity",
    "nan",
    "inf",
    "0x10",
    "1_0",
    "",
    "1.5",
    "00",
)
VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    2**31,
    2**63,
    2**64,
    1e308,
    float("nan"),
    float("inf"),
    -float("inf"),
    0.5,
    "",
    "x",
    "x" * 3000,
    "\u202e\x1b[2J\0",
    [],
    {},
    [[]],
    [None],
    {"": 0},
)
NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
NESTED = 5000
Change = Callable[[random.Random, bytes], bytes]


def mutated(chance: random.Random, data: bytes, others: list[bytes]) -> bytes:
    """The data after one to four changes."""
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        change = chance.choice(CHANGES)
        data = (
            splice(chance, data, chance.choice(others))
            if change is splice_here
            else change(chance, data)
        )
    return data


def number(chance: random.Random, data: bytes) -> bytes:
    """Another number in place of one or several."""
    found = list(NUMBER.finditer(data))
    if not found:
        return data
    one = chance.choice(found)
    value = chance.choice(NUMBERS).encode()
    if chance.random() < 0.2:  # everywhere that this number stands
        return data.replace(one.group(), value)
    return data[: one.start()] + value + data[one.end() :]


def line(chance: random.Random, data: bytes) -> bytes:
    """A line fewer, twice, elsewhere, or cut off."""
    lines = data.splitlines(keepends=True)
    if not lines:
        return data
    index = chance.randrange(len(lines))
    kind = chance.randrange(4)
    if kind == 0:
        del lines[index]
    elif kind == 1:
        lines.insert(index, lines[index])
    elif kind == 2:
        lines.insert(chance.randrange(len(lines)), lines.pop(index))
    else:
        lines[index] = lines[index][: chance.randrange(len(lines[index]) + 1)]
    return b"".join(lines)


def token(chance: random.Random, data: bytes) -> bytes:
    """A word fewer, or in place of another."""
    words = list(re.finditer(rb"[^\s,:;=\"\[\]{}<>]+", data))
    if not words:
        return data
    one, other = chance.choice(words), chance.choice(words)
    return data[: one.start()] + chance.choice((b"", other.group())) + data[one.end() :]


def byte(chance: random.Random, data: bytes) -> bytes:
    """A few bytes that are others."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 3, 10))):
        if changed:
            changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def cut(chance: random.Random, data: bytes) -> bytes:
    """The beginning or the end alone."""
    where = chance.randrange(len(data) + 1)
    return data[:where] if chance.random() < 0.7 else data[where:]


def splice(chance: random.Random, data: bytes, other: bytes) -> bytes:
    """The beginning of one file and the end of another."""
    return data[: chance.randrange(len(data) + 1)] + other[chance.randrange(len(other) + 1) :]


def splice_here(chance: random.Random, data: bytes) -> bytes:
    """A file with itself."""
    return splice(chance, data, data)


def structure(chance: random.Random, data: bytes) -> bytes:
    """A value of a JSON document, or of one of its lines, that is another, is gone, or is there
    twice.
    """
    try:
        return json.dumps(_changed(chance, json.loads(data))).encode()
    except (ValueError, RecursionError):
        pass
    lines = data.splitlines()
    if not lines:
        return data
    index = chance.randrange(len(lines))
    try:
        lines[index] = json.dumps(_changed(chance, json.loads(lines[index]))).encode()
    except (ValueError, RecursionError):
        return number(chance, data)
    return b"\n".join(lines) + b"\n"


def _changed(chance: random.Random, document: Any) -> Any:
    places = list(_places(document))
    if not places:
        return chance.choice(VALUES)
    holder, key = chance.choice(places)
    kind = chance.randrange(6)
    if kind == 0:
        del holder[key]
    elif kind == 1 and isinstance(holder, list):
        holder.insert(chance.randrange(len(holder) + 1), holder[key])
    elif kind == 2:
        other, name = chance.choice(places)
        holder[key] = json.loads(json.dumps(other[name])) if holder is not other else None
    else:
        holder[key] = chance.choice(VALUES)
    return document


def _places(document: Any) -> list[tuple[Any, Any]]:
    """Every container with every key in it."""
    found, rest = [], [document]
    while rest:
        holder = rest.pop()
        if not isinstance(holder, dict | list):
            continue
        keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        for key in keys:
            found.append((holder, key))
            rest.append(holder[key])
    return found


def nest(chance: random.Random, data: bytes) -> bytes:
    """Brackets without end, where a value begins."""
    where = data.find(b":", chance.randrange(len(data) + 1)) + 1
    return data[:where] + chance.choice((b"[", b'{"a":', b"(")) * NESTED + data[where:]


# Numbers and structure are where readers that look sound break.
CHANGES: tuple[Change, ...] = (
    number,
    number,
    number,
    structure,
    structure,
    structure,
    line,
    token,
    byte,
    cut,
    splice_here,
    nest,
)
