"""The counters of one RDMA port in sysfs, to be read often: one system call for each."""

import time
from contextlib import ExitStack

from busbw.core.link_samples import Group
from busbw.core.watch_counters import ON_PORT
from busbw.host.counters import follow
from busbw.host.interfaces import number
from busbw.host.source import Source

HARDWARE = "hw_counters"
STATES = ("state", "phys_state")  # `4: ACTIVE`


class PortFiles:
    """The files of the port at `base`.

    `lost` is set once none of them can be read: the device is gone, or another took its name.
    """

    def __init__(self, source: Source, base: str, identity: int) -> None:
        self._opened, self._identity, self.lost = ExitStack(), identity, False
        self._base, self._source = base, source
        files = [
            (
                row.name,
                row.source.partition("/")[0],
                follow(source, f"{base}/{row.source}", self._opened),
            )
            for row in ON_PORT
        ]
        read = [
            (name, folder, file)
            for name, folder, file in files
            if file is not None and _integer(file()) is not None
        ]
        self._port = [(name, file) for name, folder, file in read if folder != HARDWARE]
        self._hardware = [(name, file) for name, folder, file in read if folder == HARDWARE]
        self._states = [
            (name, file)
            for name in STATES
            if (file := follow(source, f"{base}/{name}", self._opened))
        ]
        # The kernel reads hardware counters anew after so many milliseconds, and repeats them until
        # then.
        self._lifespan_s = (number(source.read(f"{base}/{HARDWARE}/lifespan").text) or 0) / 1000
        self._last: Group | None = None

    def read(self) -> dict[str, Group]:
        """By source.

        Hardware counters that the kernel would repeat are not read: their group is that of the last
        reading.
        """
        now = time.monotonic()
        values = {
            name: value for name, file in self._port if (value := _integer(file())) is not None
        }
        for name, file in self._states:
            value = _integer((file() or b"").partition(b":")[0])
            if value is not None:
                values[name] = value
        groups = {"counters": Group(now, self._identity, values)} if values else {}
        if self._hardware and (self._last is None or now - self._last.at_s >= self._lifespan_s):
            read = {
                name: value
                for name, file in self._hardware
                if (value := _integer(file())) is not None
            }
            self._last = Group(time.monotonic(), self._identity, read) if read else None
        if self._last is not None:
            groups[HARDWARE] = self._last
        self.lost = not groups and bool(self._port or self._hardware or self._states)
        return groups

    def reason(self, name: str) -> str:
        """Why counters are missing; '' if none are."""
        missing = [
            folder
            for folder, files in (("counters", self._port), (HARDWARE, self._hardware))
            if not files
        ]
        if not missing:
            return ""
        folder = missing[0]
        names = self._source.names(f"{self._base}/{folder}")
        if not names:
            return f"{name}: its driver has no {folder}"
        said = self._source.read(f"{self._base}/{folder}/{names[0]}")
        return (
            f"{name}: no {folder}:"
            f" {said.reason or f'{self._base}/{folder} has none that busbw knows'}"
        )

    def close(self) -> None:
        """Close all files."""
        self._opened.close()


def _integer(data: bytes | None) -> int | None:
    try:
        return int(data) if data else None
    except ValueError:
        return None
