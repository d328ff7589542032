"""What NCCL is installed with: its Python packages, and its files of variables.

The name of a package says for which CUDA it was built: nvidia-nccl-cu12. Files of variables are
/etc/nccl.conf and the user's own.
"""

import json
import re
from dataclasses import dataclass
from importlib import metadata

SYSTEM = "/etc/nccl.conf"
USER = ".nccl.conf"  # in the home directory
FILE_VARIABLE = "NCCL_CONF_FILE"  # a file that is read in place of the user's, since NCCL 2.23
CALL = "nccl_packages"
_NAME = re.compile(r"nvidia-nccl-cu(\d+)", re.IGNORECASE)


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

    If several lines set a name, NCCL takes the first.
    """
    assignments = []
    for number, line in enumerate(text.split("\n"), 1):
        name, separator, value = line.partition("=")
        if separator and not line.startswith("#"):
            assignments.append(Assignment(number, name, value))
    return tuple(assignments)


def user_file(environment_value: str, home: str) -> str:
    """Path of the file that is read before /etc/nccl.conf; '' without a home directory."""
    return environment_value or (f"{home.rstrip('/')}/{USER}" if home else "")


def read_packages() -> str:
    """JSON of [name, version] of NCCL's packages that this Python finds."""
    packages = set()
    for distribution in metadata.distributions():
        if "Name" in distribution.metadata:
            name = distribution.metadata["Name"]
            if _NAME.fullmatch(name):
                packages.add((name, distribution.version))
    return json.dumps(sorted(packages))


def built_for(name: str) -> int:
    """The major version of CUDA of a package of `read_packages`."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else 0
