"""Counters of network ports and of TCP, read again and again: files stay open, so that one reading is a system call a file."""

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from busbw.core.counters import Owner, at
from busbw.core.vitals import TCP
from busbw.host.interfaces import NET, NOT_A_PORT, number
from busbw.host.nic import RDMA
from busbw.host.source import Live, Source

Follow = Callable[[], bytes | None]
_CHUNK_BYTES = 1 << 16
_HALF_A_PAGE = 2048  # the kernel hands out long files of /proc page by page; what is shorter than this is whole
# Columns of /proc/net/dev behind the name (net/core/net-procfs.c).
_DEV = {"rx_bytes": 0, "rx_errors": 2, "rx_dropped": 3, "rx_fifo_errors": 4, "tx_bytes": 8, "tx_errors": 10, "tx_dropped": 11}
_DEV_COLUMNS = 16


def follow(source: Source, path: str, opened: ExitStack) -> Follow | None:
    """A function that reads the file as it is by then (None once it fails); None where it cannot be read at all.

    On a live machine one descriptor stays open until `opened` closes.
    """
    if not isinstance(source, Live):
        return (lambda: source.read(path).data) if source.read(path).data is not None else None
    try:
        descriptor = os.open(source.root / path.lstrip("/"), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    opened.callback(os.close, descriptor)

    def read() -> bytes | None:
        try:
            return _whole(descriptor)
        except OSError:
            return None

    return read if read() is not None else None


def _whole(descriptor: int) -> bytes:
    data = os.pread(descriptor, _CHUNK_BYTES, 0)
    if len(data) < _HALF_A_PAGE:
        return data
    while part := os.pread(descriptor, _CHUNK_BYTES, len(data)):
        data += part
    return data


class Ports:
    """The counters of one host's ports, all of them where `names` is empty: RDMA devices ("mlx5_0", "mlx5_0:2") and interfaces.

    `missing` names what was asked for and is not there.
    """

    def __init__(self, source: Source, names: Sequence[str], opened: ExitStack) -> None:
        devices = source.names(RDMA)
        self._dev = follow(source, "/proc/net/dev", opened)
        there = device_counters(self._dev() or b"") if self._dev else {}
        asked = names or [*_ports(source, devices), *(name for name in there if name not in NOT_A_PORT)]
        rdma = [name for name in asked if name.partition(":")[0] in devices]
        self._interfaces = {name for name in asked if name in there}
        self.missing = [f"{name}: no such port" for name in asked if name not in rdma and name not in there]
        self._files = [(name, _rdma(source, name, opened)) for name in rdma]
        # /sys shows the namespace that mounted it, which need not be the one of this process; /proc/net is always its own.
        if set(source.names(NET)) - {NOT_A_PORT[1]} == there.keys():
            self._files += [(name, _carrier(source, name, opened)) for name in sorted(self._interfaces)]

    def read(self) -> dict[str, dict[str, int]]:
        """Every counter that can be read, by port."""
        found: dict[str, dict[str, int]] = {}
        if self._dev is not None:
            found = {name: one for name, one in device_counters(self._dev() or b"").items() if name in self._interfaces}
        for name, files in self._files:
            values = {key: value for key, ask in files if (value := _integer(ask())) is not None}
            if values:
                found.setdefault(name, {}).update(values)
        return found


def _ports(source: Source, devices: Sequence[str]) -> list[str]:
    """Names of all RDMA ports as Nic has them: with the port's number only where a device has several."""
    found = []
    for device in devices:
        numbers = source.names(f"{RDMA}/{device}/ports")
        found += [f"{device}:{port}" for port in numbers] if len(numbers) > 1 else [device]
    return found


def _rdma(source: Source, name: str, opened: ExitStack) -> list[tuple[str, Follow]]:
    """Files of a port such as "mlx5_0", or "mlx5_0:2"; those that the driver lacks are left out."""
    device, _, port = name.partition(":")
    base = f"{RDMA}/{device}/ports/{port or '1'}"
    files = ((counter.name, follow(source, f"{base}/{counter.source}", opened)) for counter in at(Owner.RDMA))
    return [(key, file) for key, file in files if file is not None]


def _carrier(source: Source, name: str, opened: ExitStack) -> list[tuple[str, Follow]]:
    file = follow(source, f"{NET}/{name}/carrier_down_count", opened)
    return [] if file is None else [("carrier_down_count", file)]


def _integer(data: bytes | None) -> int | None:
    return None if data is None else number(data.decode("ascii", "replace").strip())


def device_counters(text: bytes) -> dict[str, dict[str, int]]:
    """Counters of every interface in the text of /proc/net/dev; what is no such line is left out."""
    found = {}
    for line in text.decode("utf-8", "replace").splitlines():
        name, colon, rest = line.partition(":")
        columns = rest.split()
        if colon and len(columns) == _DEV_COLUMNS and all(column.isdigit() for column in columns):
            found[name.strip()] = {key: int(columns[place]) for key, place in _DEV.items()}
    return found


class Tcp:
    """TCP's counters of this process' network namespace."""

    def __init__(self, source: Source, opened: ExitStack) -> None:
        files = dict.fromkeys(counter.source for counter in at(Owner.TCP))
        self._files = [file for path in files if (file := follow(source, path, opened)) is not None]
        self.missing = [] if len(self._files) == len(files) else [f"{TCP}: {' or '.join(files)} cannot be read"]

    def read(self) -> dict[str, int]:
        """The counters of the table that this kernel has."""
        said: dict[str, int] = {}
        for file in self._files:
            said |= snmp(file() or b"")
        return {counter.name: said[counter.name] for counter in at(Owner.TCP) if counter.name in said}


def snmp(text: bytes) -> dict[str, int]:
    """TCP's values by name from the text of /proc/net/snmp or netstat: pairs of lines, names above values, each `Group: ...`."""
    found: dict[str, int] = {}
    lines = text.decode("ascii", "replace").splitlines()
    for names, values in zip(lines[::2], lines[1::2], strict=False):
        group, *titles = names.split()
        figures = values.split()
        if group in ("Tcp:", "TcpExt:") and figures[:1] == [group] and len(figures) == len(titles) + 1:
            found.update({title: int(figure) for title, figure in zip(titles, figures[1:], strict=True) if figure.lstrip("-").isdigit()})
    return found
