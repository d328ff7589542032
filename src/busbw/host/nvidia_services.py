"""What the NVIDIA driver's companions say of themselves: their services, and the versions and
states that their commands print.

Parsers of small formats of the kernel and systemd.
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


def _output(*words: str) -> str:
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
        last = (done.stderr or done.stdout).strip().splitlines()
        raise Unavailable(
            f"{words[0]} ended with exit code {done.returncode}{f': {last[-1]}' if last else ''}"
        )
    return done.stdout


def services() -> str:
    """`systemctl show` of the fabric manager and of IMEX, for `states`; Unavailable as in a
    container without systemd.
    """
    return _output("systemctl", "show", "--property=Id,LoadState,ActiveState", FABRIC_MANAGER, IMEX)


def states(text: str) -> dict[str, str]:
    """The state of each service: `active`, `inactive`, `failed`, ...; `not installed` where
    systemd has no such unit.
    """
    found = {}
    for block in text.split("\n\n"):
        values = dict(line.partition("=")[::2] for line in block.splitlines())
        if values.get("Id"):
            missing = values.get("LoadState") == "not-found"
            found[values["Id"]] = ABSENT if missing else values.get("ActiveState", "")
    return found


def fabric_manager() -> str:
    """`nv-fabricmanager --version`, for `version`."""
    return _output("nv-fabricmanager", "--version")


def version(text: str) -> str:
    """`570.158.01` from the line `Fabric Manager version is : 570.158.01`; '' if there is none."""
    match = _VERSION.search(text)
    return match[1] if match else ""


def imex() -> str:
    """`nvidia-imex-ctl -N`, the state of the whole domain, for `imex_nodes` and `imex_domain`."""
    return _output("nvidia-imex-ctl", "-N")


def imex_nodes(text: str) -> dict[str, str]:
    """The state of each node by address; READY is right."""
    return dict(_IMEX_NODE.findall(text))


def imex_domain(text: str) -> str:
    """The state of the domain: UP is right; '' if the text names none."""
    match = _IMEX_DOMAIN.search(text)
    return match[1] if match else ""


UNLIMITED = "unlimited"
MOST_CPUS = 1 << 16  # far above the 8192 that Linux allows


def soft_limit(text: str, name: str) -> str | None:
    """The soft limit in /proc/PID/limits, such as `Max open files`: a number or `unlimited`;
    None if it is not in there.
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
    """Lines of a name and a number, as in memory.events; others are left out."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def numbers(text: str) -> list[int]:
    """The integers of a line, as in tcp_rmem; empty if one is none."""
    found = [number(word) for word in text.split()]
    return [] if None in found else [value for value in found if value is not None]


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
    """The last value in logind.conf and its drop-ins, in their order; else the default, which
    the file shows as a comment.
    """
    pattern = re.compile(rf"^(#?)\s*{name}\s*=\s*(\S*)\s*$", re.MULTILINE)
    found = [match for text in texts for match in pattern.findall(text)]
    chosen = [value for comment, value in found if not comment]
    return next(iter(chosen[::-1] or [value for _, value in found]), None)


def uptime(text: str) -> float:
    """Seconds since boot in /proc/uptime; 0 if they are not in there."""
    match = re.match(r"\d+(\.\d+)?", text)
    return float(match.group()) if match else 0.0
