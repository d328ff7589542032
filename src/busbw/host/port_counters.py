"""Counters of network ports and of TCP.

Files stay open, so that a reading costs one system call per file. `link_counters` joins them with
those of GPUs into samples of all links.
"""

import os
from collections.abc import Callable
from contextlib import ExitStack

from busbw.core.counters import Owner, counters_of
from busbw.core.telemetry import TCP
from busbw.host.interfaces import NET, NOT_A_PORT, number
from busbw.host.nic import RDMA
from busbw.host.source import LiveMachine, Source

Follow = Callable[[], bytes | None]
_CHUNK_BYTES = 1 << 16
# The kernel returns long files of /proc page by page; a shorter read is complete.
_HALF_A_PAGE = 2048
# Columns of /proc/net/dev after the name (net/core/net-procfs.c).
_DEV = {
    "rx_bytes": 0,
    "rx_errors": 2,
    "rx_dropped": 3,
    "rx_fifo_errors": 4,
    "tx_bytes": 8,
    "tx_errors": 10,
    "tx_dropped": 11,
}
_DEV_COLUMNS = 16


def follow(source: Source, path: str, opened: ExitStack) -> Follow | None:
    """A function that reads the file's current content, or gives None if that fails.

    None instead of the function if the file cannot be read now. On a live machine the descriptor
    stays open until `opened` closes.
    """
    if not isinstance(source, LiveMachine):
        if source.read(path).data is None:
            return None
        return lambda: source.read(path).data
    try:
        descriptor = os.open(source.at(path), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    opened.callback(os.close, descriptor)

    def read() -> bytes | None:
        try:
            return _read_all(descriptor)
        except OSError:
            return None

    return read if read() is not None else None


def _read_all(descriptor: int) -> bytes:
    data = os.pread(descriptor, _CHUNK_BYTES, 0)
    if len(data) < _HALF_A_PAGE:
        return data
    while part := os.pread(descriptor, _CHUNK_BYTES, len(data)):
        data += part
    return data


class PortCounters:
    """The counters of one host's network ports: RDMA ports and interfaces, by name as in Nic."""

    def __init__(self, source: Source, opened: ExitStack) -> None:
        self._dev = follow(source, "/proc/net/dev", opened)
        names = device_counters(self._dev() or b"").keys() if self._dev else set()
        self._files = [(name, _rdma(source, base, opened)) for name, base in _rdma_ports(source)]
        # /sys shows the namespace that mounted it, /proc/net always that of this process.
        if set(source.names(NET)) - {NOT_A_PORT[1]} == names:
            self._files += [
                (name, _carrier(source, name, opened))
                for name in sorted(names)
                if name not in NOT_A_PORT
            ]

    def read(self) -> dict[str, dict[str, int]]:
        """The readable counters, by port."""
        interfaces = device_counters(self._dev() or b"") if self._dev else {}
        counters = {name: values for name, values in interfaces.items() if name not in NOT_A_PORT}
        for name, files in self._files:
            for key, read in files:
                value = _integer(read())
                if value is not None:
                    counters.setdefault(name, {})[key] = value
        return counters


def _rdma_ports(source: Source) -> list[tuple[str, str]]:
    """The name of each RDMA port, as in Nic, and its directory.

    The name has a port number only if the device has several ports.
    """
    ports = []
    for device in source.names(RDMA):
        numbers = source.names(f"{RDMA}/{device}/ports")
        ports += [
            (f"{device}:{port}" if len(numbers) > 1 else device, f"{RDMA}/{device}/ports/{port}")
            for port in numbers
        ]
    return ports


def _rdma(source: Source, base: str, opened: ExitStack) -> list[tuple[str, Follow]]:
    """The counters of the RDMA port at `base` that its driver has."""
    files = (
        (counter.name, follow(source, f"{base}/{counter.read_from}", opened))
        for counter in counters_of(Owner.RDMA)
    )
    return [(key, file) for key, file in files if file is not None]


def _carrier(source: Source, name: str, opened: ExitStack) -> list[tuple[str, Follow]]:
    file = follow(source, f"{NET}/{name}/carrier_down_count", opened)
    return [] if file is None else [("carrier_down_count", file)]


def _integer(data: bytes | None) -> int | None:
    return None if data is None else number(data.decode("ascii", "replace").strip())


def device_counters(text: bytes) -> dict[str, dict[str, int]]:
    """Counters of every interface in the text of /proc/net/dev. Other lines are ignored."""
    counters = {}
    for line in text.decode("utf-8", "replace").splitlines():
        name, colon, values = line.partition(":")
        columns = values.split()
        if colon and len(columns) == _DEV_COLUMNS and all(column.isdecimal() for column in columns):
            counters[name.strip()] = {key: int(columns[column]) for key, column in _DEV.items()}
    return counters


class Tcp:
    """TCP's counters of this process's network namespace; `reason` says why some cannot be read."""

    def __init__(self, source: Source, opened: ExitStack) -> None:
        files = dict.fromkeys(counter.read_from for counter in counters_of(Owner.TCP))
        followed = [follow(source, path, opened) for path in files]
        self._files = [file for file in followed if file is not None]
        self.reason = ""
        if len(self._files) < len(files):
            self.reason = f"{TCP}: {' or '.join(files)} cannot be read"

    def read(self) -> dict[str, int]:
        """The counters of the table that this kernel has."""
        values: dict[str, int] = {}
        for file in self._files:
            values |= snmp(file() or b"")
        return {
            counter.name: values[counter.name]
            for counter in counters_of(Owner.TCP)
            if counter.name in values
        }


def snmp(text: bytes) -> dict[str, int]:
    """TCP's values by name from the text of /proc/net/snmp or netstat.

    Each group has a line of names and then a line of values, both `Group: ...`.
    """
    counters: dict[str, int] = {}
    lines = text.decode("ascii", "replace").splitlines()
    for name_line, value_line in zip(lines[::2], lines[1::2], strict=False):
        group, *names = name_line.split()
        value_group, *values = value_line.split() or [""]
        if group not in ("Tcp:", "TcpExt:") or value_group != group or len(values) != len(names):
            continue
        for name, value in zip(names, values, strict=True):
            if value.lstrip("-").isdecimal():
                counters[name] = int(value)
    return counters
