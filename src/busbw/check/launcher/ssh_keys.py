"""Whether ssh has a key or an agent for logins without a password."""

import json
from collections.abc import Iterator

from busbw.check.base import Check, passed, skipped, unread, warned
from busbw.check.launcher.programs import ssh_login
from busbw.check.machine import Machine
from busbw.check.shell_words import word
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer

FOLDER = "~/.ssh"
OPEN = 0o077  # readable by others: ssh ignores such a key

ROW = CheckRow(
    id="BW204",
    name="ssh-keys",
    layer=Layer.LAUNCHER,
    title="ssh keys for mpirun",
    right="a private key that only its owner can read, or a running agent",
    why="mpirun starts its daemons over ssh, and cannot type a password. Without a key it waits at a prompt or fails with permission "
    "denied. This check does not test whether a host accepts the key.",
    fix="ssh-keygen -t ed25519 -N '' -f ~/.ssh/id_ed25519; then ssh-copy-id to each host",
    stays="permanent; in a container, lost with its home directory",
    reads=(f"names and permissions in {FOLDER}", "SSH_AUTH_SOCK"),
    sources=("ssh(1), ssh-agent(1)",),
)


def look(machine: Machine) -> Iterator[Found]:
    """The agent, and names and permissions of keys."""
    reading = machine.call("ssh-login", ssh_login)
    if reading.text is None:
        yield unread("", reading, "how ssh logs in")
        return
    found = json.loads(reading.text)
    keys: dict[str, int] = found["keys"]
    evidence = Evidence(FOLDER, ", ".join(f"{name} {mode:03o}" for name, mode in keys.items()) or "no id_* key", "600")
    readable = [name for name, mode in keys.items() if mode & OPEN]
    if not found["ssh"]:
        yield skipped("no ssh on PATH; mpirun cannot start ranks on other hosts, torchrun and srun need none")
    elif readable:
        message = f"others may read {', '.join(readable)}: ssh ignores it"
        yield warned("", message, evidence, fix=f"chmod 600 {' '.join(f'{FOLDER}/{word(name)}' for name in readable)}")
    elif not keys and not found["agent"]:
        yield warned("", "there is no key and no agent", evidence, Evidence("$SSH_AUTH_SOCK", "not set"), fix=ROW.fix)
    else:
        yield passed("", "an agent runs" if found["agent"] else f"keys: {', '.join(keys)}", evidence)


CHECK = Check(ROW, look)
