"""The processes of a job, their groups by nccl-tests' split, and what results record of them.

NCCL_TESTS_SPLIT and NCCL_TESTS_SPLIT_MASK decide the group of a process, by nccl-tests' rules.
"""

import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from busbw.core.env import carried
from busbw.core.errors import UsageError
from busbw.core.result import EngineLibrary, RankDevice, World
from busbw.core.sizes import parse_int
from busbw.core.topology import Topology
from busbw.core.version import __version__
from busbw.host.host_facts import read_host
from busbw.host.os_queries import allowed_cpu_list
from busbw.launch.control import Control
from busbw.measure.events import now
from busbw.measure.job import Job

_FORM = re.compile(r"\s*(and|&|or|\||mod|%|div|/)[a-z]*\s*(?:0b([01]+)|([+-]?\w+))", re.IGNORECASE)


def color(process: int, environment: Mapping[str, str]) -> int:
    """The group of `process`; 0 without these variables.

    UsageError for MOD and DIV by less than 1.
    """
    mask = environment.get("NCCL_TESTS_SPLIT_MASK")
    if mask is not None:
        digits = re.match(r"\s*(?:0[xX])?([0-9a-fA-F]+)", mask)
        return process & int(digits.group(1), 16) if digits else 0
    text = environment.get("NCCL_TESTS_SPLIT")
    match = _FORM.match(text) if text else None
    if not match:
        return 0
    operation, binary, number = match.groups()
    operation, value = operation.lower(), int(binary, 2) if binary else parse_int(number)
    if operation in ("and", "&"):
        return process & value
    if operation in ("or", "|"):
        return process | value
    if value <= 0:
        raise UsageError(
            f"NCCL_TESTS_SPLIT={text}: dividing processes by {value}", "give a number above 0"
        )
    return process % value if operation in ("mod", "%") else process // value


@dataclass(slots=True)
class Party:
    """This process among the processes of its job.

    `world` is the control channel of all processes, `group` that of this process' group. `color`
    identifies the group among `groups`. `local` is the number of this process on its host.
    """

    world: Control
    group: Control
    color: int
    groups: int
    local: int


class OpenedEngine(Protocol):
    """An engine, or a rank of PyTorch."""

    def devices(self) -> list[RankDevice]:
        """The device of each local rank."""

    def library(self) -> EngineLibrary:
        """Versions of the communication library."""


def join_groups(control: Control) -> Party:
    """Split the job by NCCL_TESTS_SPLIT, and number the processes of each host. Collective."""
    own_color = color(control.process, os.environ)
    by_process = control.allgather((platform.node(), own_color))
    local = sum(host == platform.node() for host, _ in by_process[: control.process])
    groups = len({process_color for _, process_color in by_process})
    group = control.split(own_color) if groups > 1 else control
    return Party(control, group, own_color, groups, local)


def join_all(control: Control, what: str) -> Party:
    """All processes, of which `what` needs one group; UsageError if they are split. Collective."""
    party = join_groups(control)
    if party.groups > 1:
        raise UsageError(f"NCCL_TESTS_SPLIT makes groups, but {what} uses all ranks", "unset it")
    return party


def facts(
    job: Job, party: Party, opened: OpenedEngine, *, all_names: bool = False
) -> dict[str, Any]:
    """The fields of core.result.Outcome that are known before measuring.

    `all_names` keeps the names of all environment variables, with masked values. Collective.
    """
    local_devices = opened.devices()
    for device in local_devices:
        device.cpus = allowed_cpu_list()
    devices: list[RankDevice] = []
    for of_process in party.world.allgather(local_devices):
        devices += of_process
    hosts = party.world.allgather(read_host() if party.local == 0 else None)
    return {
        "tool": f"busbw {__version__}",
        "argv": job.argv,
        "program": job.program,
        "start": now(),
        "library": opened.library(),
        "world": World(devices, party.world.processes, party.groups),
        "topology": Topology([host for host in hosts if host is not None]),
        "environment": carried(os.environ, all_names=all_names),
    }
