"""Logins and names of hosts: ssh keys, addresses of a host's own name, reverse lookups."""

import json
from collections.abc import Iterator
from ipaddress import ip_address

from busbw.check.base import check, passed, skipped, unread, warned
from busbw.check.launcher.programs import own_addresses, reverse_lookups, ssh_login
from busbw.check.machine import Machine
from busbw.check.shell_words import filled, word
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer

HOSTS_FILE, HOSTNAME = "/etc/hosts", "/proc/sys/kernel/hostname"
LOCAL = "localhost"
REPLACE_ADDRESS = (
    "in /etc/hosts, replace {address} in the line of {own} with the address of this host"
)
REMOVE_NAME = (
    "in /etc/hosts, take {own} out of the line of {address}, which keeps {others}; add a line with"
    " the address of this host and {own}"
)

HOSTNAME_LOOPBACK = CheckRow(
    id="BW202",
    name="hostname-loopback",
    layer=Layer.LAUNCHER,
    title="the host's own name in /etc/hosts",
    right="an address that other hosts can reach, or none",
    why=(
        "Debian's installer maps the host's own name to 127.0.1.1. torchrun and Gloo ranks "
        "publish their name or address. Other hosts then connect to themselves, and startup hangs."
    ),
    fix=REPLACE_ADDRESS,
    stays="permanent, unless cloud-init rewrites the file: manage_etc_hosts",
    reads=(HOSTS_FILE, HOSTNAME),
    sources=("Debian reference, the hostname resolution",),
)
SLOW_S = 1.0
FOLDER = "~/.ssh"
READABLE_BY_OTHERS = 0o077  # readable by others: ssh ignores such a key


@check(HOSTNAME_LOOPBACK)
def check_hostname_loopback(machine: Machine) -> Iterator[Finding]:
    """A finding for each line that gives the host's name a loopback address."""
    reading, name = machine.read(HOSTS_FILE), machine.text(HOSTNAME)
    if reading.text is None or not name:
        missing = reading if reading.text is None else machine.read(HOSTNAME)
        yield unread("", missing, "the host's name")
        return
    if name.partition(".")[0] == LOCAL:
        yield skipped(f"this host's name is {name}")
        return
    hostnames = {name, name.partition(".")[0]}
    lines = [line.partition("#")[0].split() for line in reading.text.splitlines()]
    of_name = [words for words in lines if hostnames & set(words[1:])]
    loopback = [words for words in of_name if _is_loopback(words[0])]
    for words in loopback:
        message = f"{HOSTS_FILE} gives {name} the address {words[0]}"
        evidence = Evidence(HOSTS_FILE, " ".join(words), f"an address of {name}")
        yield warned("", message, evidence, fix=_fix_of_line(words, hostnames))
    if not loopback:
        yield passed(
            "",
            f"{HOSTS_FILE} gives {name} no loopback address",
            *(Evidence(HOSTS_FILE, " ".join(words)) for words in of_name),
        )


def _fix_of_line(words: list[str], hostnames: set[str]) -> str:
    """The fix for a line with names of this host; it may also hold localhost, which must stay."""
    named = [word for word in words[1:] if word in hostnames]
    others = [word for word in words[1:] if word not in hostnames]
    return filled(
        REMOVE_NAME if others else REPLACE_ADDRESS, address=words[0], own=named, others=others
    )


def _is_loopback(text: str) -> bool:
    try:
        return ip_address(text).is_loopback
    except ValueError:
        return False


HOSTNAME_RESOLVES = CheckRow(
    id="BW203",
    name="hostname-resolves",
    layer=Layer.LAUNCHER,
    title="addresses of the host's own name",
    right="at least one that is not loopback",
    why=(
        "Gloo and PyTorch's store resolve the host's own name at startup. Without an address they"
        " fail, or first wait for the name server."
    ),
    fix=(
        "add a line with the address of this host and its name {name} to /etc/hosts, or register it"
        " in DNS"
    ),
    stays="permanent, unless cloud-init rewrites /etc/hosts: manage_etc_hosts",
    reads=("getent ahosts HOSTNAME",),
    sources=("getent(1)", "PyTorch documentation, torch.distributed"),
)


@check(HOSTNAME_RESOLVES)
def check_hostname_resolves(machine: Machine) -> Iterator[Finding]:
    """The addresses to which the resolver resolves the host's own name."""
    name = machine.text(HOSTNAME)
    if not name:
        yield unread("", machine.read(HOSTNAME), "the host's name")
        return
    reading = machine.call("own-addresses", lambda: own_addresses(name))
    if reading.text is None:
        yield unread("", reading, f"the addresses of {name}")
        return
    addresses = list(
        dict.fromkeys(line.split()[0] for line in reading.text.splitlines() if line.strip())
    )
    evidence = Evidence(f"getent ahosts {name}", ", ".join(addresses) or "nothing", "an address")
    fix = filled(HOSTNAME_RESOLVES.fix, name=name)
    if not addresses:
        yield warned("", f"{name} does not resolve", evidence, fix=fix)
    elif all(ip_address(address.partition("%")[0]).is_loopback for address in addresses):
        yield warned("", f"{name} resolves to loopback addresses only", evidence, fix=fix)
    else:
        yield passed("", f"{name} resolves", evidence)


REVERSE_LOOKUP = CheckRow(
    id="BW210",
    name="reverse-lookup",
    layer=Layer.LAUNCHER,
    title="time to find the name of this host's address",
    right=f"at most {SLOW_S:g} s",
    why=(
        "PyTorch's store (TCPStore) looks up the name of each client that connects, and serves "
        "no other client meanwhile. A name server that does not answer costs 5 s for each: ranks "
        "start late, and new process groups stall."
    ),
    fix=(
        "register the addresses of the hosts in reverse DNS, or set RES_OPTIONS='timeout:1"
        " attempts:1' for the rank that has the store"
    ),
    stays="permanent with DNS; the variable until the job ends",
    reads=("getent hosts ADDRESS",),
    sources=(
        "getent(1)",
        "resolv.conf(5), RES_OPTIONS",
        "PyTorch's source, torch/csrc/distributed/c10d/socket.cpp",
    ),
)


@check(REVERSE_LOOKUP, after=HOSTNAME_RESOLVES)
def check_reverse_lookup(machine: Machine) -> Iterator[Finding]:
    """The time of the slowest lookup of a name by address."""
    name = machine.text(HOSTNAME)
    if not name:
        yield unread("", machine.read(HOSTNAME), "the host's name")
        return
    reading = machine.call("reverse-lookups", lambda: reverse_lookups(name))
    if reading.text is None:
        yield unread("", reading, "the time of a reverse lookup")
        return
    seconds: dict[str, float] = json.loads(reading.text)
    address = max(seconds, key=seconds.__getitem__)
    evidence = Evidence(
        f"getent hosts {address}", f"{seconds[address]:.2f} s", f"at most {SLOW_S:g} s"
    )
    if seconds[address] > SLOW_S:
        yield warned(
            "",
            f"finding the name of {address} took {seconds[address]:.1f} s",
            evidence,
            fix=REVERSE_LOOKUP.fix,
        )
    else:
        yield passed("", f"reverse lookups take at most {seconds[address]:.2f} s", evidence)


SSH_KEYS = CheckRow(
    id="BW204",
    name="ssh-keys",
    layer=Layer.LAUNCHER,
    title="ssh keys for mpirun",
    right="a private key that only its owner can read, or a running agent",
    why=(
        "mpirun starts its daemons over ssh, and cannot type a password. Without a key it waits "
        "at a prompt or fails with permission denied. This check does not test whether a host "
        "accepts the key."
    ),
    fix="ssh-keygen -t ed25519 -N '' -f ~/.ssh/id_ed25519; then ssh-copy-id to each host",
    stays="permanent; in a container, lost with its home directory",
    reads=(f"names and permissions in {FOLDER}", "SSH_AUTH_SOCK"),
    sources=("ssh(1), ssh-agent(1)",),
)


@check(SSH_KEYS)
def check_ssh_keys(machine: Machine) -> Iterator[Finding]:
    """The ssh agent, and the names and permissions of private keys."""
    reading = machine.call("ssh-login", ssh_login)
    if reading.text is None:
        yield unread("", reading, "how ssh logs in")
        return
    login = json.loads(reading.text)
    keys: dict[str, int] = login["keys"]
    evidence = Evidence(
        FOLDER,
        ", ".join(f"{name} {mode:03o}" for name, mode in keys.items()) or "no id_* key",
        "600",
    )
    readable = [name for name, mode in keys.items() if mode & READABLE_BY_OTHERS]
    if not login["ssh"]:
        yield skipped(
            "no ssh on PATH; mpirun cannot start ranks on other hosts, torchrun and srun need none"
        )
    elif readable:
        message = f"others may read {', '.join(readable)}: ssh ignores it"
        yield warned(
            "",
            message,
            evidence,
            fix=f"chmod 600 {' '.join(f'{FOLDER}/{word(name)}' for name in readable)}",
        )
    elif not keys and not login["agent"]:
        yield warned(
            "",
            "there is no key and no agent",
            evidence,
            Evidence("$SSH_AUTH_SOCK", "not set"),
            fix=SSH_KEYS.fix,
        )
    else:
        yield passed(
            "", "an agent runs" if login["agent"] else f"keys: {', '.join(keys)}", evidence
        )
