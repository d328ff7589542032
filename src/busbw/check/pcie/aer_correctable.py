"""The rate of correctable errors of PCIe."""

from collections.abc import Iterator

from busbw.check.base import Check, passed, skipped, unknown, unread, warned
from busbw.check.machine import Machine
from busbw.check.parts import NONE
from busbw.check.pcie.aer import Counts, counts
from busbw.core.checking import CheckRow, Evidence, Found, Layer
from busbw.core.shell_words import filled
from busbw.core.sizes import counted
from busbw.host.pci import read_link
from busbw.host.settings import uptime

UPTIME = "/proc/uptime"
BIT_ERRORS = 1e-12  # the largest bit error rate of a lane that the specification allows

ROW = CheckRow(
    id="BW052",
    name="pcie-aer-correctable",
    layer=Layer.PCIE,
    title="correctable PCIe errors since boot",
    right="fewer than the specification's bit error rate of 10^-12 allows; investigate a count that grows under load",
    why="Each is a packet that was retransmitted. Many of them cost bandwidth and announce a failing link.",
    fix="busbw check --only pcie-aer-correctable --watch-for 60, under load; if the count grows, drain the host, power it off, and "
    "reseat {bdf} and its riser",
    stays="depends on the hardware; the counts restart at a reboot",
    reads=("/sys/bus/pci/devices/*/aer_dev_correctable", UPTIME, "/sys/bus/pci/devices/*/current_link_*"),
    sources=("PCI Express Base Specification, bit error rate", "Linux, Documentation/ABI/testing/sysfs-bus-pci-devices-aer"),
)


def look(machine: Machine) -> Iterator[Found]:
    """The mean rate since boot, compared with what the link's bit error rate allows."""
    found, reading = counts(machine, "correctable"), machine.read(UPTIME)
    seconds = uptime(reading.text or "")
    if not found.parts:
        yield skipped(NONE)
    elif found.unread is not None:
        yield unread("", found.unread, "the error counts (PCIe AER may be off in the kernel or the BIOS)")
    elif not seconds:
        yield unread("", reading, "the time since boot")
    else:
        yield from _judge(machine, found.read, seconds)


def _judge(machine: Machine, read: list[Counts], seconds: float) -> Iterator[Found]:
    some = [one for one in read if one.total]
    for one in some:
        limit = _allowed(machine, one.bdf)
        rate = one.total / seconds
        evidence = Evidence(one.path, one.text, "" if limit is None else f"fewer than {limit * seconds:.0f} since boot")
        text = f"{counted(one.total, 'correctable error')} since boot ({rate * 3600:.3g} an hour, {one.bdf})"
        if limit is None:
            yield unknown(one.part.name, f"{text}; the speed of its link is unknown", evidence)
        elif rate > limit:
            yield warned(one.part.name, f"{text}, more than PCIe's bit error rate allows", evidence, fix=filled(ROW.fix, bdf=one.bdf))
        else:
            yield passed(one.part.name, f"{text}, which PCIe's bit error rate allows", evidence)
    if not some:
        yield passed("", f"no correctable error on {len(read)} devices and bridges", Evidence(read[0].path, "0"))


def _allowed(machine: Machine, bdf: str) -> float | None:
    """Bit errors a second that the specification allows on this link; None if its rate is not known."""
    link = read_link(machine, bdf)
    return link.speed * 1e9 * link.width * BIT_ERRORS if link.speed and link.width else None


CHECK = Check(ROW, look)
