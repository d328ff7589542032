"""NVLinks that run slower than they should."""

from collections.abc import Iterator

from busbw.check.base import Check, not_offered, passed, warned
from busbw.check.machine import Machine
from busbw.check.nvlink.linked import expected, linked, rate
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.sizes import counted
from busbw.host.gpu_health import GpuHealth

ROW = CheckRow(
    id="BW031",
    name="nvlink-speed",
    layer=Layer.NVLINK,
    title="speed of the active NVLinks",
    right="the rate of the model: 25 GB/s in one direction on A100 and Hopper, 50 GB/s on Blackwell; the same on all links",
    why="Rings and trees load all links equally, so a collective runs at the speed of the slowest one.",
    fix="nvidia-smi nvlink -s -i {gpu}; drain the host and reset GPU {gpu}; if the link stays slow, replace the GPU",
    stays="a reset helps if the fault was transient",
    reads=("NVML_FI_DEV_NVLINK_GET_SPEED", "NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON", "nvmlDeviceGetNvLinkVersion"),
    sources=("data sheets of the GPUs: the table in busbw's model of hardware", "NVIDIA Health Validation, checks"),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each GPU, its slowest link."""
    return linked(machine, _judge)


def _judge(gpu: GpuHealth) -> Found:
    rates = {link.number: rate(gpu, link) for link in gpu.active}
    known = {number: one for number, one in rates.items() if one}
    if len(known) < len(rates):
        return not_offered(gpu.label, f"NVML does not report the speed of {counted(len(rates) - len(known), 'active link')}")
    row = expected(gpu)
    right = row.link_rate if row else max(known.values())
    slow = {number: one for number, one in known.items() if one < right}
    where = f"NVML_FI_DEV_NVLINK_GET_SPEED, {gpu.label}"
    if not slow:
        text = f"{counted(len(known), 'link')} at {right / 1e9:g} GB/s"
        return passed(gpu.label, text, Evidence(where, text))
    seen = ", ".join(f"link {number}: {one / 1e9:g} GB/s" for number, one in slow.items())
    message = f"{counted(len(slow), 'link')} slower than {right / 1e9:g} GB/s: {seen}"
    return warned(gpu.label, message, Evidence(where, seen, f"{right / 1e9:g} GB/s"), fix=filled(ROW.fix, gpu=gpu.index))


CHECK = Check(ROW, look)
