"""The state of the NVIDIA driver's services, and parsers of small formats.

The services and the commands of the fabric manager and IMEX give versions and states. The formats
are those of the kernel and systemd.
"""

import re
import subprocess

from busbw.host.interfaces import number
from busbw.host.source import Unavailable

FABRIC_MANAGER, IMEX = "nvidia-fabricmanager.service", "nvidia-imex.service"
ABSENT = "not installed"
_LIMIT_S = 10
_IMEX_NODE = re.compile(r"^Node #\d+\s+- (\S+)\s+- ([A-Z_ ]+?)\s*(?:-.*)?$", re.MULTILINE)
_IMEX_DOMAIN = re.compile(r"^Domain State: (\w+)", re.MULTILINE)
_VERSION = re.compile(r"version is\s*:\s*([0-9][0-9.]*)", re.IGNORECASE)


def _run(*words: str) -> str:
    """What a command prints; Unavailable if it is not installed, fails or does not end in time."""
    try:
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError as error:
        raise Unavailable(f"{words[0]} is not installed") from error
    except OSError as error:
        raise Unavailable(f"{words[0]}: {(error.strerror or str(error)).lower()}") from error
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{words[0]} gave no answer within {_LIMIT_S} s") from error
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        last_line = f": {lines[-1]}" if lines else ""
        raise Unavailable(f"{words[0]} ended with exit code {done.returncode}{last_line}")
    return done.stdout


def services() -> str:
    """The output of `systemctl show` for the fabric manager and IMEX, as `states` takes it.

    Unavailable without systemd, as in most containers.
    """
    return _run("systemctl", "show", "--property=Id,LoadState,ActiveState", FABRIC_MANAGER, IMEX)


def states(text: str) -> dict[str, str]:
    """The state of each service: `active`, `inactive`, `failed`, ...

    It is `not installed` if systemd has no such unit.
    """
    states_by_unit = {}
    for block in text.split("\n\n"):
        values = dict(line.partition("=")[::2] for line in block.splitlines())
        if values.get("Id"):
            missing = values.get("LoadState") == "not-found"
            states_by_unit[values["Id"]] = ABSENT if missing else values.get("ActiveState", "")
    return states_by_unit


def fabric_manager() -> str:
    """The output of `nv-fabricmanager --version`, as `version` takes it."""
    return _run("nv-fabricmanager", "--version")


def version(text: str) -> str:
    """`570.158.01` from the line `Fabric Manager version is : 570.158.01`; '' if there is none."""
    match = _VERSION.search(text)
    return match[1] if match else ""


def imex() -> str:
    """The output of `nvidia-imex-ctl -N`, as `imex_nodes` and `imex_domain` take it."""
    return _run("nvidia-imex-ctl", "-N")


def imex_nodes(text: str) -> dict[str, str]:
    """The state of each node by address; a good node is READY."""
    return dict(_IMEX_NODE.findall(text))


def imex_domain(text: str) -> str:
    """The state of the domain, UP if it is good; '' if the text names none."""
    match = _IMEX_DOMAIN.search(text)
    return match[1] if match else ""


UNLIMITED = "unlimited"
MOST_CPUS = 1 << 16  # far above the 8192 that Linux allows


def soft_limit(text: str, name: str) -> str | None:
    """The soft limit `name`, such as `Max open files`, in the text of /proc/PID/limits.

    It is a number or `unlimited`; None if the text has no such limit.
    """
    line = next((line for line in text.splitlines() if line.startswith(f"{name} ")), None)
    values = line.removeprefix(name).split() if line else []
    return values[0] if values and (values[0] == UNLIMITED or values[0].isdecimal()) else None


def capabilities(text: str) -> set[int]:
    """The effective capabilities in /proc/PID/status, by the numbers of linux/capability.h."""
    match = re.search(r"^CapEff:\s*([0-9a-fA-F]+)$", text, re.MULTILINE)
    return {bit for bit in range(64) if int(match[1], 16) >> bit & 1} if match else set()


def bracketed(text: str) -> str | None:
    """The choice in a file such as `always [madvise] never`."""
    match = re.search(r"\[(\S+)\]", text)
    return match.group(1) if match else None


def named_counts(text: str) -> dict[str, int]:
    """Lines of a name and a number, as in memory.events; other lines are left out."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def numbers(text: str) -> list[int]:
    """The integers of a line, as in tcp_rmem; empty if a word is no integer."""
    values = []
    for word in text.split():
        value = number(word)
        if value is None:
            return []
        values.append(value)
    return values


def cpu_set(text: str) -> set[int]:
    """CPUs of a kernel list such as `0-3,8`; empty for a malformed one."""
    cpus: set[int] = set()
    for part in filter(None, text.split(",")):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal()) or int(last) >= MOST_CPUS:
            return set()
        cpus |= set(range(int(first), int(last) + 1))
    return cpus


def logind_setting(texts: list[str], name: str) -> str | None:
    """The value of a setting of logind; None if no text has it.

    `texts` are logind.conf and its drop-ins in their order: the last one that sets it counts. If
    none does, it is the default, which the file shows as a comment.
    """
    pattern = re.compile(rf"^(#?)\s*{name}\s*=\s*(\S*)\s*$", re.MULTILINE)
    matches = [match for text in texts for match in pattern.findall(text)]
    values = [value for comment, value in matches if not comment]
    if values:
        return str(values[-1])
    return str(matches[0][1]) if matches else None


def uptime(text: str) -> float:
    """Seconds since boot in the text of /proc/uptime; 0 if it has another form."""
    match = re.match(r"\d+(\.\d+)?", text)
    return float(match.group()) if match else 0.0
