"""Reads hostfiles: of Open MPI (`h1 slots=8`), MPICH (`h1:8`), PBS (one line for each slot), and
lists with ranges, as Slurm and PDSH have them (`gpu[001-064]`).
"""

import re
from pathlib import Path

from busbw.core.errors import UsageError
from busbw.core.given_file import read_text
from busbw.core.host_ranges import split_words
from busbw.launch.hosts import (
    LaunchHost,
    parse_entry,
    parse_hosts,
    parse_slots,
    with_user,
    without_user,
)

HINT = "write one host per line, like: h1 slots=8"
# https://docs.open-mpi.org/en/v5.0.x/launching-apps/scheduling.html; MPICH's Hydra has `user`
_SLOTS = ("slots", "slot", "count", "cpus", "cpu")
_MOST_SLOTS = ("max_slots", "max-slots", "slots_max", "slots-max")
_USER = ("user", "username", "user_name", "user-name")
_AROUND = re.compile(r"\s*([,=])\s*")


def given_hosts(hosts: str, hostfile: Path | str | None) -> tuple[LaunchHost, ...]:
    """The hosts of --hosts or --hostfile; none without these options."""
    if hosts and hostfile:
        raise UsageError("--hosts and --hostfile both name the hosts", "leave out one of them")
    if hostfile:
        return read_hostfile(str(hostfile))
    return parse_hosts(hosts) if hosts else ()


def read_hostfile(path: str) -> tuple[LaunchHost, ...]:
    """The hosts of a hostfile. Raises UsageError if it cannot be read or parsed."""
    try:
        text = read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise UsageError(
            f"--hostfile {path}: {reason}", "give a file with lines like: h1 slots=8"
        ) from error
    return parse_hostfile(text, f"--hostfile {path}")


def parse_hostfile(text: str, source: str) -> tuple[LaunchHost, ...]:
    """The hosts in the text of a hostfile, in order of their first lines.

    The slots of repeated hosts are added up, as Open MPI does. UsageError names the line after
    `source`.
    """
    hosts: dict[str, LaunchHost] = {}
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        entry = line.partition("#")[0].strip()
        if not entry:
            continue
        for host in _line(entry, f"{source}, line {number}"):
            before = hosts.get(without_user(host.name))
            if before:
                host = LaunchHost(before.name, (before.slots or 1) + (host.slots or 1))
            hosts[without_user(host.name)] = host
    if not hosts:
        raise UsageError(f"{source}: no host in it", HINT)
    return tuple(hosts.values())


def _line(entry: str, where: str) -> list[LaunchHost]:
    """The hosts of one line: names between commas, then settings such as `slots=8`."""
    names, *settings = _AROUND.sub(r"\1", entry).split()
    # A word without `=` is an attribute in PDSH's genders, and a number in other files.
    if "=" in names or not all("=" in setting for setting in settings):
        raise UsageError(f"{where}: '{entry}' is not a host with its slots", HINT)
    hosts: list[LaunchHost] = []
    for name in split_words(names, where):
        hosts += parse_entry(name, where)
    for setting in settings:
        hosts = [_with(host, setting, where) for host in hosts]
    return hosts


def _with(host: LaunchHost, setting: str, where: str) -> LaunchHost:
    """The host with a setting of its line."""
    key, _, value = setting.partition("=")
    if key in _SLOTS:
        return LaunchHost(host.name, parse_slots(value, where, host.name))
    if key in _USER:
        return with_user(host, value, where)
    if key in _MOST_SLOTS:
        return host
    raise UsageError(
        f"{where}: {setting} is not a setting that busbw reads",
        "leave it out: slots=8, max_slots=8 and user=NAME are read",
    )
