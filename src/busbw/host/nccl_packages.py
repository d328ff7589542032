"""What NCCL is installed with: its Python packages, and its files of variables.

The name of a package says for which CUDA it was built: nvidia-nccl-cu12. Files of variables are
/etc/nccl.conf and the user's own.
"""

import contextlib
import json
import os
import pwd
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

SYSTEM = "/etc/nccl.conf"
USER = ".nccl.conf"  # in the home directory
FILE_VARIABLE = "NCCL_CONF_FILE"  # a file that is read in place of the user's, since NCCL 2.23
FILE_BYTES = 1 << 20
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


def set_in_file(name: str, environment: Mapping[str, str]) -> tuple[str, str]:
    """The value of a variable in this host's files, and the file; two times '' if none sets it.

    A variable of the environment precedes the files, and is not looked for.
    """
    home = ""
    with contextlib.suppress(KeyError):  # a user without an entry
        home = pwd.getpwuid(os.getuid()).pw_dir
    for path in (user_file(environment.get(FILE_VARIABLE, ""), home), SYSTEM):
        for line in parse(_text(Path(path))):
            if line.name == name:
                return line.value, path
    return "", ""


def _text(path: Path) -> str:
    """Its first bytes; '' if it is no file that can be read."""
    with contextlib.suppress(OSError):
        if path.is_file():
            with path.open("rb") as opened:
                return opened.read(FILE_BYTES).decode(errors="replace")
    return ""


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
