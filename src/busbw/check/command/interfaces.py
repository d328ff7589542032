"""Interfaces set for only a part of Open MPI."""

from collections.abc import Iterator, Sequence

from busbw.check.base import failed, passed, skipped, warned
from busbw.check.command.base import STAYS, Rule
from busbw.check.command.line import Line, unset
from busbw.check.launcher import parameters
from busbw.check.launcher.parameters import Parameter
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer

SUBNET = "10.1.0.0/16"
PARTS = (parameters.TCP, parameters.OOB, parameters.PRTE, parameters.PMIX)

ROW = CheckRow(
    id="BW224",
    name="line-interfaces",
    layer=Layer.LAUNCHER,
    title="interfaces of MPI and of its daemons",
    right="both set, to one network that connects the hosts; either an include or an exclude list",
    why="btl_tcp_if_include is only for MPI's own traffic. The daemons choose for themselves, perhaps docker0 or an interface behind a "
    "firewall, and mpirun hangs without output. With an exclude list without lo, ranks connect to themselves, and MPI over TCP hangs. "
    "Two interfaces for the daemons of Open MPI 5 crash mpirun in most runs (5.0.8, 5.0.11; openpmix/prrte#2553).",
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
    seen = [Evidence(one.where, one.value) for one in every if one.name.startswith(PARTS)]
    found = list(_faults(line, every, seen))
    yield from found
    if not seen:
        yield skipped("the line sets no interface of MPI")
    elif not found:
        yield passed("", "interfaces are set for MPI and its daemons", *seen)


def _faults(line: Line, every: Sequence[Parameter], seen: Sequence[Evidence]) -> Iterator[Found]:
    if both := parameters.contradiction(every):
        message = f"{both[0].where} and {both[1].where} exclude each other"
        yield failed("", message, *seen, fix=filled(f"leave out {both[1].where} {{value}}", value=both[1].value))
    if absent := next((one for one in line.parameters if _absent(line, one)), None):
        message = f"{absent.where} {absent.value}: this host has no such interface"
        have = Evidence("/sys/class/net", ", ".join(sorted(line.interfaces)))
        fix = f"{absent.where} NAME, or a network such as {SUBNET} where names differ between hosts"
        yield failed("", message, *seen, have, fix=fix)
    looped = parameters.without_loopback(every)
    if looped and not unset(looped.value):
        message = f"{looped.where} {looped.value} has no loopback interface: MPI over TCP between hosts hangs"
        yield (failed if line.several else warned)("", message, *seen, fix=filled(f"{looped.where} {{value}}", value=f"{looped.value},lo"))
    if crash := parameters.crashing(every, line.major):
        message = f"{crash.where} {crash.value}: mpirun of Open MPI 5 crashes with more than one interface for its daemons"
        fix = f"{crash.where.replace('exclude', 'include')} {SUBNET}, the subnet that connects the hosts"
        yield failed("", message, *seen, fix=fix)
    half = parameters.unset_half(every, line.major)
    if half and line.nodes != 1:
        message = f"{half.where} {half.value} is only for MPI's traffic: the daemons choose their own interface"
        yield warned("", message, *seen, fix=_both_set(half, line.major))


def _absent(line: Line, parameter: Parameter) -> bool:
    names = [name for name in parameter.value.split(",") if "/" not in name and not unset(name)]
    # mpirun itself always runs here.
    parts = PARTS if line.ranks_here else (parameters.OOB, parameters.PRTE)
    listed = parameter.name.startswith(parts) and parameter.name.endswith("_include")
    return listed and bool(line.interfaces) and any(name not in line.interfaces for name in names)


def _both_set(half: Parameter, major: int) -> str:
    four, five = (parameters.options(parameters.for_daemons(half, version)) for version in (4, 5))
    subnet = f", with the subnet that connects the hosts, like {SUBNET}" if "SUBNET" in five and major != 4 else ""
    return f"add {five if major >= parameters.FIVE else four if major else f'{four} (Open MPI 4) or {five} (Open MPI 5)'}{subnet}"


CHECK = Rule(ROW, look)
