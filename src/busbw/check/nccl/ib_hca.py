"""Which RDMA ports NCCL_IB_HCA selects."""

import re
from collections.abc import Iterator

from busbw.check.base import Check, not_offered, passed, warned
from busbw.check.machine import Machine
from busbw.check.nccl.selection import Selection, parse
from busbw.check.nccl.settings import READS, Setting, each
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer

VARIABLE = "NCCL_IB_HCA"
SLOW = 0.5  # of the fastest port: a port at or below this is for management or storage
GBIT = 1e9 / 8
NUMBERED = re.compile(r"_\d+$")  # a whole name, like mlx5_1

ROW = CheckRow(
    id="BW166",
    name="nccl-ib-hca",
    layer=Layer.NCCL,
    title=f"ports that {VARIABLE} selects",
    right="not set, or exact names of the ports near the GPUs",
    why="Without = each entry is a prefix: mlx5_1 also selects mlx5_10 to mlx5_19, and mlx5 the ports for storage and management. NCCL "
    "ignores a name that no port has. It uses sockets if no port is left.",
    fix=f"export {VARIABLE}==mlx5_0,mlx5_1",
    stays="set it in the job script or /etc/nccl.conf",
    reads=(*READS, "/sys/class/infiniband/*"),
    sources=("NCCL user guide, NCCL_IB_HCA",),
)


def look(machine: Machine) -> Iterator[Found]:
    """The variable, compared with the ports of this host."""
    yield from each(machine, (VARIABLE,), _judge)


def _judge(machine: Machine, setting: Setting) -> Found:
    selection = parse(setting.value)
    devices = tuple(dict.fromkeys(port.device for port in machine.ports))
    evidence = [setting.evidence(), Evidence("/sys/class/infiniband", ", ".join(devices) or "no device")]
    if not devices:
        if not selection.exact and not selection.excluded:
            return warned(
                "", f"{setting.text}: {_prefixes(selection)}", setting.evidence("= before exact names"), fix=_named(setting, selection)
            )
        return not_offered("", f"{setting.text}: no RDMA device is visible here", *evidence)
    return _fault(machine, setting, selection, devices, evidence) or passed(
        "", f"{setting.text} selects {', '.join(selection.chosen(devices))}", *evidence
    )


def _prefixes(selection: Selection) -> str:
    """What prefixes select on an unknown machine."""
    wide = "selects every port of the driver, including storage and management"
    return "; ".join(
        f"{token} also selects {token}0 to {token}9" if NUMBERED.search(token) else f"{token} {wide}" for token in selection.tokens
    )


def _named(setting: Setting, selection: Selection) -> str:
    if all(NUMBERED.search(token) for token in selection.tokens):
        return setting.to(selection.spelled())
    return f"{setting.to('=mlx5_0,mlx5_1')},... with the ports near the GPUs"


def _fault(machine: Machine, setting: Setting, selection: Selection, devices: tuple[str, ...], evidence: list[Evidence]) -> Found | None:
    chosen = selection.chosen(devices)
    if not chosen:
        message = f"{setting.text} selects none of the RDMA devices: NCCL uses sockets"
        return warned("", message, *evidence, fix=setting.unset)
    missing = selection.unmatched(devices)
    if missing:
        message = f"{setting.text}: this host has no {', '.join(missing)}"
        return warned("", message, *evidence, fix=_exact(setting, selection, chosen))
    wide = selection.too_wide(devices)
    if wide:
        also = "; ".join(f"{token} also selects {', '.join(more)}" for token, more in wide.items())
        return warned("", f"{setting.text}: {also}", *evidence, fix=setting.to(selection.spelled()))
    rates = {nic.name.partition(":")[0]: nic.rate for nic in machine.host.nics if nic.rate and nic.name.partition(":")[0] in chosen}
    slow = [name for name, rate in rates.items() if rate <= SLOW * max(rates.values())]
    if slow:
        named = ", ".join(f"{name} with {rates[name] / GBIT:g} Gbit/s" for name in slow)
        message = f"{setting.text} selects {named}; the fastest has {max(rates.values()) / GBIT:g} Gbit/s"
        keep = tuple(name for name in chosen if name not in slow)
        return warned("", message, *evidence, fix=setting.to(f"={','.join(keep)}"))
    return None


def _exact(setting: Setting, selection: Selection, chosen: tuple[str, ...]) -> str:
    return setting.unset if selection.excluded else setting.to(f"={','.join(chosen)}")


CHECK = Check(ROW, look)
