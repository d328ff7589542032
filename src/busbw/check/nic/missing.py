"""Network cards of NVIDIA that this machine had or should have, and that PCI no longer shows."""

import re
from collections.abc import Iterator

from busbw.check.base import Check, failed, not_offered, passed, skipped, warned
from busbw.check.gpu.each import WITHOUT_PCI
from busbw.check.machine import Machine
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.kernel_rule import KMSG
from busbw.core.sizes import counted
from busbw.host.dmesg import Line, PastLog, read_past
from busbw.host.gpu_devices import switches_on_pci
from busbw.host.nic import RDMA
from busbw.host.pci import DEVICES, MELLANOX, read_devices
from busbw.host.seen_on_pci import cards_seen

MODULE, MODULES = "mlx5_ib", "/proc/modules"
_NAME = re.compile(r"mlx5_(\d+)")

ROW = CheckRow(
    id="BW086",
    name="nic-missing",
    layer=Layer.NIC,
    title="network cards of NVIDIA that PCI no longer shows",
    right="PCI shows every card that the kernel found since boot, and the RDMA devices mlx5_0, mlx5_1 and so on have no gap",
    why="A card that falls off the bus is removed with its RDMA device. NCCL then uses the others, or TCP, and no check of a port sees it.",
    fix="dmesg | grep {bdf}; drain the host and power it off and on; if the card is still missing, check its seat and power, or replace it",
    stays="a reboot brings the card back only if the fault was transient",
    reads=(f"{DEVICES}/*/{{vendor,class}}", "/dev/kmsg", f"{RDMA}/*", MODULES),
    sources=("Linux drivers/pci/probe.c", "Linux drivers/infiniband/core/device.c, alloc_name", "NVSentinel, NIC health monitor"),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each card that the kernel log names, or one finding for the machine."""
    names = machine.names(DEVICES)
    if not names:
        yield not_offered("", WITHOUT_PCI)
        return
    log = read_past(machine)
    seen = cards_seen(log)
    gone = {bdf: line for bdf, line in seen.items() if bdf not in names and not _of_cloud(machine, line)}
    for bdf, line in gone.items():
        evidence = Evidence(KMSG, line.text, "still on PCI")
        yield failed(bdf, "the kernel found this network card, and PCI no longer shows it", evidence, fix=filled(ROW.fix, bdf=bdf))
    if not gone:
        yield _all(machine, log, logged=bool(seen))


def _of_cloud(machine: Machine, line: Line) -> bool:
    """Whether a cloud may have taken it from a virtual machine, as Azure does with its Ethernet functions while it services a host."""
    return bool(machine.hypervisor) and "class 0x0207" not in line.text


def _all(machine: Machine, log: PastLog, *, logged: bool) -> Found:
    cards = [bdf for bdf, device in read_devices(machine).items() if device.vendor == MELLANOX and device.network]
    if not cards:
        return _no_card(machine)
    if gap := _gap(machine, cards):
        evidence = Evidence(RDMA, ", ".join(machine.names(RDMA)), gap)
        return warned("", f"there is no {gap}, while all cards on PCI have an RDMA device", evidence, fix=filled(ROW.fix, bdf=gap))
    if logged:
        return passed("", f"{counted(len(cards), 'function')} on PCI", Evidence(KMSG, "the cards that the kernel found are still there"))
    if _numbers(machine):
        return passed("", f"{counted(len(cards), 'function')} on PCI", Evidence(RDMA, ", ".join(machine.names(RDMA)), "no gap"))
    why = f"the kernel log cannot be read: {log.reason}" if log.reason else "the kernel log no longer has the start"
    return not_offered("", f"{counted(len(cards), 'function')} on PCI; how many there were is not known: {why}")


def _no_card(machine: Machine) -> Found:
    """Without any card: a driver that was loaded for one, though DOCA-OFED may load it without."""
    if MODULE not in machine.modules or machine.hypervisor or machine.container:
        return skipped("no network card of NVIDIA, and no sign of one")
    evidence = Evidence(MODULES, MODULE, "a network card of NVIDIA on PCI")
    report = failed if switches_on_pci(machine) else warned
    return report("", f"{MODULE} is loaded, and PCI shows no network card of NVIDIA", evidence, fix=filled(ROW.fix, bdf=MODULE))


def _numbers(machine: Machine) -> list[int]:
    """The numbers in the names of RDMA devices, if all are the kernel's own: a bond, a subfunction or an administrator changes them."""
    matches = [_NAME.fullmatch(name) for name in machine.names(RDMA)]
    return sorted(int(match[1]) for match in matches if match) if all(matches) else []


def _gap(machine: Machine, cards: list[str]) -> str:
    """The first name that is missing in mlx5_0, mlx5_1 and so on. The kernel gives the lowest free number, so a gap was a device.

    '' if a card has no RDMA device here: it is another one's, or nic-present judges it.
    """
    shown = {machine.target(f"{RDMA}/{name}/device") for name in machine.names(RDMA)}
    numbers = _numbers(machine)
    if machine.hypervisor or not numbers or shown != set(cards):
        return ""
    return next((f"mlx5_{number}" for number in range(numbers[-1]) if number not in numbers), "")


CHECK = Check(ROW, look)
