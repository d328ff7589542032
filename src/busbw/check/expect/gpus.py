"""GPUs, NVLinks and NVSwitches against [gpus]."""

from collections.abc import Iterator
from dataclasses import dataclass

from busbw.check.base import failed, passed, skipped, unknown, warned
from busbw.check.expect import inventory
from busbw.check.expect.base import HOSTNAME, PartComparison, Target, expectation, gib, hidden
from busbw.check.gpu.per_gpu import confined
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer
from busbw.core.sizes import counted
from busbw.host.gpu import gpus_on_pci, switches_on_pci
from busbw.host.nvml_health import read_health
from busbw.host.pci import DEVICES, read_devices

LISTED = "nvmlDeviceGetCount"
RESET = "drain the node, stop all users of the GPUs, then"


@dataclass(frozen=True, slots=True)
class _Number:
    """How many GPUs there should be, and how many are present.

    `absent` are the expected addresses that no GPU has.
    """

    expected: int
    present: int
    absent: list[str]
    evidence: Evidence

    @property
    def text(self) -> str:
        """`6 GPUs, expected 8`."""
        return f"{counted(self.present, 'GPU')}, expected {self.expected}"


GPUS = CheckRow(
    id="BW290",
    name="expect-gpus",
    layer=Layer.EXPECTED,
    title=(
        "GPUs: number, addresses, model, memory, VBIOS, serial number, persistence, ECC and MIG"
        " mode, as an expectations file has them"
    ),
    right=(
        "what [gpus] has: count and addresses, model, memory_bytes less memory_tolerance, "
        "vbios, serials, persistence, ecc and mig. More GPUs, or the right number at other "
        "addresses or in another order, is a warning"
    ),
    why=(
        "A machine with 6 of 8 GPUs, or with the wrong ones, looks healthy to checks that know only"
        " what is there."
    ),
    fix=(
        "drain the node and reboot it; if GPU {bdf} is still missing, check its seat and power, or"
        " replace it"
    ),
    stays="a reboot brings a GPU back only if the fault was transient",
    reads=("NVML", f"{DEVICES}/*/{{vendor,class}}"),
    sources=("the file given with --expect",),
)


@expectation(GPUS)
def expect_gpus(target: Target) -> Iterator[Finding]:
    """A finding for each missing GPU, then for each GPU."""
    expected = target.node.gpus
    if not any((expected.count is not None, expected.addresses, *_values_expected(target))):
        yield skipped("the file expects no GPU")
        return
    gpus = inventory.gpus(target.machine)
    yield from _judge_number(target, gpus)
    serials = _expected_serials(target)
    for place, gpu in enumerate(gpus):
        own = serials[place] if len(serials) == len(gpus) else None
        yield from _judge_gpu(target, gpu, own, serials)


def _expected_serials(target: Target) -> list[str]:
    """The serial numbers of this host's GPUs; [] if the file has none of it."""
    host = target.machine.text(HOSTNAME)
    entries = [entry.rpartition(" ") for entry in target.node.gpus.serials]
    return [serial for name, _, serial in entries if name in ("", host)]


def _values_expected(target: Target) -> list[bool]:
    expected = target.node.gpus
    values = (
        expected.model,
        expected.memory_bytes,
        expected.vbios,
        expected.serials or None,
        expected.persistence,
        expected.ecc,
        expected.mig,
    )
    return [value is not None for value in values]


def _count_gpus(
    target: Target, gpus: list[inventory.InventoryGpu], on_pci: tuple[str, ...]
) -> _Number:
    expected = target.node.gpus
    expected_count = expected.count if expected.count is not None else len(expected.addresses)
    key = "count" if expected.count is not None else "addresses"
    addresses = {gpu.address for gpu in gpus if gpu.address} | set(on_pci)
    # NVML does not give the address of a GPU that it cannot read.
    present = max(len(addresses), len(gpus))
    where = DEVICES if on_pci or not gpus else LISTED
    evidence = Evidence(
        where, counted(present, "GPU"), target.expected(str(expected_count), "gpus", key)
    )
    return _Number(
        expected_count,
        present,
        [address for address in expected.addresses if address not in addresses],
        evidence,
    )


def _judge_number(target: Target, gpus: list[inventory.InventoryGpu]) -> Iterator[Finding]:
    if target.node.gpus.count is None and not target.node.gpus.addresses:
        return
    on_pci = gpus_on_pci(target.machine)
    number = _count_gpus(target, gpus, on_pci)
    if confined(target.machine) and len(gpus) >= number.expected:
        # PCI also shows the GPUs that are not for this container or job.
        number = _count_gpus(target, gpus, ())
    if number.present < number.expected or not (number.present or read_devices(target.machine)):
        yield from _judge_too_few(target, number)
        return
    yield from _judge_unlisted(target, gpus, on_pci, number.expected)
    if number.present > number.expected and target.node.gpus.count is not None:
        fix = "correct count in the file, or take the GPU out"
        yield warned("", number.text, number.evidence, fix=fix)
    elif _in_another_order(target, gpus):
        shown = ", ".join(gpu.address for gpu in gpus)
        evidence = Evidence(LISTED, shown, target.expected("that order", "gpus", "addresses"))
        fix = "export CUDA_DEVICE_ORDER=PCI_BUS_ID in jobs; if the order is meant, learn anew"
        yield warned("", "the GPUs are numbered in another order", evidence, fix=fix)
    elif not number.absent:
        yield passed("", counted(number.present, "GPU"), number.evidence)
    for address in number.absent:
        message = f"no GPU at {address}, though all {number.expected} are there"
        fix = "if nodes have GPUs at other addresses, delete `addresses` from the file"
        yield warned(address, message, number.evidence, fix=fix)


def _in_another_order(target: Target, gpus: list[inventory.InventoryGpu]) -> bool:
    """Whether all GPUs are at expected addresses, which have other numbers."""
    addresses, expected = [gpu.address for gpu in gpus], target.node.gpus.addresses
    return addresses != expected and sorted(addresses) == sorted(expected)


def _judge_too_few(target: Target, number: _Number) -> Iterator[Finding]:
    """A failure for each missing GPU whose address the file has, and one for the others."""
    if not number.present and not read_devices(target.machine):
        reason = read_health(target.machine).reason or "PCI shows no device"
        yield unknown("", f"the GPUs cannot be counted: {reason}", number.evidence)
        return
    missing = number.expected - number.present
    for address in number.absent[:missing]:
        text = f"the GPU at {address} is missing: {number.text}"
        yield failed(address, text, number.evidence, fix=GPUS.fix.format(bdf=address))
    if len(number.absent) < missing:
        fix = "drain the node and reboot it; if GPUs are still missing, check their seat and power"
        yield failed("", number.text, number.evidence, fix=fix)


def _judge_unlisted(
    target: Target, gpus: list[inventory.InventoryGpu], on_pci: tuple[str, ...], expected: int
) -> Iterator[Finding]:
    """The GPUs that PCI has and NVML does not list."""
    listed = {gpu.address for gpu in gpus if gpu.address}
    lost = [bdf for bdf in on_pci if bdf not in listed]
    if len(gpus) >= expected or not lost:
        return
    health = read_health(target.machine)
    evidence = Evidence(LISTED, str(len(gpus)), target.expected(str(expected), "gpus", "count"))
    shown = counted(len(on_pci), "GPU")
    text = f"PCI shows {shown}, NVML lists {len(gpus)} of the expected {expected}"
    hider = confined(target.machine)
    if not gpus or hider:
        reason = f"{hider} may hide some" if hider else health.reason or "NVML lists none"
        yield unknown("", f"{text}: {reason}", evidence, fix="nvidia-smi; dmesg | grep NVRM")
        return
    for bdf in lost:
        message = f"NVML does not list the GPU at {bdf}: {text}"
        yield failed(bdf, message, evidence, fix=GPUS.fix.format(bdf=bdf))


def _judge_gpu(
    target: Target, gpu: inventory.InventoryGpu, serial: str | None, serials: list[str]
) -> Iterator[Finding]:
    if gpu.error:
        evidence = Evidence(f"NVML, {gpu.label}", gpu.error, target.expected("readable", "gpus"))
        yield failed(
            gpu.label,
            f"NVML cannot read it: {gpu.error}",
            evidence,
            fix=GPUS.fix.format(bdf=gpu.address or gpu.label.removeprefix("GPU ")),
        )
        return
    expected, fix = target.node.gpus, _fix_of_gpu(target, gpu)
    if _differs(gpu.serial, serial):
        what = "the order is meant" if gpu.serial in serials else "the GPU was replaced"
        fix = f"nvidia-smi --query-gpu=index,serial,pci.bus_id --format=csv; if {what}, learn anew"
    compared = PartComparison(target, gpu.label, fix)

    def place(function: str) -> str:
        return f"nvmlDeviceGet{function}, {gpu.label}"

    compared.same("model", gpu.model, expected.model, ("gpus", "model"), place("Name"))
    compared.least(
        "memory",
        gpu.memory_bytes,
        expected.memory_bytes,
        ("gpus", "memory_bytes"),
        place("MemoryInfo"),
        unit=gib,
        tolerance=expected.memory_tolerance,
    )
    compared.same("VBIOS", gpu.vbios, expected.vbios, ("gpus", "vbios"), place("VbiosVersion"))
    compared.same("serial number", gpu.serial, serial, ("gpus", "serials"), place("Serial"))
    compared.same(
        "persistence mode",
        gpu.persistence,
        expected.persistence,
        ("gpus", "persistence"),
        place("PersistenceMode"),
    )
    compared.same("ECC", gpu.ecc, expected.ecc, ("gpus", "ecc"), place("EccMode"))
    compared.same("MIG", gpu.mig, expected.mig, ("gpus", "mig"), place("MigMode"))
    yield from compared.findings()


def _fix_of_gpu(target: Target, gpu: inventory.InventoryGpu) -> str:
    """The command for a wrong mode; for wrong hardware there is none."""
    expected, index = target.node.gpus, gpu.label.rpartition(" ")[2]
    if _differs(gpu.model, expected.model):
        return f"replace {gpu.label}, or correct the file"
    if _differs(gpu.vbios, expected.vbios):
        return f"drain the node; update the VBIOS of {gpu.label} with the vendor's tool"
    if _differs(gpu.persistence, expected.persistence):
        if expected.persistence:
            return "systemctl enable --now nvidia-persistenced"
        return f"nvidia-smi -i {index} -pm 0"
    if _differs(gpu.ecc, expected.ecc):
        return (
            f"{RESET} nvidia-smi -i {index} -e {int(bool(expected.ecc))}; nvidia-smi -i {index} -r"
        )
    if _differs(gpu.mig, expected.mig):
        return f"{RESET} nvidia-smi -i {index} -mig {int(bool(expected.mig))}"
    return f"nvidia-smi -q -i {index}; replace {gpu.label} if its memory is less than its model's"


def _differs(seen_value: object, expected: object) -> bool:
    return expected is not None and seen_value != expected


NVLINKS = CheckRow(
    id="BW292",
    name="expect-nvlinks",
    layer=Layer.EXPECTED,
    title=(
        "active NVLinks of each GPU, their rate, and NVSwitches, as an expectations file has them"
    ),
    right=(
        "what [gpus] has: nvlinks active on each GPU, each with at least nvlink_gb_s in one"
        " direction, and nvswitches on PCI"
    ),
    why=(
        "With fewer links, collectives within the host are slower. If links are down on all GPUs,"
        " no comparison of the GPUs shows it."
    ),
    fix=(
        "nvidia-smi nvlink -s -i {gpu}; drain the node and reset the GPUs; if links stay down,"
        " replace the GPU or its baseboard"
    ),
    stays="a reset helps if the fault was transient",
    reads=(
        "nvmlDeviceGetNvLinkState",
        "NVML_FI_DEV_NVLINK_GET_SPEED",
        f"{DEVICES}/*/{{vendor,class}}",
    ),
    sources=("the file given with --expect",),
)


@expectation(NVLINKS)
def expect_nvlinks(target: Target) -> Iterator[Finding]:
    """A finding on the NVSwitches, then for each GPU that NVML can read."""
    expected = target.node.gpus
    if expected.nvlinks is None and expected.nvlink_gb_s is None and expected.nvswitches is None:
        yield skipped("the file expects no NVLink")
        return
    yield from _judge_switches(target, expected.nvswitches)
    gpus = [gpu for gpu in inventory.gpus(target.machine) if not gpu.error]
    if not gpus and (expected.nvlinks or expected.nvlink_gb_s):
        yield unknown("", "the NVLinks cannot be read: NVML lists no GPU that it can read")
    for gpu in gpus:
        compared = PartComparison(
            target, gpu.label, NVLINKS.fix.format(gpu=gpu.label.rpartition(" ")[2])
        )
        place = f"nvmlDeviceGetNvLinkState, {gpu.label}"
        compared.same(
            "number of active NVLinks", gpu.nvlinks, expected.nvlinks, ("gpus", "nvlinks"), place
        )
        if gpu.nvlinks or not expected.nvlinks:
            place = f"NVML_FI_DEV_NVLINK_GET_SPEED, {gpu.label}"
            compared.least(
                "rate of the slowest NVLink",
                gpu.nvlink_gb_s,
                expected.nvlink_gb_s,
                ("gpus", "nvlink_gb_s"),
                place,
                unit="{:g} GB/s".format,
            )
        yield from compared.findings()


def _judge_switches(target: Target, expected: int | None) -> Iterator[Finding]:
    if expected is None:
        return
    switches = switches_on_pci(target.machine)
    evidence = Evidence(
        DEVICES, ", ".join(switches) or "none", target.expected(str(expected), "gpus", "nvswitches")
    )
    text = counted(len(switches), "NVSwitch", "es")
    hider = hidden(target.machine)
    if not read_devices(target.machine):
        yield unknown("", f"{text}, expected {expected}: PCI cannot be read", evidence)
    elif len(switches) >= expected:
        yield passed("", text, evidence)
    elif hider:
        yield unknown("", f"{text}, expected {expected}: {hider} may hide some", evidence)
    else:
        fix = "drain the node and reboot it; if it stays, replace the baseboard"
        yield failed("", f"{text}, expected {expected}", evidence, fix=fix)
