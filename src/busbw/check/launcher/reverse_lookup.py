"""How long the resolver takes to find the name of an address."""

import json
from collections.abc import Iterator

from busbw.check.base import Check, passed, unread, warned
from busbw.check.launcher.programs import reverse_lookups
from busbw.check.machine import Machine
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer

NAME = "/proc/sys/kernel/hostname"
SLOW_S = 1.0

ROW = CheckRow(
    id="BW210",
    name="reverse-lookup",
    layer=Layer.LAUNCHER,
    title="time to find the name of this host's address",
    right=f"at most {SLOW_S:g} s",
    why="PyTorch's store (TCPStore) looks up the name of each client that connects, and serves no other client meanwhile. A name server "
    "that does not answer costs 5 s for each: ranks start late, and new process groups stall.",
    fix="register the addresses of the hosts in reverse DNS, or set RES_OPTIONS='timeout:1 attempts:1' for the rank that has the store",
    stays="permanent with DNS; the variable until the job ends",
    reads=("getent hosts ADDRESS",),
    sources=("getent(1)", "resolv.conf(5), RES_OPTIONS", "PyTorch's source, torch/csrc/distributed/c10d/socket.cpp"),
)


def look(machine: Machine) -> Iterator[Found]:
    """The slowest of some lookups."""
    name = machine.text(NAME)
    if not name:
        yield unread("", machine.read(NAME), "the host's name")
        return
    reading = machine.call("reverse-lookups", lambda: reverse_lookups(name))
    if reading.text is None:
        yield unread("", reading, "the time of a reverse lookup")
        return
    seconds: dict[str, float] = json.loads(reading.text)
    address = max(seconds, key=lambda one: seconds[one])
    evidence = Evidence(f"getent hosts {address}", f"{seconds[address]:.2f} s", f"at most {SLOW_S:g} s")
    if seconds[address] > SLOW_S:
        yield warned("", f"finding the name of {address} took {seconds[address]:.1f} s", evidence, fix=ROW.fix)
    else:
        yield passed("", f"reverse lookups take at most {seconds[address]:.2f} s", evidence)


CHECK = Check(ROW, look)
