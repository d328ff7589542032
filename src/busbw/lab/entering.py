"""How a command runs on an emulated host: in its network, under its name, on its share of the cores and GPUs, with its /etc/hosts."""

import shlex
from collections.abc import Mapping
from pathlib import Path

from busbw.core.labs import Lab, LabHost
from busbw.lab.processes import NAMESPACES

HOSTS_FILE, SSH_CONFIG = "/etc/hosts", "/etc/ssh/ssh_config"
_SYS = "mount -n -t sysfs sysfs /sys"  # /sys/class/net shows the network in which it was mounted
# All hosts share this machine's cores without knowing it: ranks that wait must yield.
_YIELD = {"OMPI_MCA_mpi_yield_when_idle": "1"}
# A machine may forbid Open MPI to start anything on other hosts; a lab's hosts are its own.
_DROPPED = ("OMPI_MCA_plm", "PRTE_MCA_plm")


def enter(lab: Lab, host: LabHost, *argv: str) -> list[str]:
    """The command line that runs `argv` on a host, in the same process."""
    script = f'hostname "$0"; {mounts(lab)}; exec "$@"'
    return [*inside(host), "sh", "-c", script, host.name, *argv]


def inside(host: LabHost) -> list[str]:
    """The words that run what follows in a host's network and on its cores, with a host name and mounts that may be set."""
    cores = ["taskset", "-c", ",".join(map(str, host.cores))] if host.cores else []
    # Slave mounts: a namespace that is removed meanwhile must not stay mounted here.
    return [*cores, "nsenter", f"--net={NAMESPACES / host.namespace}", "unshare", "--uts", "--mount", "--propagation", "slave"]


def mounts(lab: Lab) -> str:
    """Shell commands that mount what differs from this machine. Their failure is printed, and the host is used without them."""
    binds = {SSH_CONFIG: "ssh_config"} if lab.spec.sshd else {}
    over = [f"mount -n --bind {shlex.quote(f'{lab.folder}/{file}')} {path}" for path, file in {HOSTS_FILE: "hosts", **binds}.items()]
    return "; ".join([_SYS, *over])


def variables(lab: Lab, host: LabHost) -> dict[str, str]:
    """What a host's processes need beside the user's environment."""
    found = dict(_YIELD)
    if host.gpus:
        found["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, host.gpus))
    if host.gpu_percent is not None:
        found["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(host.gpu_percent)
    if not lab.spec.sshd:
        path = f"{lab.folder}/agent"
        found |= {"PRTE_MCA_plm_ssh_agent": path, "OMPI_MCA_plm_rsh_agent": path}
    return found


def environment(lab: Lab, host: LabHost, environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` as a process on a host needs it."""
    return {**{name: value for name, value in environ.items() if name not in _DROPPED}, **variables(lab, host)}


def hosts_file(lab: Lab) -> str:
    """/etc/hosts of each host."""
    lines = ["127.0.0.1 localhost", "::1 localhost", *(f"{host.address} {host.name}" for host in lab.hosts)]
    return "\n".join(lines) + "\n"


def write_agent(lab: Lab) -> Path:
    """Write the program that replaces ssh in a lab without sshd: AGENT HOST COMMAND. Like ssh it passes no environment on."""
    cases = []
    for host in lab.hosts:
        own = " ".join(f"{name}={value}" for name, value in variables(lab, host).items())
        cases.append(f"{host.address}|{host.name}) name={host.name} own='{own}' enter='{' '.join(inside(host))}';;")
    text = "\n".join(
        [
            "#!/bin/sh",
            "host=$1; shift",
            "case $host in",
            *cases,
            '*) echo "ssh: connect to host $host port 22: No route to host" >&2; exit 255;;',
            "esac",
            f'exec env -i PATH="$PATH" HOME="$HOME" $own $enter sh -c "hostname $name; {mounts(lab)}; $*"',
            "",
        ]
    )
    path = Path(lab.folder, "agent")
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path
