"""The commands of a shell line as lists of words.

A substitution - $(...), $((...)), ${...} or backticks - is one word, whatever is in it. So is
{{ ... }} of a template.
"""

import re
from collections.abc import Iterator

_ENDS = ";&|"
_CLOSING = {"$(": ")", "${": "}"}
_ESCAPED_IN_QUOTES = '"\\$`\n'
_CAPTURE = re.compile(r"[A-Za-z_]\w*=(?:\$\((?!\()(.*)\)|`(.*)`)", re.DOTALL)


def split_commands(text: str) -> Iterator[list[str]]:
    """The words of each command, up to ; & and |. A quotation without an end goes to the end."""
    words: list[str] = []
    at = 0
    while at < len(text):
        if text[at] in _ENDS:
            if words:
                yield words
            words, at = [], at + 1
        elif text[at].isspace():
            at += 1
        else:
            word, at = _read_word(text, at)
            words.append(word)
    if words:
        yield words


def captured(word: str) -> str:
    """The command whose output an assignment takes, as in A=$(hostname); '' for other words."""
    match = _CAPTURE.fullmatch(word)
    return (match[1] or match[2] or "") if match else ""


def _read_word(text: str, at: int) -> tuple[str, int]:
    """The word that starts at `at`, without its quotes, and the index after it."""
    parts = list[str]()
    while at < len(text) and not text[at].isspace() and text[at] not in _ENDS:
        letter = text[at]
        end = substitution_end(text, at)
        if end:
            parts.append(text[at:end])
            at = end
        elif letter == "\\":
            parts.append(text[at + 1 : at + 2])
            at += 2
        elif letter == "'":
            end = _quote_end(text, at)
            parts.append(text[at + 1 : end - 1] if text[end - 1] == "'" else text[at + 1 :])
            at = end
        elif letter == '"':
            part, at = _read_double_quotes(text, at + 1)
            parts.append(part)
        else:
            parts.append(letter)
            at += 1
    return "".join(parts), at


def _read_double_quotes(text: str, at: int) -> tuple[str, int]:
    """The text up to the closing mark, and the index after it."""
    parts = list[str]()
    while at < len(text) and text[at] != '"':
        end = substitution_end(text, at)
        if end:
            parts.append(text[at:end])
            at = end
        elif text[at] == "\\" and text[at + 1 : at + 2] in _ESCAPED_IN_QUOTES:
            parts.append(text[at + 1 : at + 2].replace("\n", ""))
            at += 2
        else:
            parts.append(text[at])
            at += 1
    return "".join(parts), at + 1


def substitution_end(text: str, at: int) -> int:
    """The index after the substitution that starts at `at`; 0 if none starts, or it has no end."""
    if text[at] == "`":
        return text.find("`", at + 1) + 1
    if text.startswith("{{", at):
        end = text.find("}}", at)
        return end + 2 if end >= 0 else 0
    closing = _CLOSING.get(text[at : at + 2], "")
    if not closing:
        return 0
    opening, depth = text[at + 1], 0
    at += 1
    while at < len(text):
        letter = text[at]
        if letter == "\\":
            at += 1
        elif letter in ("'", '"'):
            at = _quote_end(text, at) - 1
        elif letter == opening:
            depth += 1
        elif letter == closing:
            depth -= 1
            if not depth:
                return at + 1
        at += 1
    return 0


def _quote_end(text: str, at: int) -> int:
    """The index after the quotation that starts at `at`; the text's length without an end."""
    mark = text[at]
    at += 1
    while at < len(text) and text[at] != mark:
        at += 2 if text[at] == "\\" and mark == '"' else 1
    return min(at + 1, len(text))
