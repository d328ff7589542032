"""Where each key of a TOML file stands, which the parser of the standard library does not say."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping

Key = tuple[str | int, ...]  # ("ports", 0, "rate_gbit_s")

_MULTILINE = re.compile(r'"""|' + "'''")
_NAME = r"""(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')"""
_DOTTED = rf"{_NAME}(?:\s*\.\s*{_NAME})*"
_TABLE = re.compile(rf"\s*\[\s*({_DOTTED})\s*\]")
_ENTRY = re.compile(rf"\s*\[\[\s*({_DOTTED})\s*\]\]")
_VALUE = re.compile(rf"\s*({_DOTTED})\s*=")
_QUOTED_OR_COMMENT = re.compile(r"""\"(?:\\.|[^"\\])*\"|'[^']*'|#.*""")


def lines(text: str) -> dict[Key, int]:
    """The line of each table and key, counted from 1. Keys in inline tables have that of their table: see `line`."""
    found: dict[Key, int] = {}
    entries: Counter[Key] = Counter()
    table: Key = ()
    for number, line in _statements(text):
        if match := _ENTRY.match(line):
            name = _parts(match[1])
            table = (*name, entries[name])
            entries[name] += 1
        elif match := _TABLE.match(line):
            table = _parts(match[1])
        elif match := _VALUE.match(line):
            found.setdefault((*table, *_parts(match[1])), number)
            continue
        else:
            continue
        found.setdefault(table, number)
    return found


def line(found: Mapping[Key, int], key: Key) -> int | None:
    """The line of a key, or of the nearest table around it; None if the file has neither."""
    return next((found[key[:length]] for length in range(len(key), 0, -1) if key[:length] in found), None)


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Lines at which a statement begins: not those inside a string or an array of several lines."""
    depth, quote = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        if quote:
            _, closed, line = line.partition(quote)
            if not closed:
                continue
            quote = ""
        elif depth == 0:
            yield number, line
        if opened := _MULTILINE.search(line):
            before, after = line[: opened.start()], line[opened.end() :]
            quote = "" if opened[0] in after else opened[0]
            line = before
        bare = _QUOTED_OR_COMMENT.sub("", line)
        depth = max(0, depth + sum(bare.count(one) for one in "[{") - sum(bare.count(one) for one in "]}"))


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in re.findall(_NAME, dotted))
