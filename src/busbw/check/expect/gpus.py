"""GPUs against [gpus]: number, model, memory, VBIOS and modes."""

from collections.abc import Iterator
from dataclasses import dataclass

from busbw.check.base import failed, passed, skipped, unknown, warned
from busbw.check.expect import seen
from busbw.check.expect.base import Asked, Comparison, Expectation, gib
from busbw.check.gpu.each import confined
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.sizes import counted
from busbw.host.gpu_devices import gpus_on_pci
from busbw.host.nvml_health import read_health
from busbw.host.pci import DEVICES, read_devices

LISTED = "nvmlDeviceGetCount"
RESET = "drain the node, stop all users of the GPUs, then"

ROW = CheckRow(
    id="BW290",
    name="expect-gpus",
    layer=Layer.EXPECTED,
    title="GPUs: number, addresses, model, memory, VBIOS, persistence, ECC and MIG mode, as an expectations file has them",
    right="what [gpus] has: count and addresses, model, memory_bytes less memory_tolerance, vbios, persistence, ecc and mig. More GPUs, "
    "or the right number at other addresses, is a warning",
    why="A machine with 6 of 8 GPUs, or with the wrong ones, looks healthy to checks that know only what is there.",
    fix="drain the node and reboot it; if GPU {bdf} is still missing, check its seat and power, or replace it",
    stays="a reboot brings a GPU back only if the fault was transient",
    reads=("NVML", f"{DEVICES}/*/{{vendor,class}}"),
    sources=("the file given with --expect",),
)


def look(asked: Asked) -> Iterator[Found]:
    """The GPUs that are missing, then each GPU."""
    expected = asked.node.gpus
    if not any((expected.count is not None, expected.addresses, *_values(asked))):
        yield skipped("the file expects no GPU")
        return
    gpus = seen.gpus(asked.machine)
    yield from _number(asked, gpus)
    for gpu in gpus:
        yield from _one(asked, gpu)


def _values(asked: Asked) -> list[bool]:
    expected = asked.node.gpus
    values = (expected.model, expected.memory_bytes, expected.vbios, expected.persistence, expected.ecc, expected.mig)
    return [value is not None for value in values]


@dataclass(frozen=True, slots=True)
class _Number:
    """How many GPUs there are and should be; `absent` are the expected addresses that no GPU has."""

    wanted: int
    have: int
    absent: list[str]
    evidence: Evidence

    @property
    def text(self) -> str:
        """Both numbers."""
        return f"{counted(self.have, 'GPU')}, expected {self.wanted}"


def _counted(asked: Asked, gpus: list[seen.Gpu], on_pci: tuple[str, ...]) -> _Number:
    expected = asked.node.gpus
    wanted = expected.count if expected.count is not None else len(expected.addresses)
    key = "count" if expected.count is not None else "addresses"
    addresses = {gpu.address for gpu in gpus if gpu.address} | set(on_pci)
    have = max(len(addresses), len(gpus))  # NVML does not give the address of a GPU that it cannot read
    where = DEVICES if on_pci or not gpus else LISTED
    evidence = Evidence(where, counted(have, "GPU"), asked.expected(str(wanted), "gpus", key))
    return _Number(wanted, have, [address for address in expected.addresses if address not in addresses], evidence)


def _number(asked: Asked, gpus: list[seen.Gpu]) -> Iterator[Found]:
    if asked.node.gpus.count is None and not asked.node.gpus.addresses:
        return
    on_pci = gpus_on_pci(asked.machine)
    number = _counted(asked, gpus, on_pci)
    if confined(asked.machine) and len(gpus) >= number.wanted:
        number = _counted(asked, gpus, ())  # PCI also shows the GPUs that are not for this container or job
    if number.have < number.wanted or not (number.have or read_devices(asked.machine)):
        yield from _too_few(asked, number)
        return
    yield from _unlisted(asked, gpus, on_pci, number.wanted)
    if number.have > number.wanted and asked.node.gpus.count is not None:
        yield warned("", number.text, number.evidence, fix="correct count in the file, or take the GPU out")
    elif not number.absent:
        yield passed("", counted(number.have, "GPU"), number.evidence)
    for address in number.absent:
        message = f"no GPU at {address}, though all {number.wanted} are there"
        yield warned(address, message, number.evidence, fix="if nodes have GPUs at other addresses, delete `addresses` from the file")


def _too_few(asked: Asked, number: _Number) -> Iterator[Found]:
    """A failure for each missing GPU whose address the file has, and one for the others."""
    if not number.have and not read_devices(asked.machine):
        reason = read_health(asked.machine).reason or "PCI shows no device"
        yield unknown("", f"the GPUs cannot be counted: {reason}", number.evidence)
        return
    missing = number.wanted - number.have
    for address in number.absent[:missing]:
        text = f"the GPU at {address} is missing: {number.text}"
        yield failed(address, text, number.evidence, fix=ROW.fix.format(bdf=address))
    if len(number.absent) < missing:
        fix = "drain the node and reboot it; if GPUs are still missing, check their seat and power"
        yield failed("", number.text, number.evidence, fix=fix)


def _unlisted(asked: Asked, gpus: list[seen.Gpu], on_pci: tuple[str, ...], wanted: int) -> Iterator[Found]:
    """The GPUs that PCI has and NVML does not list."""
    listed = {gpu.address for gpu in gpus if gpu.address}
    lost = [bdf for bdf in on_pci if bdf not in listed]
    if len(gpus) >= wanted or not lost:
        return
    health = read_health(asked.machine)
    evidence = Evidence(LISTED, str(len(gpus)), asked.expected(str(wanted), "gpus", "count"))
    text = f"PCI shows {counted(len(on_pci), 'GPU')}, NVML lists {len(gpus)} of the expected {wanted}"
    by = confined(asked.machine)
    if not gpus or by:
        reason = f"{by} may hide some" if by else health.reason or "NVML lists none"
        yield unknown("", f"{text}: {reason}", evidence, fix="nvidia-smi; dmesg | grep NVRM")
        return
    for bdf in lost:
        yield failed(bdf, f"NVML does not list the GPU at {bdf}: {text}", evidence, fix=ROW.fix.format(bdf=bdf))


def _one(asked: Asked, gpu: seen.Gpu) -> Iterator[Found]:
    if gpu.error:
        evidence = Evidence(f"NVML, {gpu.label}", gpu.error, asked.expected("readable", "gpus"))
        yield failed(
            gpu.label, f"NVML cannot read it: {gpu.error}", evidence, fix=ROW.fix.format(bdf=gpu.address or gpu.label.removeprefix("GPU "))
        )
        return
    expected, compared = asked.node.gpus, Comparison(asked, gpu.label, _fix(asked, gpu))

    def place(function: str) -> str:
        return f"nvmlDeviceGet{function}, {gpu.label}"

    compared.same("model", gpu.model, expected.model, ("gpus", "model"), place("Name"))
    compared.least(
        "memory", gpu.memory_bytes, expected.memory_bytes, ("gpus", "memory_bytes"), place("MemoryInfo"),
        unit=gib, tolerance=expected.memory_tolerance,
    )  # fmt: skip
    compared.same("VBIOS", gpu.vbios, expected.vbios, ("gpus", "vbios"), place("VbiosVersion"))
    compared.same("persistence mode", gpu.persistence, expected.persistence, ("gpus", "persistence"), place("PersistenceMode"))
    compared.same("ECC", gpu.ecc, expected.ecc, ("gpus", "ecc"), place("EccMode"))
    compared.same("MIG", gpu.mig, expected.mig, ("gpus", "mig"), place("MigMode"))
    yield from compared.found()


def _fix(asked: Asked, gpu: seen.Gpu) -> str:
    """The command for a wrong mode; for wrong hardware there is none."""
    expected, index = asked.node.gpus, gpu.label.rpartition(" ")[2]
    if _differs(gpu.model, expected.model):
        return f"replace {gpu.label}, or correct the file"
    if _differs(gpu.vbios, expected.vbios):
        return f"update the VBIOS of {gpu.label} with the vendor's tool"
    if _differs(gpu.persistence, expected.persistence):
        return "systemctl enable --now nvidia-persistenced" if expected.persistence else f"nvidia-smi -i {index} -pm 0"
    if _differs(gpu.ecc, expected.ecc):
        return f"{RESET} nvidia-smi -i {index} -e {int(bool(expected.ecc))}; nvidia-smi -i {index} -r"
    if _differs(gpu.mig, expected.mig):
        return f"{RESET} nvidia-smi -i {index} -mig {int(bool(expected.mig))}"
    return f"nvidia-smi -q -i {index}; replace {gpu.label} if its memory is less than its model's"


def _differs(seen_value: object, expected: object) -> bool:
    return expected is not None and seen_value != expected


CHECK = Expectation(ROW, look)
