"""torchrun's command line, for ranks without MPI: `python -m torch.distributed.run`, once on this machine or once on each host."""

import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec

from busbw.core.errors import CannotTell, UsageError
from busbw.launch import interfaces
from busbw.launch.hosts import Host

PORT = 29500  # torch.distributed's own default


def command(program: Sequence[str], ranks: int) -> list[str]:
    """The line that runs `program` on `ranks` local ranks, on any free port; CannotTell without PyTorch."""
    return [*_torchrun(), "--standalone", f"--nproc-per-node={ranks}", "--no-python", *program]


def commands(program: Sequence[str], hosts: Sequence[Host], ifname: str = "", env: Mapping[str, str] | None = None) -> dict[str, list[str]]:
    """The line to run on each host, by host; the first host is where the ranks meet. UsageError where hosts' slots differ.

    Nothing here logs in to other hosts: these lines are for the user, a job script or a container scheduler to start.
    """
    slots = {host.slots or 1 for host in hosts}
    if len(slots) != 1:
        raise UsageError(
            f"torchrun starts as many ranks on each host, but the hosts have {', '.join(map(str, hosts))}", "give every host as many slots"
        )
    variables = {**(env or {}), **({interfaces.VARIABLE: ifname} if ifname else {})}
    settings = ["env", *(f"{name}={value}" for name, value in variables.items())] if variables else []
    shared = [f"--nnodes={len(hosts)}", f"--nproc-per-node={slots.pop()}", f"--master-addr={hosts[0].name}", f"--master-port={PORT}"]
    return {
        host.name: [*settings, *_torchrun(), *shared, f"--node-rank={number}", "--no-python", *program] for number, host in enumerate(hosts)
    }


def _torchrun() -> list[str]:
    if not find_spec("torch"):
        raise CannotTell(f"PyTorch is not installed for {sys.executable}", f"{sys.executable} -m pip install 'busbw[torch]'")
    return [sys.executable, "-m", "torch.distributed.run"]
