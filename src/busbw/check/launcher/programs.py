"""What the launcher checks read: mpirun, srun, ssh, and the addresses of the host's own name."""

import contextlib
import json
import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from busbw.check.machine import Machine
from busbw.core.errors import NoMeasurement
from busbw.host.source import Reading, Unavailable
from busbw.launch import mpirun

LIMIT_S = 10.0
LOOKUPS = 3  # a server that answers some only is found by chance


@dataclass(frozen=True, slots=True)
class OpenMpi:
    """One mpirun. `path` is '' if there is none; `error` says why it is not Open MPI 4 or newer."""

    path: str
    version: str = ""
    error: str = ""

    @property
    def major(self) -> int:
        """4 or 5; 0 if there is no usable one."""
        return int(self.version.partition(".")[0] or 0)


def open_mpi_reading(machine: Machine) -> Reading:
    """What was found of the mpirun that `busbw run` starts, as JSON."""
    return machine.call("mpirun", lambda: _mpirun(mpirun.located()))


def open_mpi(machine: Machine) -> OpenMpi | None:
    """The mpirun that `busbw run` starts: next to its Python, else of PATH.

    None if a snapshot lacks it.

    Other hosts run busbw by its path, and their PATH is that of a shell without a login.
    """
    text = open_mpi_reading(machine).text
    return None if text is None else OpenMpi(**json.loads(text))


def shell_open_mpi(machine: Machine) -> OpenMpi | None:
    """The mpirun that a shell of this machine starts.

    A snapshot has one mpirun alone: that of `open_mpi`.
    """
    text = machine.call("mpirun on PATH", lambda: _mpirun(shutil.which("mpirun") or "")).text
    return open_mpi(machine) if text is None else OpenMpi(**json.loads(text))


def _mpirun(path: str) -> str:
    if not path:
        return json.dumps({"path": ""})
    try:
        return json.dumps({"path": path, "version": mpirun.find([path]).version})
    except NoMeasurement as error:
        return json.dumps({"path": path, "error": str(error)})


def pmix_listing() -> str:
    """What `srun --mpi=list` prints; '' without srun.

    Raises Unavailable if it fails or does not answer in time.
    """
    return _output("srun", "--mpi=list")


def own_addresses(hostname: str) -> str:
    """Addresses of the host's name as the resolver sees them, in lines of `getent ahosts`.

    '' if it does not resolve.
    """
    if shutil.which("getent") is None:
        raise Unavailable("getent is not installed")
    return _output("getent", "ahosts", hostname)


def reverse_lookups(hostname: str) -> str:
    """As JSON: seconds of the slowest lookup of the name of each own IPv4 address.

    Addresses have the form in which a dual-stack server sees them.
    """
    own = {line.split()[0] for line in own_addresses(hostname).splitlines() if line.strip()}
    ipv4 = {"127.0.0.1"} | {address for address in own if ":" not in address}
    seconds = {f"::ffff:{address}": 0.0 for address in sorted(ipv4)}
    for address in seconds:
        for _ in range(LOOKUPS):
            begun = time.monotonic()
            with contextlib.suppress(Unavailable):  # LIMIT_S have passed
                _output("getent", "hosts", address)
            seconds[address] = max(seconds[address], round(time.monotonic() - begun, 3))
    return json.dumps(seconds)


def ssh_login() -> str:
    """As JSON: ssh's path, whether an agent runs, and the private keys in ~/.ssh with permissions.

    No key is read.
    """
    folder = Path("~/.ssh").expanduser()
    try:
        keys = {
            path.name: path.stat().st_mode & 0o777
            for path in folder.glob("id_*")
            if path.suffix != ".pub"
        }
    except OSError as error:
        raise Unavailable(f"{folder}: {error.strerror}") from error
    return json.dumps(
        {
            "ssh": shutil.which("ssh") or "",
            "agent": bool(os.environ.get("SSH_AUTH_SOCK")),
            "keys": keys,
        }
    )


def _output(program: str, *arguments: str) -> str:
    path = shutil.which(program)
    if path is None:
        return ""
    try:
        done = subprocess.run(
            [path, *arguments],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{path} did not finish within {LIMIT_S:g} s") from error
    except OSError as error:
        raise Unavailable(f"{path} cannot be run: {error.strerror}") from error
    if program != "srun":  # getent ends with a code above 0 for a name that it does not know
        return done.stdout.strip()
    text = (done.stdout + done.stderr).strip()
    if done.returncode:
        raise Unavailable(
            f"{path} ended with exit code {done.returncode}: {text.rpartition(chr(10))[2]}"
        )
    return text
