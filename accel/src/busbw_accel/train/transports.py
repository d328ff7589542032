"""The table of NCCL settings that `busbw plan` compares: name, meaning and variables.

They do not change the numbers sent.
"""

from dataclasses import dataclass, field

from busbw.core.errors import UsageError
from busbw_accel.train.plan_types import AS_IS


@dataclass(frozen=True, slots=True)
class Transport:
    """One transport: NCCL's variables, and its network.

    `net` is a name of core.networks, '' for NCCL's own choice.
    """

    name: str
    meaning: str
    variables: dict[str, str] = field(default_factory=dict)
    net: str = ""

    @property
    def shell(self) -> str:
        """The shell command that applies it, '' if none is needed."""
        if self.net == "busbw":
            return 'eval "$(busbw run --net busbw --print-env)"'
        if not self.variables:
            return ""
        settings = [f"{name}={value}" for name, value in self.variables.items()]
        return " ".join(["export", *settings])


TRANSPORTS = (
    Transport(AS_IS, "NCCL's defaults"),
    Transport(
        "sockets",
        "NCCL's sockets on 16 channels, each with one thread and one socket",
        {"NCCL_MIN_NCHANNELS": "16", "NCCL_SOCKET_NTHREADS": "1", "NCCL_NSOCKS_PERTHREAD": "1"},
        "socket",
    ),
    Transport(
        "tree",
        "all_reduce by NCCL's double tree: fewer bytes over each NIC of a host with several GPUs",
        {"NCCL_ALGO": "allreduce:tree"},
    ),
    Transport("busbw", "busbw's network plugin", net="busbw"),
)
BY_NAME = {row.name: row for row in TRANSPORTS}


def parse(text: str) -> list[Transport]:
    """The rows for comma-separated names; the first is the baseline.

    UsageError for an unknown, repeated or missing name.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in BY_NAME:
            raise UsageError(
                f"'{name}' in '{text}' is not a transport", f"use {', '.join(BY_NAME)}"
            )
        if names.count(name) > 1:
            raise UsageError(f"'{text}' contains {name} twice", "give each name once")
    if not names:
        raise UsageError("no transport given", f"use {', '.join(BY_NAME)}")
    return [BY_NAME[name] for name in names]
