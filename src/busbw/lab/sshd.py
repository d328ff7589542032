"""A real sshd on each emulated host, with keys of the lab's own.

It listens at the host's address, which only the lab's network reaches.
"""

import contextlib
import os
import shutil
import subprocess
import time
from pathlib import Path

from busbw.core.errors import NoMeasurement
from busbw.host.process import name
from busbw.lab.host_exec import SSH_CONFIG, SSH_CONFIGS, enter, variables
from busbw.lab.processes import inside
from busbw.lab.types import Lab, LabHost

SSHD = "/usr/sbin/sshd"
READY_LIMIT_S = 60.0  # on a machine whose cores are all in use
LIMIT_S = 60.0
_PRIVILEGES = Path("/run/sshd")  # sshd separates its privileges in this empty directory
_HINT = (
    "Debian, Ubuntu: apt-get install openssh-server openssh-client; or make the lab with --no-sshd"
)
_NO_LOGIN = (
    "allow root to log in with a key (usermod -U root if the account is locked), or make the lab"
    " with --no-sshd"
)
_SLOW_SHELL = "root's shell does not end: see what ~/.bashrc runs, or make the lab with --no-sshd"
_CONFIG = """Port 22
ListenAddress {address}
HostKey {folder}/host_key
PidFile {folder}/sshd_pid.{name}
AuthorizedKeysFile {folder}/authorized_keys
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
AuthenticationMethods publickey
Subsystem sftp internal-sftp
SetEnv {variables}
"""
_CLIENT = """Host {names}
User root
Port 22
ProxyJump none
ControlPath none
IdentityFile {folder}/user_key
IdentitiesOnly yes
UserKnownHostsFile {folder}/known_hosts
StrictHostKeyChecking yes
Match all
"""


def check() -> None:
    """NoMeasurement if a part of OpenSSH is missing."""
    missing = [program for program in ("ssh", "ssh-keygen") if not shutil.which(program)]
    if not os.access(SSHD, os.X_OK):
        missing.append(SSHD)
    if not Path(SSH_CONFIG).exists():
        missing.append(SSH_CONFIG)
    if missing:
        raise NoMeasurement(f"no {' and no '.join(missing)} here", _HINT)


def start(lab: Lab) -> None:
    """Make keys, and start sshd on every host; it takes logins when this returns.

    NoMeasurement if one does not start; OSError if files cannot be written.
    """
    _write_keys(lab)
    for host in lab.hosts:
        _start(lab, host)
    for host in lab.hosts:
        _wait(lab, host)
    _log_in(lab, lab.hosts[-1])


def _write_keys(lab: Lab) -> None:
    """The lab's keys, and the client's configuration that uses them."""
    folder = Path(lab.folder)
    for key in ("host_key", "user_key"):
        words = [
            "ssh-keygen",
            "-q",
            "-t",
            "ed25519",
            "-N",
            "",
            "-C",
            f"busbw lab {lab.name}",
            "-f",
            str(folder / key),
        ]
        _run("ssh-keygen", words, _HINT)
    shutil.copy(folder / "user_key.pub", folder / "authorized_keys")
    public = " ".join((folder / "host_key.pub").read_text().split()[:2])
    (folder / "known_hosts").write_text(
        "".join(f"{host.name},{host.address} {public}\n" for host in lab.hosts)
    )
    names = " ".join(f"{host.name} {host.address}" for host in lab.hosts)
    settings = _CLIENT.format(names=names, folder=folder)
    for path, file in SSH_CONFIGS.items():
        # What the machine's administrator and user set applies to other hosts.
        if Path(path).exists():
            (folder / file).write_text(settings + Path(path).read_text())
    _PRIVILEGES.mkdir(exist_ok=True)


def listens(lab: Lab, host: LabHost) -> bool:
    """Whether the host's sshd has written its pid, as it does when it listens, and runs."""
    with contextlib.suppress(OSError, ValueError):
        pid = int(Path(lab.folder, f"sshd_pid.{host.name}").read_text())
        return name(pid) == "sshd" and pid in inside(host.namespace)
    return False


def _start(lab: Lab, host: LabHost) -> None:
    config = Path(lab.folder, f"sshd_config.{host.name}")
    words = " ".join(f'"{name}={value}"' for name, value in variables(lab, host).items())
    config.write_text(
        _CONFIG.format(address=host.address, folder=lab.folder, name=host.name, variables=words)
    )
    log = Path(lab.folder, f"sshd_log.{host.name}")
    # sshd becomes a daemon, so this process need not wait for it.
    _run(
        f"sshd of {host.name} does not start",
        enter(lab, host, SSHD, "-f", str(config), "-E", str(log)),
        _HINT,
    )


def _log_in(lab: Lab, host: LabHost) -> None:
    """Log in to a host: a machine may forbid that to root, whatever the lab's configuration says.

    The login comes from the host itself, so that delay and losses between hosts cannot make it
    fail.
    """
    words = enter(lab, host, "ssh", "-o", "BatchMode=yes", host.name, "true")
    log = Path(lab.folder, f"sshd_log.{host.name}")
    _run(f"root cannot log in to {host.name} by ssh", words, _NO_LOGIN, log)


def _run(purpose: str, words: list[str], hint: str, log: Path | None = None) -> None:
    """Run a command; NoMeasurement with its output and a log's end if it fails or is too slow."""
    try:
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        reason = f"it is not done within {LIMIT_S:g} s"
    else:
        if done.returncode == 0:
            return
        reason = done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}"
    logged = log.read_text(errors="replace").strip().splitlines()[-2:] if log else []
    if any(line.startswith("Accepted ") for line in logged):
        hint = _SLOW_SHELL
    raise NoMeasurement(" ".join([f"{purpose}: {reason}", *logged]), hint)


def _wait(lab: Lab, host: LabHost) -> None:
    deadline = time.monotonic() + READY_LIMIT_S
    while not listens(lab, host):
        if time.monotonic() > deadline:
            log = Path(lab.folder, f"sshd_log.{host.name}").read_text(errors="replace").strip()
            raise NoMeasurement(
                f"sshd of {host.name} does not listen after {READY_LIMIT_S:g} s: {log[-500:]}",
                _HINT,
            )
        time.sleep(0.02)
