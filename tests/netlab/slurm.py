"""A real Slurm over emulated hosts: munged, slurmctld on the first host, and a slurmd on each,
all from this machine's packages.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAMS = ("srun", "sbatch", "sinfo", "slurmctld", "slurmd", "munged")
READY_LIMIT_S = 30.0
LIMIT_S = 20.0


class Unavailable(Exception):
    """This machine cannot run Slurm; the message gives the reason."""


@dataclass(frozen=True)
class Cluster:
    """A running Slurm: the lab's hosts are its nodes."""

    lab: Any
    folder: Path

    def environment(self) -> dict[str, str]:
        """This process' environment with the cluster's configuration, and without traces of an
        outer Slurm.
        """
        own = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
        return {**own, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def run(
        self, *argv: str, limit_s: float = LIMIT_S, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run `argv` on the first host."""
        line = self.lab.hosts[0].enter(*argv)
        environment = {**self.environment(), **variables}
        return subprocess.run(
            line,
            env=environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )


@contextlib.contextmanager
def cluster(lab: Any, folder: Path, cpus: int = 4) -> Iterator[Cluster]:
    """Slurm with one partition over all hosts of `lab`, `cpus` each; `folder` takes its
    configuration, state and logs.

    Every daemon is gone at the end. Unavailable where a program is missing, the nodes do not become
    idle, or PMIx does not load.
    """
    missing = [program for program in PROGRAMS if not shutil.which(program)]
    if missing:
        raise Unavailable(f"no {', '.join(missing)} here: make test-tools")
    slurm = Cluster(lab, folder)
    configure(lab, folder, cpus)
    with contextlib.ExitStack() as undo:
        first = lab.hosts[0]
        _daemon(slurm, first.enter(*_munged(folder)), undo)
        _wait(folder / "munge.socket")
        _daemon(slurm, first.enter("slurmctld", "-D", "-i"), undo)
        for host in lab.hosts:
            _daemon(slurm, host.enter("slurmd", "-D", "-N", host.name), undo)
        _wait_idle(slurm)
        _try_pmix(slurm)
        yield slurm


def configure(lab: Any, folder: Path, cpus: int) -> None:
    """Write slurm.conf and munge's key."""
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    settings: Mapping[str, object] = {
        "ClusterName": "emulated",
        "SlurmctldHost": f"{lab.hosts[0].name}({lab.hosts[0].address})",
        "SlurmUser": "root",
        "AuthInfo": f"socket={folder / 'munge.socket'}",
        "StateSaveLocation": folder / "state",
        "SlurmdSpoolDir": folder / "spool-%n",
        # PMIx' directories of a step have the same name on each node, and these nodes share their
        # file system.
        "TmpFS": folder / "tmp-%n",
        "SlurmctldPidFile": folder / "slurmctld.pid",
        "SlurmdPidFile": folder / "slurmd-%n.pid",
        "SlurmctldLogFile": folder / "slurmctld.log",
        "SlurmdLogFile": folder / "slurmd-%n.log",
        # Without systemd there is no cgroup to keep tasks in.
        "ProctrackType": "proctrack/linuxproc",
        # The nodes share the processors of one machine: binding would put the ranks of all nodes on
        # the same ones.
        "TaskPlugin": "task/none",
        "MpiDefault": "none",
        # One machine emulates several: its real number of processors is irrelevant.
        "SlurmdParameters": "config_overrides",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core",
        "ReturnToService": 2,
        "KillWait": 2,
    }
    lines = [f"{name}={value}" for name, value in settings.items()]
    lines += [
        f"NodeName={host.name} NodeHostname={host.name} NodeAddr={host.address} CPUs={cpus}"
        " State=UNKNOWN"
        for host in lab.hosts
    ]
    lines += [
        f"PartitionName=all Nodes={','.join(host.name for host in lab.hosts)} Default=YES State=UP"
    ]
    (folder / "slurm.conf").write_text("\n".join(lines) + "\n")
    # slurmd finds out the version of the cgroups at /sys/fs/cgroup unless it is given, and nothing
    # is mounted there in a network namespace.
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    for name in (
        "state",
        *(f"{kind}-{host.name}" for host in lab.hosts for kind in ("tmp", "spool")),
    ):
        (folder / name).mkdir()


def _munged(folder: Path) -> list[str]:
    files = {
        "socket": "socket",
        "key-file": "key",
        "pid-file": "pid",
        "seed-file": "seed",
        "log-file": "log",
    }
    # --force: the folder of a test is writable for more users than munged likes.
    return [
        "munged",
        "--foreground",
        "--force",
        *[f"--{option}={folder / f'munge.{end}'}" for option, end in files.items()],
    ]


def _daemon(slurm: Cluster, argv: list[str], undo: contextlib.ExitStack) -> None:
    log = undo.enter_context((slurm.folder / "daemons.log").open("ab"))
    process = subprocess.Popen(
        argv, env=slurm.environment(), stdout=log, stderr=log, start_new_session=True
    )
    undo.callback(_end, process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(LIMIT_S)


def _wait(path: Path) -> None:
    deadline = time.monotonic() + READY_LIMIT_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise Unavailable(
                f"munged made no socket within {READY_LIMIT_S:g} s: {_logs(path.parent)}"
            )
        time.sleep(0.05)


def _wait_idle(slurm: Cluster) -> None:
    deadline = time.monotonic() + READY_LIMIT_S
    while True:
        done = slurm.run("sinfo", "--noheader", "--Node", "--format=%T")
        if done.returncode == 0 and done.stdout.split() == ["idle"] * len(slurm.lab.hosts):
            return
        if time.monotonic() > deadline:
            raise Unavailable(
                f"the nodes are not idle after {READY_LIMIT_S:g} s: {done.stdout} {done.stderr}"
                f" {_logs(slurm.folder)}"
            )
        time.sleep(0.2)


def _try_pmix(slurm: Cluster) -> None:
    done = slurm.run("srun", "--mpi=pmix", f"--nodes={len(slurm.lab.hosts)}", "true")
    if done.returncode:
        raise Unavailable(f"srun --mpi=pmix does not work: {done.stderr.strip()}")


def _logs(folder: Path) -> str:
    return "\n".join(
        path.read_text(errors="replace")[-2000:] for path in sorted(folder.glob("*.log"))
    )
