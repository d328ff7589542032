"""Kernel settings that should be 0."""

from collections.abc import Iterator

from busbw.check.base import judged, unread
from busbw.check.machine import Machine
from busbw.check.types import Evidence, Found
from busbw.host.interfaces import number

STAYS = "lost at the next reboot; write it to a file in /etc/sysctl.d"


def off(machine: Machine, path: str, what: str, fix: str) -> Iterator[Found]:
    """Pass if the file at `path` contains 0; `what` begins the message."""
    reading = machine.read(path)
    value = number(reading.text)
    if value is None:
        yield unread("", reading, what)
        return
    evidence = Evidence(path, str(value), "0")
    yield judged(right=value == 0, subject="", good=f"{what} is off", bad=f"{what} is on", evidence=(evidence,), fix=fix)
