"""Which words of a command line are secrets, by program (core/secret_options.csv,
core/secret_arguments.csv).
"""

from functools import cache

import msgspec

from busbw.core.table_file import rows

# Words of commands that read a secret from the pipe or here-string before them.
STDIN_READERS = frozenset(
    ("chpasswd", "kinit", "-S", "--stdin", "--password-stdin", "--with-token", "smbpasswd")
)
PRINTING = ("echo", "printf")


class SecretOptions(msgspec.Struct, frozen=True):
    """Programs, and their options whose next word is a secret."""

    programs: tuple[str, ...]
    options: tuple[str, ...] = ()


class SecretArguments(msgspec.Struct, frozen=True):
    """The words of a command after which secrets stand, the first `harmless` of which are none."""

    command: tuple[str, ...]
    harmless: int


@cache
def secret_options() -> dict[str, tuple[str, ...]]:
    """The options whose next word is a secret, by program."""
    table = rows("core/secret_options.csv", SecretOptions, lists=("programs", "options"))
    return {program: row.options for row in table for program in row.programs}


@cache
def secret_arguments() -> dict[str, list[SecretArguments]]:
    """The commands that take a secret as a word of its own, by program."""
    by_program: dict[str, list[SecretArguments]] = {}
    for row in rows("core/secret_arguments.csv", SecretArguments, lists=("command",)):
        by_program.setdefault(row.command[0], []).append(row)
    return by_program
