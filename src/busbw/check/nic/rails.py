"""Which ports should be active: those that ports like them are, and those that were."""

from collections.abc import Sequence

from busbw.check.machine import Machine, Port
from busbw.check.nic.links import gbits, kinds

_SINCE_START = ("counters/link_downed",)


def should_be_active(machine: Machine, port: Port, ports: Sequence[Port]) -> str:
    """Why a port that is down is missed; '' if it may be unused.

    A port of the fastest model is missed if a port at the same place of another card of this model is active: of cards with two ports
    often only the first has a cable. Any port is missed that had a link since the start.
    """
    active = [one for one in ports if one.active]
    fastest = max((gbits(machine, one) for one in active), default=0.0)
    group = next((group for group in kinds(machine, ports).values() if port in group), [port])
    alike = [one for one in group if one.active and _place(one) == _place(port)]
    if alike and any(one.active and gbits(machine, one) == fastest for one in group):
        return f"{len(alike)} ports of the same model are active" if len(alike) > 1 else f"{alike[0].name} of the same model is active"
    return "it had a link since the start" if _had_link(machine, port) else ""


def _place(port: Port) -> tuple[str, str]:
    """Function of the card and number of the port."""
    return port.bdf.rpartition(".")[2], port.number


def _had_link(machine: Machine, port: Port) -> bool:
    paths = [f"{port.path}/{name}" for name in _SINCE_START]
    paths += [f"/sys/class/net/{port.netdev}/carrier_up_count"] if port.netdev else []
    texts = (machine.text(path) or "" for path in paths)
    return any(text.isdecimal() and int(text) > 0 for text in texts)
