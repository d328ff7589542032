"""The stages in their order, and the command lines that work."""

import shlex
from collections.abc import Callable, Iterator

from busbw.check.doctor import launching, login, networks
from busbw.check.doctor.patient import Patient
from busbw.core.checking import Diagnosis, Stage
from busbw.core.finding import Verdict
from busbw.launch import mpirun
from busbw.launch.hosts import Host

PROGRAM = ("python", "train.py")
STAGES: tuple[Callable[[Patient], Stage], ...] = (
    login.ssh, login.install, login.names, networks.subnets, networks.tcp,
    launching.start, launching.ring, launching.nccl, launching.all_reduce,
)  # fmt: skip


def stages(patient: Patient) -> Iterator[Stage]:
    """Each stage as it ends, up to the first that fails."""
    for stage in STAGES:
        done = stage(patient)
        yield done
        if done.verdict is Verdict.FAIL:
            return


def commands(patient: Patient) -> dict[str, str]:
    """Command lines for a program of the user over these hosts, on the network that was found to work."""
    network = launching.ifname(patient)
    hosts = tuple(Host(host.name, host.slots or 1) for host in patient.hosts)
    ranks = sum(host.slots for host in hosts)
    line = mpirun.command(mpirun.find(), PROGRAM, ranks, hosts, network)
    first = patient.addresses(patient.networks[0])[hosts[0].name] if patient.networks else hosts[0].name
    torchrun = (
        f"torchrun --nnodes {len(hosts)} --nproc-per-node {hosts[0].slots} --rdzv-backend c10d --rdzv-endpoint {first}:29500 train.py"
    )
    srun = f"srun --mpi=pmix -N {len(hosts)} --ntasks-per-node {hosts[0].slots} {shlex.join(PROGRAM)}"
    return {"mpirun": shlex.join(line), "srun": srun, "torchrun, on each host": torchrun}


def diagnosis(patient: Patient, done: list[Stage]) -> Diagnosis:
    """The stages with the command lines, if none failed."""
    found = Diagnosis(hosts=patient.names, stages=done)
    if not found.failed:
        found.commands = commands(patient)
    return found
