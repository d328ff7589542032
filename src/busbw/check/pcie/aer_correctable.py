"""The rate of correctable errors of PCIe."""

from collections.abc import Iterator

from busbw.check.base import Check, not_offered, passed, skipped, unread, warned
from busbw.check.machine import Machine
from busbw.check.parts import NONE
from busbw.check.pcie.aer import Counts, counts
from busbw.check.rates import HOUR_S, NOT_KNOWN, interval_s, risen, too_fast
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.sizes import counted
from busbw.core.units import span
from busbw.host.pci import read_link

BIT_ERRORS = 1e-12  # the largest bit error rate of a lane that the specification allows

ROW = CheckRow(
    id="BW052",
    name="pcie-aer-correctable",
    layer=Layer.PCIE,
    title="correctable PCIe errors since boot",
    right="between two readings (--watch-for, --since) no more than the bit error rate of 10^-12 allows; with one reading, no more "
    "than it allows in an hour",
    why="Each is a packet that was retransmitted. Many of them cost bandwidth and announce a failing link.",
    fix="under load: busbw check --only pcie-aer-correctable --watch-for 60; if the count grows, drain the host, power it off, and "
    "reseat {bdf} and its riser",
    stays="depends on the hardware; the counts restart at a reboot",
    reads=("/sys/bus/pci/devices/*/aer_dev_correctable", "/sys/bus/pci/devices/*/current_link_*"),
    sources=("PCI Express Base Specification, bit error rate", "Linux, Documentation/ABI/testing/sysfs-bus-pci-devices-aer"),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each device and bridge with errors, compared with what the bit error rate of its link allows."""
    found = counts(machine, "correctable")
    if not found.parts:
        yield skipped(NONE)
    elif found.unread is not None:
        yield unread("", found.unread, "the error counts (PCIe AER may be off in the kernel or the BIOS)")
    else:
        yield from _judge(machine, found.read)


def _judge(machine: Machine, read: list[Counts]) -> Iterator[Found]:
    seconds = interval_s(machine)
    before = {one.path: one.total for one in counts(machine.earlier, "correctable").read} if machine.earlier else {}
    some = [one for one in read if one.total]
    for one in some:
        limit = _allowed(machine, one.bdf)
        text = f"{counted(one.total, 'correctable error')} since boot ({one.bdf})"
        if limit is None:
            yield not_offered(one.part.name, f"{text}; the speed of its link is unknown", Evidence(one.path, one.text))
        elif seconds and one.path in before:
            yield _recent(one, risen("aer", before[one.path], one.total) or 0, seconds, limit)
        else:
            yield _ever(one, text, limit)
    if not some:
        yield passed("", f"no correctable error on {len(read)} devices and bridges", Evidence(read[0].path, "0"))


def _recent(one: Counts, rise: int, seconds: float, limit: float) -> Found:
    text = f"{counted(rise, 'correctable error')} in {span(seconds)}, {one.total} since boot ({one.bdf})"
    evidence = Evidence(one.path, one.text, f"at most {limit * seconds:.0f} more")
    if too_fast(rise, seconds, limit * HOUR_S):
        message = f"{text}, more than the bit error rate of PCIe allows"
        return warned(one.part.name, message, evidence, fix=filled(ROW.fix, bdf=one.bdf), weight=rise)
    return passed(one.part.name, text, evidence)


def _ever(one: Counts, text: str, limit: float) -> Found:
    evidence = Evidence(one.path, one.text, f"at most {limit * HOUR_S:.0f}, as an hour allows")
    if one.total > limit * HOUR_S:
        return warned(one.part.name, f"{text}; {NOT_KNOWN}", evidence, fix=filled(ROW.fix, bdf=one.bdf), weight=one.total)
    return passed(one.part.name, f"{text}, no more than an hour allows", evidence)


def _allowed(machine: Machine, bdf: str) -> float | None:
    """Bit errors a second that the specification allows on this link; None if its rate is not known."""
    link = read_link(machine, bdf)
    return link.speed * 1e9 * link.width * BIT_ERRORS if link.speed and link.width else None


CHECK = Check(ROW, look)
