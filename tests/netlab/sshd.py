"""A real sshd on each emulated host, with keys of its own, and what ssh needs to use them."""

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SSHD = "/usr/sbin/sshd"
READY_LIMIT_S = 10.0
CONFIG = """Port 22
ListenAddress {address}
HostKey {folder}/host_key
PidFile none
AuthorizedKeysFile {folder}/authorized_keys
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
PasswordAuthentication no
"""


class Unavailable(Exception):
    """This machine cannot run sshd; the message gives the reason."""


@contextlib.contextmanager
def running(lab: Any, folder: Path) -> Iterator[dict[str, str]]:
    """sshd on every host of `lab`; gives the environment in which ssh, mpirun and busbw log in with its key."""
    if not Path(SSHD).exists() or not shutil.which("ssh-keygen"):
        raise Unavailable(f"no {SSHD} here (Debian, Ubuntu: apt-get install openssh-server)")
    Path("/run/sshd").mkdir(exist_ok=True)  # sshd separates its privileges there
    for name in ("host_key", "user_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True, timeout=20)
    shutil.copy(folder / "user_key.pub", folder / "authorized_keys")
    key = " ".join((folder / "host_key.pub").read_text().split()[:2])
    (folder / "known_hosts").write_text("".join(f"{host.address} {key}\n" for host in lab.hosts))
    client = folder / "ssh_config"
    client.write_text(f"IdentityFile {folder}/user_key\nIdentitiesOnly yes\nUserKnownHostsFile {folder}/known_hosts\n")
    with contextlib.ExitStack() as undo:
        for number, host in enumerate(lab.hosts):
            config = folder / f"sshd_config.{number}"
            config.write_text(CONFIG.format(address=host.address, folder=folder))
            daemon = subprocess.Popen(host.enter(SSHD, "-D", "-e", "-f", str(config)), stderr=subprocess.DEVNULL)
            undo.callback(_end, daemon)
            _wait(host)
        yield {**os.environ, "OMPI_MCA_plm_rsh_args": f"-F {client}", "OMPI_MCA_mpi_yield_when_idle": "1"}


def _wait(host: Any) -> None:
    deadline = time.monotonic() + READY_LIMIT_S
    while subprocess.run(host.enter("bash", "-c", f"</dev/tcp/{host.address}/22"), capture_output=True, timeout=20).returncode:
        if time.monotonic() > deadline:
            raise Unavailable(f"sshd of {host.name} does not listen after {READY_LIMIT_S:g} s")
        time.sleep(0.05)


def _end(daemon: "subprocess.Popen[bytes]") -> None:
    daemon.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        daemon.wait(5)
    daemon.kill()
    daemon.wait()
