"""How a command runs on an emulated host: in its network, under its name, on its share of the
cores and GPUs, with its /etc/hosts.
"""

import shlex
from collections.abc import Mapping
from pathlib import Path

from busbw.lab.gpus import PIPES
from busbw.lab.processes import NAMESPACES
from busbw.lab.types import Lab, LabHost

HOSTS_FILE, SSH_CONFIG = "/etc/hosts", "/etc/ssh/ssh_config"
# What a host's ssh reads, and which file of the lab is mounted there: ssh takes a setting from the
# first file that has it.
SSH_CONFIGS = {
    SSH_CONFIG: "ssh_config",
    str(Path("~root/.ssh/config").expanduser()): "ssh_config.user",
}
_SYS = "mount -n -t sysfs sysfs /sys"  # /sys/class/net shows the network in which it was mounted
# All hosts share this machine's cores without knowing it: ranks that wait must yield.
YIELD = {"OMPI_MCA_mpi_yield_when_idle": "1"}
# A machine may forbid Open MPI to start anything on other hosts; a lab's hosts are its own.
_DROPPED = ("OMPI_MCA_plm", "PRTE_MCA_plm")


def enter(lab: Lab, host: LabHost, *argv: str) -> list[str]:
    """The command line that runs `argv` on a host, in the same process."""
    # The assignment replaces a HOSTNAME of the environment, which containers have, and exports
    # none.
    script = f'hostname "$0"; HOSTNAME=$0; {mounts(lab)}; exec "$@"'
    return [*inside(host), "sh", "-c", script, host.name, *argv]


def inside(host: LabHost) -> list[str]:
    """The words that run what follows in a host's network and on its cores, with a host name and
    mounts that may be set.
    """
    cores = ["taskset", "-c", ",".join(map(str, host.cores))] if host.cores else []
    # Slave mounts: a namespace that is removed meanwhile must not stay mounted here.
    return [
        *cores,
        "nsenter",
        f"--net={NAMESPACES / host.namespace}",
        "unshare",
        "--uts",
        "--mount",
        "--propagation",
        "slave",
    ]


def mounts(lab: Lab) -> str:
    """Shell commands that mount what differs from this machine.

    Their failure is printed, and the host is used without them.
    """
    binds = {HOSTS_FILE: lab.hosts_file}
    for path, file in SSH_CONFIGS.items():
        if Path(path).exists() and Path(lab.folder, file).exists():
            binds[path] = f"{lab.folder}/{file}"
    return "; ".join(
        [
            _SYS,
            *(
                f"mount -n --bind {shlex.quote(file)} {shlex.quote(path)}"
                for path, file in binds.items()
            ),
        ]
    )


def variables(lab: Lab, host: LabHost) -> dict[str, str]:
    """What a host's processes need beside the user's environment."""
    found = dict(YIELD)
    if host.gpus or lab.spec.gpus == 0:
        found["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, host.gpus))
    if lab.shares_gpus:
        found[PIPES] = lab.mps
    if host.gpu_percent is not None:
        found["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(host.gpu_percent)
    if not lab.spec.sshd:
        path = f"{lab.folder}/agent"
        found |= {"PRTE_MCA_plm_ssh_agent": path, "OMPI_MCA_plm_rsh_agent": path}
    return found


def environment(lab: Lab, host: LabHost, environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` as a process on a host needs it."""
    return {
        **{name: value for name, value in environ.items() if name not in _DROPPED},
        **variables(lab, host),
    }


def write_hosts(lab: Lab) -> None:
    """Write what is mounted at /etc/hosts on each host."""
    lines = [
        "127.0.0.1 localhost",
        "::1 localhost",
        *(f"{host.address} {host.name}" for host in lab.hosts),
    ]
    path = Path(lab.hosts_file)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    path.chmod(0o644)  # other users read it too, whatever the umask


def write_agent(lab: Lab) -> Path:
    """Write the program that replaces ssh in a lab without sshd: AGENT [-o OPTION] HOST COMMAND.

    Like ssh it passes no environment on.
    """
    cases = []
    for host in lab.hosts:
        own = " ".join(f"{name}={value}" for name, value in variables(lab, host).items())
        cases.append(
            f"{host.address}|{host.name}) name={host.name} own='{own}'"
            f" enter='{' '.join(inside(host))}';;"
        )
    text = "\n".join(
        [
            "#!/bin/sh",
            'while [ "$1" = -o ]; do shift 2; done',
            "host=$1; shift",
            "case $host in",
            *cases,
            '*) echo "ssh: connect to host $host port 22: No route to host" >&2; exit 255;;',
            "esac",
            (
                'exec env -i PATH="$PATH" HOME="$HOME" $own $enter sh -c "hostname $name;'
                f' {mounts(lab)}; $*"'
            ),
            "",
        ]
    )
    path = Path(lab.folder, "agent")
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path
