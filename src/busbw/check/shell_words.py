"""Quotes the names in commands that a user may paste into a shell.

Names of interfaces, devices and files may hold anything, even `$(...)`.
"""

import shlex
from collections.abc import Sequence


def word(text: str) -> str:
    """The text as one word of a shell command, which neither splits nor expands it.

    Plain names stay as they are. Text with characters that a terminal does not show becomes bash's
    $'...', so that what is shown can be pasted.
    """
    if text.isprintable():
        return shlex.quote(text)
    return f"$'{''.join(map(_escaped, text))}'"


def _escaped(character: str) -> str:
    if character in "'\\":
        return f"\\{character}"
    if character.isprintable():
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))


def assignment(name: str, value: str) -> str:
    """`NAME=VALUE`, as export and mpirun -x take it."""
    return f"{word(name)}={word(value)}"


def filled(template: str, **values: str | int | Sequence[str]) -> str:
    """A command with values in place of the names in braces.

    A text becomes one word, a sequence several words.
    """
    return template.format(**{name: _words(value) for name, value in values.items()})


def _words(value: str | int | Sequence[str]) -> str | int:
    if isinstance(value, int):
        return value
    return word(value) if isinstance(value, str) else " ".join(map(word, value))
