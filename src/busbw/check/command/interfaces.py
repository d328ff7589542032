"""Interfaces that the line sets for a part of Open MPI."""

from collections.abc import Iterator

from busbw.check.base import failed, passed, skipped, warned
from busbw.check.command.base import STAYS, Rule
from busbw.check.command.line import Line
from busbw.check.launcher import parameters
from busbw.check.launcher.parameters import Parameter
from busbw.core.checking import CheckRow, Evidence, Found, Layer

ROW = CheckRow(
    id="BW224",
    name="line-interfaces",
    layer=Layer.LAUNCHER,
    title="interfaces of MPI and of its daemons",
    right="both set, to the same; a list to include or one to exclude",
    why="btl_tcp_if_include is for MPI's own traffic alone. The daemons choose for themselves, perhaps docker0 or an interface behind a "
    "firewall, and mpirun hangs without output. Open MPI 4 and 5 have different names for "
    "it. A list to exclude without lo keeps MPI from sending over TCP.",
    fix="--mca oob_tcp_if_include {netdev}",
    stays=STAYS,
    reads=("the command line", "environment", "/sys/class/net"),
    sources=("Open MPI documentation, TCP, and general run-time support notes", "PRRTE, prte_if_include"),
)


def look(line: Line) -> Iterator[Found]:
    """The line's parameters, and those of the environment."""
    if line.launcher != "mpirun":
        yield skipped("not a line of mpirun")
        return
    every = (*line.parameters, *parameters.of_environment(line.environment or {}))
    seen = [Evidence(one.where, one.value) for one in every if "_if_" in one.name]
    both, half = parameters.contradiction(every), parameters.unset_half(every, line.major)
    looped = parameters.without_loopback(every)
    absent = next((one for one in line.parameters if one.name.endswith("_if_include") and _absent(line, one)), None)
    if both:
        message = f"{both[0].where} and {both[1].where} exclude each other"
        yield failed("", message, *seen, fix=f"leave out {both[1].where} {both[1].value}")
    if absent:
        message = f"{absent.where} {absent.value}: this host has no such interface"
        have = Evidence("/sys/class/net", ", ".join(sorted(line.interfaces)))
        yield failed(
            "", message, *seen, have, fix=f"{absent.where} NAME, or a network such as 10.1.0.0/16 where names differ between hosts"
        )
    if looped:
        message = f"{looped.where} {looped.value} has no loopback interface: MPI cannot send over TCP"
        yield failed("", message, *seen, fix=f"{looped.where} {looped.value},lo")
    if half:
        message = f"{half[0].where} {half[0].value} leaves the interface of the daemons to chance"
        yield warned("", message, *seen, fix=f"add {half[1]}")
    if not seen:
        yield skipped("the line sets no interface of MPI")
    elif not (both or absent or looped or half):
        yield passed("", "interfaces are set for MPI and its daemons", *seen)


def _absent(line: Line, parameter: Parameter) -> bool:
    names = [name for name in parameter.value.split(",") if "/" not in name]
    return bool(line.interfaces) and any(name not in line.interfaces for name in names)


CHECK = Rule(ROW, look)
