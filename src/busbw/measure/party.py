"""The processes of a job: who takes part, and what every result records of them."""

import os
import platform
from dataclasses import dataclass
from typing import Any, Protocol

from busbw.core.env import carried
from busbw.core.result import Device, Library, World
from busbw.core.topology import Host, Topology
from busbw.core.version import __version__
from busbw.host.read import read_host
from busbw.launch.control import Control
from busbw.measure.groups import color
from busbw.measure.job import Job
from busbw.measure.runner import now


@dataclass(slots=True)
class Party:
    """The channels of the job and of this process' group, the group's color, the number of groups, the process' index on its host."""

    job: Control
    group: Control
    color: int
    groups: int
    local: int


class Opened(Protocol):
    """What the ranks of this process run on: an engine, or a rank of PyTorch."""

    def devices(self) -> list[Device]:
        """One for each local rank."""

    def library(self) -> Library:
        """Versions of what moves the data."""


def join_groups(control: Control) -> Party:
    """Split the job by NCCL_TESTS_SPLIT, and number the processes of each host. Collective."""
    wanted = color(control.rank, os.environ)
    everyone = control.allgather((platform.node(), wanted))
    local = sum(host == platform.node() for host, _ in everyone[: control.rank])
    colors = sorted({one for _, one in everyone})
    group = control.split(wanted) if len(colors) > 1 else control
    return Party(control, group, wanted, len(colors), local)


def facts(job: Job, party: Party, opened: Opened, *, all_names: bool = False) -> dict[str, Any]:
    """The fields of core.result.Outcome that are known before anything is measured. Collective.

    `all_names` keeps environment variables that do not concern communication, with masked values.
    """
    devices = [device for some in party.job.allgather(opened.devices()) for device in some]
    return {
        "tool": f"busbw {__version__}",
        "argv": job.argv,
        "program": job.program,
        "start": now(),
        "library": opened.library(),
        "world": World(devices, party.job.size, party.groups),
        "topology": read_topology(party),
        "environment": carried(os.environ, all_names=all_names),
    }


def read_topology(party: Party) -> Topology:
    """Every host's hardware, read once a host."""
    mine: Host | None = read_host() if party.local == 0 else None
    return Topology([host for host in party.job.allgather(mine) if host is not None])
