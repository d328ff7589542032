"""systemd units of a node: a service that runs `busbw watch` for Prometheus, and a service with a
timer that runs `busbw check` for node_exporter's textfile collector.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from busbw.core.errors import UsageError
from busbw.core.finding import Layer
from busbw.launch.manifest.filler import ShellSyntax, fill_unit
from busbw.launch.manifest.kubernetes import BESIDE_JOBS, LAYERS

# Layers that look the same from a service as from a job: limits and variables are its own.
_LAYERS = (*LAYERS, Layer.KERNEL, Layer.CPU)
CHECK = (*(word for layer in _LAYERS for word in ("--layer", layer.value)), *BESIDE_JOBS)
TOKEN = ShellSyntax("${CREDENTIALS_DIRECTORY}/token")
METRICS_FILE = "busbw.prom"  # the textfile collector reads files of this ending
_PATH = re.compile(r"/[^\s:%\"'\\$]*")


@dataclass(frozen=True, slots=True)
class UnitSettings:
    """Settings of the units.

    `program` is the path of busbw. `token_file` is '' if the address is one of loopback. `every_s`
    is the time between two checks. `directory` is that of the textfile collector. `check` are
    options of `busbw check`.
    """

    program: str
    listen: str
    token_file: str
    directory: str
    every_s: int
    check: Sequence[str] = CHECK


def units(service: UnitSettings) -> dict[str, str]:
    """The text of each unit by its file name.

    UsageError for a path that is not absolute or has characters with a meaning in units.
    """
    _check_path("--program", service.program)
    _check_path("--textfile-directory", service.directory)
    token = []
    if service.token_file:
        _check_path("--token-file", service.token_file)
        token = ["--token-file", TOKEN]
    file = f"{service.directory.rstrip('/')}/{METRICS_FILE}"
    output = ["--format", "prometheus", "--output", file]
    values = {
        "watch": [service.program, "watch", "--listen", service.listen, *token],
        "token_file": service.token_file or None,
        "check": [service.program, "check", *service.check, *output],
        "directory": service.directory,
        "every_s": service.every_s,
    }
    names = ("busbw-watch.service", "busbw-check.service", "busbw-check.timer")
    return {name: fill_unit(name, values) for name in names}


def _check_path(option: str, path: str) -> None:
    if not _PATH.fullmatch(path):
        raise UsageError(
            f"{option} {path}: not an absolute path that a unit can name",
            "use a path that begins with / and has no space, quote, colon, % or $",
        )
