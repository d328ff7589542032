"""GPUs, NVLinks and NVSwitches against [gpus]."""

from collections.abc import Iterator
from dataclasses import dataclass

from busbw.check.base import failed, passed, skipped, unknown, warned
from busbw.check.expect import seen
from busbw.check.expect.base import Asked, Comparison, expectation, gib, hidden
from busbw.check.gpu.per_gpu import confined
from busbw.check.types import Evidence, Found
from busbw.core.finding import CheckRow, Layer
from busbw.core.sizes import counted
from busbw.host.gpu import gpus_on_pci, switches_on_pci
from busbw.host.nvml_health import read_health
from busbw.host.pci import DEVICES, read_devices

LISTED = "nvmlDeviceGetCount"
RESET = "drain the node, stop all users of the GPUs, then"


@dataclass(frozen=True, slots=True)
class _Number:
    """How many GPUs there are and should be; `absent`: expected addresses that no GPU has."""

    wanted: int
    have: int
    absent: list[str]
    evidence: Evidence

    @property
    def text(self) -> str:
        """Both numbers."""
        return f"{counted(self.have, 'GPU')}, expected {self.wanted}"


GPUS = CheckRow(
    id="BW290",
    name="expect-gpus",
    layer=Layer.EXPECTED,
    title=(
        "GPUs: number, addresses, model, memory, VBIOS, persistence, ECC and MIG mode, as an"
        " expectations file has them"
    ),
    right=(
        "what [gpus] has: count and addresses, model, memory_bytes less memory_tolerance, "
        "vbios, persistence, ecc and mig. More GPUs, or the right number at other addresses, is a "
        "warning"
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
def expect_gpus(asked: Asked) -> Iterator[Found]:
    """The GPUs that are missing, then each GPU."""
    expected = asked.node.gpus
    if not any((expected.count is not None, expected.addresses, *_values(asked))):
        yield skipped("the file expects no GPU")
        return
    gpus = seen.gpus(asked.machine)
    yield from _judge_number(asked, gpus)
    for gpu in gpus:
        yield from _judge_gpu(asked, gpu)


def _values(asked: Asked) -> list[bool]:
    expected = asked.node.gpus
    values = (
        expected.model,
        expected.memory_bytes,
        expected.vbios,
        expected.persistence,
        expected.ecc,
        expected.mig,
    )
    return [value is not None for value in values]


def _counted(asked: Asked, gpus: list[seen.Gpu], on_pci: tuple[str, ...]) -> _Number:
    expected = asked.node.gpus
    wanted = expected.count if expected.count is not None else len(expected.addresses)
    key = "count" if expected.count is not None else "addresses"
    addresses = {gpu.address for gpu in gpus if gpu.address} | set(on_pci)
    # NVML does not give the address of a GPU that it cannot read.
    have = max(len(addresses), len(gpus))
    where = DEVICES if on_pci or not gpus else LISTED
    evidence = Evidence(where, counted(have, "GPU"), asked.expected(str(wanted), "gpus", key))
    return _Number(
        wanted,
        have,
        [address for address in expected.addresses if address not in addresses],
        evidence,
    )


def _judge_number(asked: Asked, gpus: list[seen.Gpu]) -> Iterator[Found]:
    if asked.node.gpus.count is None and not asked.node.gpus.addresses:
        return
    on_pci = gpus_on_pci(asked.machine)
    number = _counted(asked, gpus, on_pci)
    if confined(asked.machine) and len(gpus) >= number.wanted:
        # PCI also shows the GPUs that are not for this container or job.
        number = _counted(asked, gpus, ())
    if number.have < number.wanted or not (number.have or read_devices(asked.machine)):
        yield from _too_few(asked, number)
        return
    yield from _unlisted(asked, gpus, on_pci, number.wanted)
    if number.have > number.wanted and asked.node.gpus.count is not None:
        yield warned(
            "", number.text, number.evidence, fix="correct count in the file, or take the GPU out"
        )
    elif not number.absent:
        yield passed("", counted(number.have, "GPU"), number.evidence)
    for address in number.absent:
        message = f"no GPU at {address}, though all {number.wanted} are there"
        yield warned(
            address,
            message,
            number.evidence,
            fix="if nodes have GPUs at other addresses, delete `addresses` from the file",
        )


def _too_few(asked: Asked, number: _Number) -> Iterator[Found]:
    """A failure for each missing GPU whose address the file has, and one for the others."""
    if not number.have and not read_devices(asked.machine):
        reason = read_health(asked.machine).reason or "PCI shows no device"
        yield unknown("", f"the GPUs cannot be counted: {reason}", number.evidence)
        return
    missing = number.wanted - number.have
    for address in number.absent[:missing]:
        text = f"the GPU at {address} is missing: {number.text}"
        yield failed(address, text, number.evidence, fix=GPUS.fix.format(bdf=address))
    if len(number.absent) < missing:
        fix = "drain the node and reboot it; if GPUs are still missing, check their seat and power"
        yield failed("", number.text, number.evidence, fix=fix)


def _unlisted(
    asked: Asked, gpus: list[seen.Gpu], on_pci: tuple[str, ...], wanted: int
) -> Iterator[Found]:
    """The GPUs that PCI has and NVML does not list."""
    listed = {gpu.address for gpu in gpus if gpu.address}
    lost = [bdf for bdf in on_pci if bdf not in listed]
    if len(gpus) >= wanted or not lost:
        return
    health = read_health(asked.machine)
    evidence = Evidence(LISTED, str(len(gpus)), asked.expected(str(wanted), "gpus", "count"))
    text = (
        f"PCI shows {counted(len(on_pci), 'GPU')}, NVML lists {len(gpus)} of the expected {wanted}"
    )
    by = confined(asked.machine)
    if not gpus or by:
        reason = f"{by} may hide some" if by else health.reason or "NVML lists none"
        yield unknown("", f"{text}: {reason}", evidence, fix="nvidia-smi; dmesg | grep NVRM")
        return
    for bdf in lost:
        yield failed(
            bdf,
            f"NVML does not list the GPU at {bdf}: {text}",
            evidence,
            fix=GPUS.fix.format(bdf=bdf),
        )


def _judge_gpu(asked: Asked, gpu: seen.Gpu) -> Iterator[Found]:
    if gpu.error:
        evidence = Evidence(f"NVML, {gpu.label}", gpu.error, asked.expected("readable", "gpus"))
        yield failed(
            gpu.label,
            f"NVML cannot read it: {gpu.error}",
            evidence,
            fix=GPUS.fix.format(bdf=gpu.address or gpu.label.removeprefix("GPU ")),
        )
        return
    expected, compared = asked.node.gpus, Comparison(asked, gpu.label, _fix_of_gpu(asked, gpu))

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
    compared.same(
        "persistence mode",
        gpu.persistence,
        expected.persistence,
        ("gpus", "persistence"),
        place("PersistenceMode"),
    )
    compared.same("ECC", gpu.ecc, expected.ecc, ("gpus", "ecc"), place("EccMode"))
    compared.same("MIG", gpu.mig, expected.mig, ("gpus", "mig"), place("MigMode"))
    yield from compared.found()


def _fix_of_gpu(asked: Asked, gpu: seen.Gpu) -> str:
    """The command for a wrong mode; for wrong hardware there is none."""
    expected, index = asked.node.gpus, gpu.label.rpartition(" ")[2]
    if _differs(gpu.model, expected.model):
        return f"replace {gpu.label}, or correct the file"
    if _differs(gpu.vbios, expected.vbios):
        return f"update the VBIOS of {gpu.label} with the vendor's tool"
    if _differs(gpu.persistence, expected.persistence):
        return (
            "systemctl enable --now nvidia-persistenced"
            if expected.persistence
            else f"nvidia-smi -i {index} -pm 0"
        )
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
def expect_nvlinks(asked: Asked) -> Iterator[Found]:
    """The NVSwitches, then each GPU that NVML can read."""
    expected = asked.node.gpus
    if expected.nvlinks is None and expected.nvlink_gb_s is None and expected.nvswitches is None:
        yield skipped("the file expects no NVLink")
        return
    yield from _judge_switches(asked, expected.nvswitches)
    gpus = [gpu for gpu in seen.gpus(asked.machine) if not gpu.error]
    if not gpus and (expected.nvlinks or expected.nvlink_gb_s):
        yield unknown("", "the NVLinks cannot be read: NVML lists no GPU that it can read")
    for gpu in gpus:
        compared = Comparison(
            asked, gpu.label, NVLINKS.fix.format(gpu=gpu.label.rpartition(" ")[2])
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
                unit=_gb_s,
            )
        yield from compared.found()


def _judge_switches(asked: Asked, expected: int | None) -> Iterator[Found]:
    if expected is None:
        return
    have = switches_on_pci(asked.machine)
    evidence = Evidence(
        DEVICES, ", ".join(have) or "none", asked.expected(str(expected), "gpus", "nvswitches")
    )
    text = counted(len(have), "NVSwitch", "es")
    if not read_devices(asked.machine):
        yield unknown("", f"{text}, expected {expected}: PCI cannot be read", evidence)
    elif len(have) >= expected:
        yield passed("", text, evidence)
    elif hides := hidden(asked.machine):
        yield unknown("", f"{text}, expected {expected}: {hides} may hide some", evidence)
    else:
        yield failed(
            "",
            f"{text}, expected {expected}",
            evidence,
            fix="drain the node and reboot it; if it stays, replace the baseboard",
        )


def _gb_s(rate: float) -> str:
    return f"{rate:g} GB/s"
