"""Files with variables of NCCL: /etc/nccl.conf and the user's own."""

from dataclasses import dataclass

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
