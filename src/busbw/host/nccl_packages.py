"""The Python packages that bring NCCL, whose names say for which CUDA they were built:
nvidia-nccl-cu12.

Files with variables of NCCL: /etc/nccl.conf and the user's own.
"""

import json
import re
from dataclasses import dataclass
from importlib import metadata

SYSTEM = "/etc/nccl.conf"
USER = ".nccl.conf"  # in the home directory
FILE_VARIABLE = "NCCL_CONF_FILE"  # a file that is read in place of the user's, since NCCL 2.23


@dataclass(frozen=True, slots=True)
class Assignment:
    """One line `NAME=VALUE`, kept as NCCL takes it: with quotes and white space."""

    line: int
    name: str
    value: str

    @property
    def fault(self) -> str:
        """Why the line does not do what it looks like; '' if nothing is wrong with it.

        NCCL takes all before the first = as the name and all after it as the value. It is no shell.
        """
        if self.name.startswith("export "):
            return "the line begins with export, which becomes part of the name"
        if self.name != self.name.strip():
            return "white space beside the name becomes part of it"
        if self.value[:1] in ("'", '"'):
            return "the quotes become part of the value"
        if self.value != self.value.strip():
            return "white space beside the value becomes part of it"
        return ""


def parse(text: str) -> tuple[Assignment, ...]:
    """The lines that NCCL takes variables from: those with a = that do not begin with #.

    Of a name, the first line counts.
    """
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        name, separator, value = line.partition("=")
        if separator and not line.startswith("#"):
            found.append(Assignment(number, name, value))
    return tuple(found)


def user_file(environment_value: str, home: str) -> str:
    """Path of the file that is read before /etc/nccl.conf; '' without a home directory."""
    return environment_value or (f"{home.rstrip('/')}/{USER}" if home else "")


CALL = "nccl_packages"
_NAME = re.compile(r"nvidia-nccl-cu(\d+)", re.IGNORECASE)


def read_packages() -> str:
    """JSON of [name, version] of those that this Python finds."""
    named = (
        (one.metadata["Name"], one.version)
        for one in metadata.distributions()
        if "Name" in one.metadata
    )
    return json.dumps(sorted({pair for pair in named if _NAME.fullmatch(pair[0])}))


def built_for(name: str) -> int:
    """The major version of CUDA of a package of `read_packages`."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else 0
