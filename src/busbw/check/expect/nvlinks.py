"""NVLinks and NVSwitches against [gpus]."""

from collections.abc import Iterator

from busbw.check.base import failed, passed, skipped, unknown
from busbw.check.expect import seen
from busbw.check.expect.base import Asked, Comparison, Expectation, hidden
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.sizes import counted
from busbw.host.gpu_devices import switches_on_pci
from busbw.host.pci import DEVICES, read_devices

ROW = CheckRow(
    id="BW292",
    name="expect-nvlinks",
    layer=Layer.EXPECTED,
    title="active NVLinks of each GPU, their rate, and NVSwitches, as an expectations file has them",
    right="what [gpus] has: nvlinks active on each GPU, each with at least nvlink_gb_s in one direction, and nvswitches on PCI",
    why="With fewer links, collectives within the host are slower. If links are down on all GPUs, no comparison of the GPUs shows it.",
    fix="nvidia-smi nvlink -s -i {gpu}; drain the node and reset the GPUs; if links stay down, replace the GPU or its baseboard",
    stays="a reset helps if the fault was transient",
    reads=("nvmlDeviceGetNvLinkState", "NVML_FI_DEV_NVLINK_GET_SPEED", f"{DEVICES}/*/{{vendor,class}}"),
    sources=("the file given with --expect",),
)


def look(asked: Asked) -> Iterator[Found]:
    """The NVSwitches, then each GPU that NVML can read."""
    expected = asked.node.gpus
    if expected.nvlinks is None and expected.nvlink_gb_s is None and expected.nvswitches is None:
        yield skipped("the file expects no NVLink")
        return
    yield from _switches(asked, expected.nvswitches)
    gpus = [gpu for gpu in seen.gpus(asked.machine) if not gpu.error]
    if not gpus and (expected.nvlinks or expected.nvlink_gb_s):
        yield unknown("", "the NVLinks cannot be read: NVML lists no GPU that it can read")
    for gpu in gpus:
        compared = Comparison(asked, gpu.label, ROW.fix.format(gpu=gpu.label.rpartition(" ")[2]))
        place = f"nvmlDeviceGetNvLinkState, {gpu.label}"
        compared.same("number of active NVLinks", gpu.nvlinks, expected.nvlinks, ("gpus", "nvlinks"), place)
        if gpu.nvlinks or not expected.nvlinks:
            place = f"NVML_FI_DEV_NVLINK_GET_SPEED, {gpu.label}"
            compared.least("rate of the slowest NVLink", gpu.nvlink_gb_s, expected.nvlink_gb_s, ("gpus", "nvlink_gb_s"), place, unit=_gb_s)
        yield from compared.found()


def _switches(asked: Asked, expected: int | None) -> Iterator[Found]:
    if expected is None:
        return
    have = switches_on_pci(asked.machine)
    evidence = Evidence(DEVICES, ", ".join(have) or "none", asked.expected(str(expected), "gpus", "nvswitches"))
    text = counted(len(have), "NVSwitch", "es")
    if not read_devices(asked.machine):
        yield unknown("", f"{text}, expected {expected}: PCI cannot be read", evidence)
    elif len(have) >= expected:
        yield passed("", text, evidence)
    elif hides := hidden(asked.machine):
        yield unknown("", f"{text}, expected {expected}: {hides} may hide some", evidence)
    else:
        yield failed("", f"{text}, expected {expected}", evidence, fix="drain the node and reboot it; if it stays, replace the baseboard")


def _gb_s(rate: float) -> str:
    return f"{rate:g} GB/s"


CHECK = Expectation(ROW, look)
