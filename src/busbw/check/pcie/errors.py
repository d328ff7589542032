"""Errors of PCIe, as AER counts them, and files that give errors instead of values.

The files of a device that died do so.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain

from busbw.check.base import broken, check, failed, not_offered, passed, skipped, unread, warned
from busbw.check.machine import NONE, Machine, Part, gpus, nics, slots
from busbw.check.rates import HOUR_S, RATE_UNKNOWN, interval_s, risen, too_fast
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer
from busbw.core.sizes import counted, span
from busbw.host.nic import RDMA
from busbw.host.pci import device_directory, errors, read_link
from busbw.host.source import Reading

BIT_ERRORS = 1e-12  # the largest bit error rate of a lane that the specification allows
OF_FUNCTION = (
    "vendor", "device", "class", "numa_node", "current_link_speed", "current_link_width",
    "max_link_speed", "max_link_width", "aer_dev_fatal", "aer_dev_nonfatal", "aer_dev_correctable",
)  # fmt: skip
OF_DEVICE = ("fw_ver", "board_id", "hca_type")
OF_PORT = ("state", "phys_state", "rate", "link_layer", "sm_lid")
COUNTERS = ("counters", "hw_counters")


@dataclass(frozen=True, slots=True)
class DeviceErrors:
    """Errors that a device or bridge reported since boot."""

    part: Part
    bdf: str
    path: str
    errors: dict[str, int]

    @property
    def total(self) -> int:
        return sum(self.errors.values())

    @property
    def text(self) -> str:
        """`Bad TLP 3, Replay Timer Timeout 1`."""
        return ", ".join(f"{name} {count}" for name, count in self.errors.items() if count) or "0"


@dataclass(frozen=True)
class Errors:
    """The counts of all parts; `unread` is the reading of a file, if none could be read."""

    parts: list[Part]
    read: list[DeviceErrors] = field(default_factory=list)
    unread: Reading | None = None


def aer_counts(machine: Machine, kind: str) -> Errors:
    """Counts of aer_dev_{kind} of each slot and the bridges above it.

    Devices without AER have no such file.
    """
    parts = slots(gpus(machine) + nics(machine))
    result = Errors(parts, list(_read_counts(machine, parts, kind)))
    if result.read or not parts:
        return result
    return Errors(parts, [], machine.read(f"{parts[0].path}/aer_dev_{kind}"))


def _read_counts(machine: Machine, parts: list[Part], kind: str) -> Iterator[DeviceErrors]:
    read_bridges: set[str] = set()
    for part in parts:
        for bdf in (part.device.bdf, *reversed(part.device.above or ())):
            path = f"{device_directory(bdf)}/aer_dev_{kind}"
            text = machine.text(path)
            if bdf not in read_bridges and text is not None:
                yield DeviceErrors(part, bdf, path, errors(text))
            read_bridges.add(bdf)


AER_FATAL = CheckRow(
    id="BW051",
    name="pcie-aer-fatal",
    layer=Layer.PCIE,
    title="uncorrectable PCIe errors since boot",
    right="none on GPUs, network controllers and the bridges above them",
    why=(
        "A fatal error makes the link unreliable: the device is reset or lost, and with it the job."
        " A nonfatal one loses a transfer."
    ),
    fix=(
        "dmesg -T | grep -e AER -e {bdf}; drain the host and power it off; reseat the card and "
        "its riser; if errors come back, replace the cable or the card"
    ),
    stays="depends on the hardware; the counts restart at a reboot",
    reads=("/sys/bus/pci/devices/*/aer_dev_fatal", "/sys/bus/pci/devices/*/aer_dev_nonfatal"),
    sources=(
        "Linux, Documentation/ABI/testing/sysfs-bus-pci-devices-aer",
        "Linux, Documentation/PCI/pcieaer-howto.rst",
    ),
)


@check(AER_FATAL)
def check_aer_fatal(machine: Machine) -> Iterator[Finding]:
    """A failure for each part with fatal errors, a warning for nonfatal ones."""
    fatal, nonfatal = aer_counts(machine, "fatal"), aer_counts(machine, "nonfatal")
    if not fatal.parts:
        yield skipped(NONE)
        return
    for kind in (fatal, nonfatal):
        if kind.unread is not None:
            yield unread(
                "", kind.unread, "the error counts (PCIe AER may be off in the kernel or the BIOS)"
            )
            return
    bad = False
    for kind in (fatal, nonfatal):
        for counts in kind.read:
            if counts.total:
                bad = True
                yield _judge_uncorrectable(counts, fatal=kind is fatal)
    if not bad:
        first = fatal.read[0]
        yield passed(
            "",
            f"no uncorrectable error on {len(fatal.read)} devices and bridges",
            Evidence(first.path, first.text, "0"),
        )


def _judge_uncorrectable(counts: DeviceErrors, *, fatal: bool) -> Finding:
    errors = counted(counts.total, "fatal error" if fatal else "nonfatal error")
    message = f"{errors} since boot"
    if counts.bdf != counts.part.device.bdf:
        message += f" in the bridge above it ({counts.bdf})"
    report = failed if fatal else warned
    return report(
        counts.part.name,
        message,
        Evidence(counts.path, counts.text, "0"),
        fix=filled(AER_FATAL.fix, bdf=counts.bdf),
        weight=counts.total,
    )


AER_CORRECTABLE = CheckRow(
    id="BW052",
    name="pcie-aer-correctable",
    layer=Layer.PCIE,
    title="correctable PCIe errors since boot",
    right=(
        "between two readings (--watch-for, --since) no more than the bit error rate of 10^-12 "
        "allows, and no device unlike the others; with one reading, no more than it allows in an"
        " hour"
    ),
    why=(
        "Each is a packet that was retransmitted. Many of them cost bandwidth and announce a"
        " failing link."
    ),
    fix=(
        "under load: busbw check --only pcie-aer-correctable --watch-for 60; if the count grows, "
        "drain the host, power it off, and reseat {bdf} and its riser"
    ),
    stays="depends on the hardware; the counts restart at a reboot",
    reads=("/sys/bus/pci/devices/*/aer_dev_correctable", "/sys/bus/pci/devices/*/current_link_*"),
    sources=(
        "PCI Express Base Specification, bit error rate",
        "Linux, Documentation/ABI/testing/sysfs-bus-pci-devices-aer",
    ),
)


@check(AER_CORRECTABLE)
def check_aer_correctable(machine: Machine) -> Iterator[Finding]:
    """A finding for each part with errors, by what the bit error rate of its link allows."""
    counts = aer_counts(machine, "correctable")
    if not counts.parts:
        yield skipped(NONE)
    elif counts.unread is not None:
        yield unread(
            "", counts.unread, "the error counts (PCIe AER may be off in the kernel or the BIOS)"
        )
    else:
        yield from _judge_aer_correctable(machine, counts.read)


def _judge_aer_correctable(machine: Machine, read: list[DeviceErrors]) -> Iterator[Finding]:
    seconds = interval_s(machine)
    before = {}
    if machine.earlier:
        earlier = aer_counts(machine.earlier, "correctable")
        before = {counts.path: counts.total for counts in earlier.read}
    nonzero = [counts for counts in read if counts.total]
    for counts in nonzero:
        limit = _allowed_per_s(machine, counts.bdf)
        text = f"{counted(counts.total, 'correctable error')} since boot ({counts.bdf})"
        if limit is None:
            yield not_offered(
                counts.part.name,
                f"{text}; the speed of its link is unknown",
                Evidence(counts.path, counts.text),
            )
        elif seconds and counts.path in before:
            rise = risen("aer", before[counts.path], counts.total) or 0
            yield _judge_rise(counts, rise, seconds, limit)
        else:
            yield _judge_total(counts, text, limit)
    if not nonzero:
        yield passed(
            "",
            f"no correctable error on {len(read)} devices and bridges",
            Evidence(read[0].path, "0"),
        )


def _judge_rise(counts: DeviceErrors, rise: int, seconds: float, limit: float) -> Finding:
    text = (
        f"{counted(rise, 'correctable error')} in {span(seconds)}, {counts.total} since boot"
        f" ({counts.bdf})"
    )
    evidence = Evidence(counts.path, counts.text, f"at most {limit * seconds:.0f} more")
    if too_fast(rise, seconds, limit * HOUR_S):
        message = f"{text}, more than the bit error rate of PCIe allows"
        return warned(
            counts.part.name,
            message,
            evidence,
            fix=filled(AER_CORRECTABLE.fix, bdf=counts.bdf),
            weight=rise,
        )
    return passed(counts.part.name, text, evidence)


def _judge_total(counts: DeviceErrors, text: str, limit: float) -> Finding:
    evidence = Evidence(
        counts.path, counts.text, f"at most {limit * HOUR_S:.0f}, as an hour allows"
    )
    if counts.total > limit * HOUR_S:
        return warned(
            counts.part.name,
            f"{text}; {RATE_UNKNOWN}",
            evidence,
            fix=filled(AER_CORRECTABLE.fix, bdf=counts.bdf),
            weight=counts.total,
        )
    return passed(counts.part.name, f"{text}, no more than an hour allows", evidence)


def _allowed_per_s(machine: Machine, bdf: str) -> float | None:
    """Bit errors a second that the specification allows on this link.

    None if its rate is not known.
    """
    link = read_link(machine, bdf)
    return link.speed * 1e9 * link.width * BIT_ERRORS if link.speed and link.width else None


DEVICE_FILES = CheckRow(
    id="BW056",
    name="device-files",
    layer=Layer.PCIE,
    title="files of GPUs, network controllers, the bridges above them, and RDMA ports",
    right="none gives an I/O error, or says that there is no such device",
    why=(
        "The kernel asks the device when such a file is read. A device that fell off the bus, or "
        "whose firmware has stopped, still has its files, and its last counts may look fine."
    ),
    fix=(
        "dmesg | grep {device}; drain the host and reboot it; if the errors come back, replace the"
        " device"
    ),
    stays="a reboot helps if the fault was transient",
    reads=(
        "/sys/bus/pci/devices/*/{" + ",".join(OF_FUNCTION) + "}",
        "/sys/class/infiniband/*/{" + ",".join(OF_DEVICE) + "}",
        "/sys/class/infiniband/*/ports/*/{"
        + ",".join((*OF_PORT, *(f"{folder}/*" for folder in COUNTERS)))
        + "}",
    ),
    sources=(
        "Linux Documentation/PCI/pci-error-recovery.rst",
        "Linux Documentation/ABI/stable/sysfs-class-infiniband",
    ),
)


@check(DEVICE_FILES, after=AER_CORRECTABLE)
def check_device_files(machine: Machine) -> Iterator[Finding]:
    """A finding for each device with files that fail, or one for all devices without."""
    files = _files_by_device(machine)
    if not files:
        yield skipped("no GPU and no network controller")
        return
    all_read = True
    for device, paths in files.items():
        failing = [path for path in paths if broken(machine.read(path))]
        if failing:
            all_read = False
            yield _judge_failing_files(machine, device, failing)
    if all_read:
        yield passed(
            "",
            f"the files of {counted(len(files), 'device')} can be read",
            Evidence(next(iter(chain(*files.values()))), "a value"),
        )


def _judge_failing_files(machine: Machine, device: str, paths: list[str]) -> Finding:
    evidence = (
        Evidence(path, machine.read(path).reason.removeprefix(f"{path}: "), "a value")
        for path in paths
    )
    first = machine.read(paths[0]).reason
    message = f"{counted(len(paths), 'file')} of it cannot be read: {first}"
    name = machine.target(paths[0].rpartition("/")[0]) or device  # the kernel knows no GPU 2
    return failed(device, message, *evidence, fix=filled(DEVICE_FILES.fix, device=name))


def _files_by_device(machine: Machine) -> dict[str, list[str]]:
    """Paths by the name of a device or the address of a bridge."""
    by_device: dict[str, list[str]] = {}
    for part in gpus(machine) + nics(machine):
        for bdf in (part.device.bdf, *(part.device.above or ())):
            name = part.name if bdf == part.device.bdf else bdf
            by_device.setdefault(name, [f"{device_directory(bdf)}/{file}" for file in OF_FUNCTION])
    for port in machine.ports:
        paths = by_device.setdefault(port.device, [])
        if port.number == "1":
            paths += [f"{RDMA}/{port.device}/{file}" for file in OF_DEVICE]
        paths += [f"{port.path}/{file}" for file in OF_PORT]
        for folder in COUNTERS:
            names = machine.names(f"{port.path}/{folder}")
            paths += [f"{port.path}/{folder}/{name}" for name in names]
    return by_device
