"""Uncorrectable errors of PCIe."""

from collections.abc import Iterator

from busbw.check.base import Check, failed, passed, skipped, unread, warned
from busbw.check.machine import Machine
from busbw.check.parts import NONE
from busbw.check.pcie.aer import Counts, counts
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.sizes import counted

ROW = CheckRow(
    id="BW051",
    name="pcie-aer-fatal",
    layer=Layer.PCIE,
    title="uncorrectable PCIe errors since boot",
    right="none on GPUs, network controllers and the bridges above them",
    why="A fatal error makes the link unreliable: the device is reset or lost, and with it the job. A nonfatal one loses a transfer.",
    fix="dmesg -T | grep -e AER -e {bdf}; drain the host and power it off; reseat the card and its riser; if errors come back, replace "
    "the cable or the card",
    stays="depends on the hardware; the counts restart at a reboot",
    reads=("/sys/bus/pci/devices/*/aer_dev_fatal", "/sys/bus/pci/devices/*/aer_dev_nonfatal"),
    sources=("Linux, Documentation/ABI/testing/sysfs-bus-pci-devices-aer", "Linux, Documentation/PCI/pcieaer-howto.rst"),
)


def look(machine: Machine) -> Iterator[Found]:
    """Fatal counts fail, nonfatal ones warn."""
    fatal, nonfatal = counts(machine, "fatal"), counts(machine, "nonfatal")
    if not fatal.parts:
        yield skipped(NONE)
        return
    for kind in (fatal, nonfatal):
        if kind.unread is not None:
            yield unread("", kind.unread, "the error counts (PCIe AER may be off in the kernel or the BIOS)")
            return
    bad = [(one, True) for one in fatal.read if one.total] + [(one, False) for one in nonfatal.read if one.total]
    yield from (_bad(one, fatal=is_fatal) for one, is_fatal in bad)
    if not bad:
        first = fatal.read[0]
        yield passed("", f"no uncorrectable error on {len(fatal.read)} devices and bridges", Evidence(first.path, first.text, "0"))


def _bad(one: Counts, *, fatal: bool) -> Found:
    where = "" if one.bdf == one.part.device.bdf else f" in the bridge above it ({one.bdf})"
    message = f"{counted(one.total, 'fatal error' if fatal else 'nonfatal error')} since boot{where}"
    report = failed if fatal else warned
    return report(one.part.name, message, Evidence(one.path, one.text, "0"), fix=filled(ROW.fix, bdf=one.bdf), weight=one.total)


CHECK = Check(ROW, look)
