"""Hosts and their slots, and torchrun's command line.

Hosts come from `--hosts h1:8,h2:8` or a hostfile with lines `h1 slots=8` or `h1:8`, or one line per
slot as PBS writes it. torchrun, `python -m torch.distributed.run`, starts local ranks without MPI.
"""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from busbw.core.errors import NoMeasurement, UsageError
from busbw.core.given_file import read_text

_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?")
_IPV6 = re.compile(r"[0-9A-Fa-f:.]+(%[A-Za-z0-9_.-]+)?")
_SLOTS = re.compile(r"slots\s*=\s*(\S*)")
_OTHER_KEYS = re.compile(r"(max[_-]slots\s*=\s*\d+)")


@dataclass(frozen=True, slots=True)
class Host:
    """One host. `slots` is the number of ranks it takes, 0 if it is not given."""

    name: str
    slots: int = 0

    def __str__(self) -> str:
        """`h1:8`, `[fd00::2]:8`, or only the name, as --hosts and mpirun's --host accept it."""
        name = f"[{self.name}]" if ":" in self.name else self.name
        return f"{name}:{self.slots}" if self.slots else name


def is_host(text: str) -> bool:
    """Whether a text is a host name or an address.

    Other texts must not reach ssh, which takes a word that starts with `-` as an option.
    """
    return bool(_NAME.fullmatch(text) or _IPV6.fullmatch(text))


def parse_hosts(text: str) -> tuple[Host, ...]:
    """The hosts of `--hosts`.

    Raises UsageError for an empty list, an invalid name or number of slots, or a duplicate.
    """
    hosts: list[Host] = []
    for part in text.split(","):
        host = _host(part.strip(), f"--hosts '{text}'")
        if any(host.name == other.name for other in hosts):
            raise UsageError(
                f"--hosts '{text}': {host.name} is given twice",
                f"give it once, with all its slots, like {host.name}:8",
            )
        hosts.append(host)
    return tuple(hosts)


def read_hostfile(path: str) -> tuple[Host, ...]:
    """The hosts of a hostfile. Raises UsageError if it cannot be read or parsed."""
    try:
        text = read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise UsageError(
            f"--hostfile {path}: {reason}", "give a file with lines like: h1 slots=8"
        ) from error
    return parse_hostfile(text, f"--hostfile {path}")


def parse_hostfile(text: str, source: str) -> tuple[Host, ...]:
    """The hosts in the text of a hostfile, in order of their first lines.

    The slots of repeated hosts are added up, as Open MPI does. UsageError names the line after
    `source`.
    """
    slots: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        entry = line.split("#")[0].strip()
        if not entry:
            continue
        host = _hostfile_line(entry, f"{source}, line {number}")
        repeated = host.name in slots
        slots[host.name] = (slots[host.name] or 1) + (host.slots or 1) if repeated else host.slots
    if not slots:
        raise UsageError(f"{source}: no host in it", "write one host per line, like: h1 slots=8")
    return tuple(Host(name, count) for name, count in slots.items())


def share(hosts: Sequence[Host], ranks: int | None, default: int = 1) -> tuple[Host, ...]:
    """The hosts with the slots that `ranks` ranks occupy, or with all slots for None.

    Hosts are filled in order, or evenly if no host has slots. `default` is the number of slots of a
    host without any when `ranks` is None. UsageError if there are too few slots.
    """
    if ranks is None:
        return tuple(Host(host.name, host.slots or default) for host in hosts)
    if ranks < 1:
        raise UsageError(f"-n {ranks}: at least one rank is needed", "give -n 1 or more")
    if not any(host.slots for host in hosts):
        per_host, remainder = divmod(ranks, len(hosts))
        even = [Host(host.name, per_host + (i < remainder)) for i, host in enumerate(hosts)]
        return tuple(host for host in even if host.slots)
    known = tuple(Host(host.name, host.slots or 1) for host in hosts)
    total = sum(host.slots for host in known)
    if ranks > total:
        per_host = -(-ranks // len(known))
        enough = ",".join(str(Host(host.name, per_host)) for host in known)
        raise UsageError(
            f"-n {ranks}: the {len(known)} hosts have {total} slots",
            f"give more slots, like --hosts {enough}",
        )
    return _fill(known, ranks)


def _fill(hosts: Sequence[Host], ranks: int) -> tuple[Host, ...]:
    """Slots of each host up to `ranks` in total; hosts without ranks are left out."""
    filled = []
    for host in hosts:
        slots = min(host.slots, ranks)
        ranks -= slots
        if slots:
            filled.append(Host(host.name, slots))
    return tuple(filled)


def _hostfile_line(entry: str, where: str) -> Host:
    match = _SLOTS.search(entry)
    without_slots = entry.replace(match.group(0), "", 1) if match else entry
    words = _OTHER_KEYS.sub("", without_slots).split()
    if len(words) != 1:
        raise UsageError(
            f"{where}: '{entry}' is not a host with its slots",
            "write one host per line, like: h1 slots=8",
        )
    host = _host(words[0], where)
    return Host(host.name, _slots(match.group(1), where, host.name)) if match else host


def _host(text: str, where: str) -> Host:
    if text.startswith("["):
        name, bracket, suffix = text[1:].partition("]")
        if not bracket or not _IPV6.fullmatch(name) or (suffix and not suffix.startswith(":")):
            raise UsageError(
                f"{where}: '{text}' is not an IPv6 address in brackets",
                "write [fd00::2] or [fd00::2]:8",
            )
        return Host(name, _slots(suffix[1:], where, name) if suffix else 0)
    if text.count(":") > 1:
        raise UsageError(
            f"{where}: '{text}' has more than one colon",
            "put an IPv6 address in brackets: [fd00::2]:8",
        )
    name, colon, slots = text.partition(":")
    if not _NAME.fullmatch(name):
        raise UsageError(f"{where}: '{text}' is not a host name", "write hosts like h1:8,h2:8")
    if _NAME.fullmatch(slots) and not slots.isdigit() and (not slots[0].isdigit() or "." in slots):
        raise UsageError(
            f"{where}: '{text}': a number of slots must follow the colon",
            f"use a comma: {name},{slots}",
        )
    return Host(name, _slots(slots, where, name) if colon else 0)


def _slots(text: str, where: str, host: str) -> int:
    if text.isascii() and text.isdigit():
        if int(text) > 0:
            return int(text)
        raise UsageError(
            f"{where}: {host} has {text} slots",
            f"give at least one slot, like {host}:8, or leave out the host",
        )
    raise UsageError(
        f"{where}: '{text}' is not a number of slots of {host}", f"write it like {host}:8"
    )


def command(program: Sequence[str], ranks: int) -> list[str]:
    """The command line that runs `program` on `ranks` local ranks, on a free port.

    Raises NoMeasurement without PyTorch.
    """
    if not find_spec("torch"):
        raise NoMeasurement(
            f"PyTorch is not installed for {sys.executable}",
            f"{sys.executable} -m pip install 'busbw[torch]'",
        )
    torchrun = [sys.executable, "-m", "torch.distributed.run"]
    return [*torchrun, "--standalone", f"--nproc-per-node={ranks}", "--no-python", *program]
