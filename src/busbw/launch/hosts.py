"""Hosts and their slots, and torchrun's command line.

`--hosts gpu[001-064]:8` names hosts as Slurm and PDSH do; `hostfile` reads files of them. torchrun,
`python -m torch.distributed.run`, starts local ranks without MPI.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from busbw.core.errors import NoMeasurement, UsageError
from busbw.core.host_ranges import MOST_LISTED, expand, fold, is_range, split_words
from busbw.core.program import install_hint

_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?")
_IPV6 = re.compile(r"[0-9A-Fa-f:.]+(%[A-Za-z0-9_.-]+)?")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]*")
_SLOTS = re.compile(r"[0-9]{1,6}")


@dataclass(frozen=True, slots=True)
class LaunchHost:
    """One host: `name` is what ssh takes, also `user@h1`.

    `slots` is the number of ranks it takes, 0 if it is not given.
    """

    name: str
    slots: int = 0

    def __str__(self) -> str:
        """`h1:8`, `[fd00::2]:8`, or only the name, as --hosts and mpirun's --host accept it."""
        user, at, name = self.name.rpartition("@")
        if ":" in name:
            name = f"[{name}]"
        return f"{user}{at}{name}:{self.slots}" if self.slots else f"{user}{at}{name}"


def without_user(name: str) -> str:
    """The host in `user@h1`."""
    return name.rpartition("@")[2]


def hosts_text(hosts: Sequence[LaunchHost]) -> str:
    """The hosts as --hosts takes them: in their order, or many as ranges, `gpu[001-064]:8`."""
    if len(hosts) <= MOST_LISTED or any(":" in host.name for host in hosts):
        return ",".join(map(str, hosts))
    by_slots: dict[int, list[str]] = {}
    for host in hosts:
        by_slots.setdefault(host.slots, []).append(host.name)
    words: list[str] = []
    for slots, names in by_slots.items():
        words += (str(LaunchHost(word, slots)) for word in split_words(fold(names), "--hosts"))
    return ",".join(words)


def probe_command(hosts: Sequence[str]) -> str:
    """A command that shows which of several hosts cannot be reached."""
    if len(hosts) > MOST_LISTED:
        return f"busbw check launch --hosts '{hosts_text(list(map(LaunchHost, hosts)))}'"
    names = " ".join(hosts)
    return f"for h in {names}; do ssh -o BatchMode=yes -o ConnectTimeout=5 $h hostname; done"


def with_user(host: LaunchHost, user: str, where: str) -> LaunchHost:
    """The host for another user; UsageError, which begins with `where`, for an invalid name."""
    if not _USER.fullmatch(user):
        raise UsageError(f"{where}: '{user}' is not the name of a user", "write user@host")
    return LaunchHost(f"{user}@{without_user(host.name)}", host.slots)


def is_host(text: str) -> bool:
    """Whether a text is a host name or an address, with or without a user.

    Other texts must not reach ssh, which takes a word that starts with `-` as an option.
    """
    user, at, name = text.rpartition("@")
    if at and not _USER.fullmatch(user):
        return False
    return bool(_NAME.fullmatch(name) or _IPV6.fullmatch(name))


def parse_hosts(text: str) -> tuple[LaunchHost, ...]:
    """The hosts of `--hosts`, separated by commas or spaces.

    Raises UsageError for an empty list, an invalid name, range or number of slots, or a duplicate.
    """
    where = f"--hosts '{text}'"
    words = split_words(text, where)
    hosts = tuple(host for word in words for host in parse_entry(word, where))
    twice = next(_repeated(hosts), None)
    if twice:
        raise UsageError(
            f"{where}: {twice} is given twice", f"give it once, with all its slots, like {twice}:8"
        )
    return hosts


def hosts_argument(hosts: str | Sequence[str] | None) -> str:
    """Hosts as --hosts takes them, from such a text or a list of its entries; '' for None.

    UsageError for an empty list, and for what is no text.
    """
    if hosts is None or isinstance(hosts, str):
        return hosts or ""
    other = [host for host in hosts if not isinstance(host, str)]
    if other or not hosts:
        raise UsageError(
            f"hosts: {other[0]!r} is not the name of a host" if other else "hosts: an empty list",
            'write a text, like "h1:8,h2:8", or a list, like ["h1:8", "h2:8"]',
        )
    return ",".join(hosts)


def _repeated(hosts: Iterable[LaunchHost]) -> Iterator[str]:
    names = set()
    for name in (without_user(host.name) for host in hosts):
        if name in names:
            yield name
        names.add(name)


def parse_entry(text: str, where: str) -> list[LaunchHost]:
    """The hosts of one entry: `h1:8`, `user@gpu[01-16]`, `[fd00::2]:8`.

    UsageError, which begins with `where`, if it is none.
    """
    user, at, rest = text.rpartition("@")
    if rest.startswith("[") and not is_range(rest):
        names, slots = _address(text, rest, where)
    else:
        names, slots = _names(text, rest, where)
    hosts = [LaunchHost(name, slots) for name in names]
    return [with_user(host, user, where) for host in hosts] if at else hosts


def _address(text: str, rest: str, where: str) -> tuple[list[str], int]:
    """An IPv6 address in brackets, and its slots."""
    name, bracket, suffix = rest[1:].partition("]")
    if not bracket or not _IPV6.fullmatch(name) or (suffix and not suffix.startswith(":")):
        raise UsageError(
            f"{where}: '{text}' is not an IPv6 address in brackets",
            "write [fd00::2] or [fd00::2]:8",
        )
    return [name], parse_slots(suffix[1:], where, name) if suffix else 0


def _names(text: str, rest: str, where: str) -> tuple[list[str], int]:
    """The names of an entry, with its ranges expanded, and the slots of each."""
    if rest.count(":") > 1:
        raise UsageError(
            f"{where}: '{text}' has more than one colon",
            "put an IPv6 address in brackets: [fd00::2]:8",
        )
    name, colon, slots = rest.partition(":")
    names = expand(name, where)
    if not _NAME.fullmatch(names[0]):
        raise UsageError(f"{where}: '{text}' is not a host name", "write hosts like h1:8,h2:8")
    if _NAME.fullmatch(slots) and not slots.isdigit() and (not slots[0].isdigit() or "." in slots):
        raise UsageError(
            f"{where}: '{text}': a number of slots must follow the colon",
            f"use a comma: {name},{slots}",
        )
    return names, parse_slots(slots, where, name) if colon else 0


def parse_slots(text: str, where: str, host: str) -> int:
    """A number of slots of `host`; UsageError, which begins with `where`, for any other text."""
    if not _SLOTS.fullmatch(text):
        raise UsageError(
            f"{where}: '{text}' is not a number of slots of {host}", f"write it like {host}:8"
        )
    if not int(text):
        raise UsageError(
            f"{where}: {host} has {text} slots",
            f"give at least one slot, like {host}:8, or leave out the host",
        )
    return int(text)


def share(
    hosts: Sequence[LaunchHost], ranks: int | None, default: int = 1
) -> tuple[LaunchHost, ...]:
    """The hosts with the slots that `ranks` ranks occupy, or with all slots for None.

    Hosts are filled in order, or evenly if no host has slots. `default` is the number of slots of a
    host without any when `ranks` is None. UsageError if there are too few slots.
    """
    if ranks is None:
        return tuple(LaunchHost(host.name, host.slots or default) for host in hosts)
    if ranks < 1:
        raise UsageError(f"--ranks {ranks}: at least one rank is needed", "give --ranks 1 or more")
    if not any(host.slots for host in hosts):
        per_host, remainder = divmod(ranks, len(hosts))
        even = [LaunchHost(host.name, per_host + (i < remainder)) for i, host in enumerate(hosts)]
        return tuple(host for host in even if host.slots)
    known = tuple(LaunchHost(host.name, host.slots or 1) for host in hosts)
    total = sum(host.slots for host in known)
    if ranks > total:
        per_host = -(-ranks // len(known))
        enough = hosts_text([LaunchHost(host.name, per_host) for host in known])
        raise UsageError(
            f"--ranks {ranks}: the {len(known)} hosts have {total} slots",
            f"give more slots, like --hosts {enough}",
        )
    return _fill(known, ranks)


def _fill(hosts: Sequence[LaunchHost], ranks: int) -> tuple[LaunchHost, ...]:
    """Slots of each host up to `ranks` in total; hosts without ranks are left out."""
    filled = []
    for host in hosts:
        slots = min(host.slots, ranks)
        ranks -= slots
        if slots:
            filled.append(LaunchHost(host.name, slots))
    return tuple(filled)


def command(program: Sequence[str], ranks: int) -> list[str]:
    """The command line that runs `program` on `ranks` local ranks, on a free port.

    Raises NoMeasurement without PyTorch.
    """
    if not find_spec("torch"):
        raise NoMeasurement(f"PyTorch is not installed for {sys.executable}", install_hint("torch"))
    torchrun = [sys.executable, "-m", "torch.distributed.run"]
    return [*torchrun, "--standalone", f"--nproc-per-node={ranks}", "--no-python", *program]
