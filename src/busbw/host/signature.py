"""Signatures of files by OpenSSH (8.1 and newer): `FILE.sig` next to FILE, in the namespace
busbw.
"""

import shutil
import subprocess
from pathlib import Path

from busbw.core.errors import NoMeasurement, UsageError

NAMESPACE = "busbw"
LIMIT_S = 120.0  # a passphrase, or a touch of a security key


def sign(file: Path, key: Path) -> Path:
    """Sign the file, and return the path of its signature.

    `key` is a private key, or a public one whose private key the agent has. UsageError if the key
    cannot be used, NoMeasurement without ssh-keygen.
    """
    signature = file.with_name(f"{file.name}.sig")
    signature.unlink(missing_ok=True)
    done = _keygen("-Y", "sign", "-f", str(key), "-n", NAMESPACE, str(file))
    if done.returncode or not signature.exists():
        lines = done.stderr.strip().splitlines()
        reason = lines[-1] if lines else f"exit code {done.returncode}"
        raise UsageError(
            f"--sign {key}: {reason}",
            "name an OpenSSH key, like --sign ~/.ssh/id_ed25519; ssh-keygen -t ed25519 makes one",
        )
    return signature


def signer(key: Path) -> str:
    """The line for the receiver's file of allowed signers; '' if it is not known.

    It is like `busbw namespaces="busbw" ssh-ed25519 AAAA...`.
    """
    public = key if key.suffix == ".pub" else key.with_name(f"{key.name}.pub")
    try:
        kind, data, *_ = public.read_text(encoding="utf-8").split()
    except (OSError, ValueError):
        return ""
    return f'{NAMESPACE} namespaces="{NAMESPACE}" {kind} {data}'


def _keygen(*words: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("ssh-keygen")
    if program is None:
        raise NoMeasurement(
            "--sign: there is no ssh-keygen on PATH", "install OpenSSH's client programs"
        )
    try:
        return subprocess.run(
            [program, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise NoMeasurement(
            f"--sign: ssh-keygen did not end within {LIMIT_S:g} s",
            "add the key to ssh-agent first: ssh-add KEY",
        ) from error
