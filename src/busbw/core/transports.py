"""The table of ways to set up NCCL that `busbw plan` tries: a name, the variables, and what they do. All move the same numbers."""

from dataclasses import dataclass, field

from busbw.core.errors import UsageError
from busbw.core.planning import AS_IS


@dataclass(frozen=True, slots=True)
class Transport:
    """One way. `net` is a word of core.networks, '' for NCCL's own choice."""

    name: str
    meaning: str
    variables: dict[str, str] = field(default_factory=dict)
    net: str = ""

    @property
    def shell(self) -> str:
        """The line that a shell takes to have it, '' where there is nothing to do."""
        if self.net == "busbw":
            return 'eval "$(busbw env net)"'
        return " ".join(["export", *(f"{name}={value}" for name, value in self.variables.items())]) if self.variables else ""


TRANSPORTS = (
    Transport(AS_IS, "NCCL as it is"),
    Transport(
        "sockets",
        "NCCL's sockets on 16 channels, each with one thread and one socket",
        {"NCCL_MIN_NCHANNELS": "16", "NCCL_SOCKET_NTHREADS": "1", "NCCL_NSOCKS_PERTHREAD": "1"},
        "socket",
    ),
    Transport("tree", "all-reduce by NCCL's double tree: less over each NIC of a host of several GPUs", {"NCCL_ALGO": "allreduce:tree"}),
    Transport("busbw", "busbw's network plugin", net="busbw"),
)
BY_NAME = {row.name: row for row in TRANSPORTS}


def parse(text: str) -> list[Transport]:
    """Names with commas between them, the first of them what the others are held against.

    Raises:
        UsageError: none at all, one of them twice, or one that is none.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in BY_NAME:
            raise UsageError(f"'{name}' of '{text}' is no transport", f"use {', '.join(BY_NAME)}")
        if names.count(name) > 1:
            raise UsageError(f"'{text}' names {name} twice", "name each once")
    if not names:
        raise UsageError("no transport is named", f"use {', '.join(BY_NAME)}")
    return [BY_NAME[name] for name in names]
