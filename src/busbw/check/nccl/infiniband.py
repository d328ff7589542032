"""Variables that choose RDMA ports and addresses."""

import re
from difflib import get_close_matches

from busbw.check.base import not_offered, passed, skipped, warned
from busbw.check.machine import Machine
from busbw.check.nccl.settings import (
    REMOVE_VARIABLE,
    VARIABLE_SOURCES,
    NcclSetting,
    Selection,
    is_machine_known,
    parse_selection,
    variable,
    version,
)
from busbw.check.nic.links import driver, own_ports
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer
from busbw.core.sizes import parse_int
from busbw.host.nic import V2

GID_VARIABLE = "NCCL_IB_GID_INDEX"
GID_INDEX_SINCE = (2, 21)  # from this version on NCCL finds the index itself

GID_INDEX = CheckRow(
    id="BW165",
    name="nccl-gid-index",
    layer=Layer.NCCL,
    title=f"{GID_VARIABLE} in the environment",
    right="not set: NCCL 2.21 and newer find the RoCE v2 GID themselves",
    why=(
        "The order of GIDs differs between hosts, and changes after an interface was down. A "
        "fixed index may then point to a RoCE v1 GID or to none."
    ),
    fix=f"unset {GID_VARIABLE}",
    stays=REMOVE_VARIABLE,
    reads=(*VARIABLE_SOURCES, "/sys/class/infiniband/*/ports/*/gid_attrs/types/*"),
    sources=("NCCL user guide, NCCL_IB_GID_INDEX",),
)
HCA_VARIABLE = "NCCL_IB_HCA"
SLOW_PORT = 0.5  # of the fastest port: a port at or below this is for management or storage
GBIT = 1e9 / 8
# Names of drivers that end with a number, as otherwise only the name of a device does.
DRIVERS = re.compile(r"(mlx|cxgb|hfi)\d", re.ASCII)
MLX5, MLX4 = "mlx5", "mlx4"
# Devices that are all for the fabric: of clouds, and the kernel's names of InfiniBand alone.
FABRIC = ("efa", "erdma", "mana", "rdmap", "ib")
LIST_DEVICES = "ls /sys/class/infiniband on a compute node names the devices"
DISABLE_VARIABLE = "NCCL_IB_DISABLE"
EFA = "efa"  # NCCL uses it through a plugin, which the variable does not affect
CROSS_NIC_VARIABLE = "NCCL_CROSS_NIC"


@variable(GID_INDEX, GID_VARIABLE)
def check_gid_index(machine: Machine, setting: NcclSetting) -> Finding:
    if not machine.roce_ports and is_machine_known(machine):
        return skipped(f"{setting.text}, but there is no RoCE port")
    types = {f"{port.path}/gid_attrs/types/{setting.value}": port for port in machine.roce_ports}
    evidence = [
        setting.evidence("not set"),
        *(_gid_evidence(path, machine.text(path)) for path in types),
    ]
    old = version(machine) and version(machine) < GID_INDEX_SINCE
    if old and all(gid.seen == V2 for gid in evidence[1:]):
        return passed(
            "",
            f"{setting.text} is a RoCE v2 GID on all ports; NCCL before 2.21 needs it",
            *evidence,
        )
    fix = setting.unset
    if not version(machine) or old:
        fix = f"with NCCL 2.21 or newer: {fix}; an older one needs the index of a RoCE v2 GID"
    return warned("", f"{setting.text} fixes the GID index on all ports", *evidence, fix=fix)


def _gid_evidence(path: str, kind: str | None) -> Evidence:
    return Evidence(path, kind or "no such GID", "" if kind == V2 else V2)


IB_HCA = CheckRow(
    id="BW166",
    name="nccl-ib-hca",
    layer=Layer.NCCL,
    title=f"ports that {HCA_VARIABLE} selects",
    right="not set, or exact names of the ports near the GPUs",
    why=(
        "Without = each entry is a prefix: mlx5_1 also selects mlx5_10 to mlx5_19, and mlx5 the"
        " ports for storage and management. NCCL ignores a name that no port has. It uses sockets"
        " if no port is left."
    ),
    fix=f"export {HCA_VARIABLE}==NAME,NAME",
    stays="set it in the job script or /etc/nccl.conf",
    reads=(*VARIABLE_SOURCES, "/sys/class/infiniband/*"),
    sources=("NCCL user guide, NCCL_IB_HCA",),
)


@variable(IB_HCA, HCA_VARIABLE)
def check_ib_hca(machine: Machine, setting: NcclSetting) -> Finding:
    selection = parse_selection(setting.value)
    devices = tuple(dict.fromkeys(port.device for port in machine.ports))
    evidence = [
        setting.evidence(),
        Evidence("/sys/class/infiniband", ", ".join(devices) or "no device"),
    ]
    if not devices:
        right = _spelled_right(setting.value)
        if right != setting.value:
            message = f"{setting.text}: no driver gives its devices such names, but {MLX5}_0"
            return warned("", message, setting.evidence(right), fix=setting.change_to(right))
        prefixes = () if selection.exact or selection.excluded else _prefixes(selection)
        if prefixes:
            every = "selects" if len(prefixes) == 1 else "select"
            return warned(
                "",
                f"{setting.text}: {', '.join(prefixes)} {every} all devices whose names begin so,"
                " also those for storage and management",
                setting.evidence("= before exact names"),
                fix=f"{setting.change_to('=NAME,NAME')} with the ports near the GPUs;"
                f" {LIST_DEVICES}",
            )
        return not_offered("", f"{setting.text}: no RDMA device is visible here", *evidence)
    return _judge_selection(machine, setting, selection, devices, evidence) or passed(
        "", f"{setting.text} selects {', '.join(selection.chosen(devices))}", *evidence
    )


def _spelled_right(value: str) -> str:
    """The value with `mlx5` in place of misspelled names of the driver, as in m1x5_0."""

    def spelled(match: re.Match[str]) -> str:
        near = match[0] != MLX4 and get_close_matches(match[0], [MLX5], cutoff=0.75)
        return MLX5 if near else match[0]

    return re.sub(r"(?<![^\^=,])\w+?(?=_\d)", spelled, value, flags=re.ASCII)


def _prefixes(selection: Selection) -> tuple[str, ...]:
    """The tokens that name no single device: a driver's name, or one without a final number."""
    return tuple(
        token
        for token in selection.tokens
        if not token.startswith(FABRIC) and (not token[-1:].isdecimal() or DRIVERS.fullmatch(token))
    )


def _judge_selection(
    machine: Machine,
    setting: NcclSetting,
    selection: Selection,
    devices: tuple[str, ...],
    evidence: list[Evidence],
) -> Finding | None:
    chosen = selection.chosen(devices)
    if not chosen:
        message = f"{setting.text} selects none of the RDMA devices: NCCL uses sockets"
        return warned("", message, *evidence, fix=setting.unset)
    missing = selection.unmatched(devices)
    if missing:
        message = f"{setting.text}: this host has no {', '.join(missing)}"
        fix = setting.change_to(selection.restricted_to(chosen))
        return warned("", message, *evidence, fix=setting.unset if selection.excluded else fix)
    wide = selection.too_wide(devices)
    if wide:
        also = "; ".join(f"{token} also selects {', '.join(more)}" for token, more in wide.items())
        return warned(
            "", f"{setting.text}: {also}", *evidence, fix=setting.change_to(selection.spelled())
        )
    rates = {
        nic.name.partition(":")[0]: nic.rate
        for nic in machine.host.nics
        if nic.rate and nic.name.partition(":")[0] in chosen
    }
    slow = [name for name, rate in rates.items() if rate <= SLOW_PORT * max(rates.values())]
    if slow:
        named = ", ".join(f"{name} with {rates[name] / GBIT:g} Gbit/s" for name in slow)
        message = (
            f"{setting.text} selects {named}; the fastest has {max(rates.values()) / GBIT:g} Gbit/s"
        )
        keep = tuple(name for name in chosen if name not in slow)
        names = f"={','.join(keep)}" if selection.excluded else selection.restricted_to(keep)
        return warned("", message, *evidence, fix=setting.change_to(names))
    return None


IB_DISABLE = CheckRow(
    id="BW167",
    name="nccl-ib-disable",
    layer=Layer.NCCL,
    title=f"{DISABLE_VARIABLE} on a host with RDMA ports",
    right="not set, or 0, which is the default",
    why=(
        "NCCL falls back to TCP sockets. On two hosts with 8 GPUs each, a published all_reduce of 8"
        " GiB went from 480 to 9 GB/s."
    ),
    fix=f"unset {DISABLE_VARIABLE}",
    stays=REMOVE_VARIABLE,
    reads=(*VARIABLE_SOURCES, "/sys/class/infiniband/*/ports/*/state"),
    sources=("NCCL user guide, NCCL_IB_DISABLE",),
)


@variable(IB_DISABLE, DISABLE_VARIABLE)
def check_ib_disable(machine: Machine, setting: NcclSetting) -> Finding:
    if parse_int(setting.value) == 0:
        return passed("", f"{setting.text} is the default and has no effect", setting.evidence())
    active = [
        port.name for port in own_ports(machine) if port.active and driver(machine, port) != EFA
    ]
    if not active and is_machine_known(machine):
        return passed(
            "", f"{setting.text}, and NCCL itself uses no active RDMA port", setting.evidence()
        )
    evidence = [setting.evidence("not set")]
    if active:
        evidence.append(
            Evidence("/sys/class/infiniband/*/ports/*/state", f"active: {', '.join(active)}")
        )
    return warned(
        "", f"{setting.text}: NCCL uses sockets instead of RDMA", *evidence, fix=setting.unset
    )


CROSS_NIC = CheckRow(
    id="BW180",
    name="nccl-cross-nic",
    layer=Layer.NCCL,
    title=f"{CROSS_NIC_VARIABLE} in the environment",
    right="not set, or 2; 0 on a rail-optimized network",
    why=(
        "1 lets rings and trees change rails. If each rail has its own switch, that traffic "
        "crosses the spine and collides. 1 suits a network in which all NICs of a host are on one "
        "switch."
    ),
    fix=f"unset {CROSS_NIC_VARIABLE}",
    stays=REMOVE_VARIABLE,
    reads=(*VARIABLE_SOURCES, "/sys/class/infiniband"),
    sources=("NCCL user guide, NCCL_CROSS_NIC",),
)


@variable(CROSS_NIC, CROSS_NIC_VARIABLE)
def check_cross_nic(machine: Machine, setting: NcclSetting) -> Finding:
    if setting.value not in ("0", "1", "2"):
        return warned(
            "",
            f"{setting.text} is not a value that NCCL knows",
            setting.evidence("0, 1 or 2"),
            fix=setting.unset,
        )
    ports = Evidence("/sys/class/infiniband", ", ".join(port.name for port in machine.ports))
    if setting.value != "1":
        return passed(
            "",
            f"{setting.text} {'is the default' if setting.value == '2' else 'stays on one rail'}",
            setting.evidence(),
        )
    if len(machine.ports) == 1:
        return passed("", f"{setting.text} has no effect with one NIC", setting.evidence(), ports)
    return warned(
        "",
        f"{setting.text} lets rings cross the rails",
        setting.evidence("not set, 0 or 2"),
        ports,
        fix=setting.unset,
    )
