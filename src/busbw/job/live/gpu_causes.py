"""Causes that the GPUs of a job show: the late rank's compared with the others', or all with
before.
"""

from statistics import median

from busbw.core.telemetry import Severity, reason_severity
from busbw.job.live.delay import MAINLY, Cause, Delay
from busbw.job.live.host_watch import GpuEvidence
from busbw.ui.number_formats import percent_text

LEAST_FALL = 0.02  # of a clock
LEAST_IDLE = 0.02  # of the time, by which a GPU has less to do than others


def shared(delay: Delay) -> Cause | None:
    """A stranger's process on the GPU of a late rank, and on none of the others'."""
    gpu, others = _gpus(delay)
    found = gpu.strangers if gpu else {}
    if not gpu or not found or any(other.strangers for other in others):
        return None
    if any(
        one.gpu == delay.own.gpu
        for rank, one in delay.look.evidence.items()
        if rank not in delay.late
    ):
        return None  # a rank that is not late has the same GPU
    return Cause(
        "shared",
        f"GPU {gpu.last.index} of {delay.name} is shared with {'; '.join(found.values())}",
        f"ps -o user,pid,lstart,args -p {','.join(map(str, found))}",
        delay.same("once the process has ended"),
    )


def throttled(delay: Delay) -> Cause | None:
    """The late rank's GPU has a lower clock than the others', or one of all a lower one than
    before.
    """
    gpu, others = _gpus(delay)
    if delay.rank is None:
        gpus = list(delay.look.host.gpus.values())
        gpu = max(gpus, key=lambda one: _fall(one.sm_mhz, one.before_mhz), default=None)
        than = gpu.before_mhz if gpu else None
    else:
        clocks = [one.sm_mhz for one in others if one.sm_mhz]
        than = median(clocks) if clocks else _expected_mhz(gpu)
    least = max(LEAST_FALL, MAINLY * delay.us / delay.step_us)
    if not gpu or not than or _fall(gpu.sm_mhz, than) < least:
        return None
    names = [
        f"{name} in {percent_text(share, 1.0)} % of the readings"
        for name, share in gpu.reasons.items()
        if reason_severity().get(name) is not Severity.HARMLESS
    ]
    compared = "others" if delay.rank is not None and others else "usually"
    why = (
        f"GPU {gpu.last.index} runs at {gpu.sm_mhz:.0f} MHz, {compared} at {than:.0f} MHz:"
        f" {', '.join(names) or 'NVML names no reason, as for a clock that was set'}"
        f"; {gpu.last.temperature_c} degrees Celsius, {gpu.last.power_w} W"
    )
    return Cause(
        "throttled",
        why,
        f"nvidia-smi -q -i {gpu.last.index} -d PERFORMANCE,CLOCK,POWER,TEMPERATURE",
        delay.same("at an equal clock: nvidia-smi --query-gpu=clocks.sm --format=csv -l 1"),
    )


def _expected_mhz(gpu: GpuEvidence | None) -> float | None:
    """Of a GPU that is compared with none: its clock before, or its largest."""
    if not gpu:
        return None
    severity = reason_severity()
    is_bad = any(severity.get(name) is Severity.BAD for name in gpu.reasons)
    return gpu.last.sm_max_mhz if is_bad else gpu.before_mhz


def _fall(mhz: float | None, than_mhz: float | None) -> float:
    return 1 - mhz / than_mhz if mhz and than_mhz else 0.0


def slot(delay: Delay) -> Cause | None:
    """PCIe of a late rank's GPU with fewer lanes or of an older generation than the others'."""
    gpu, others = _gpus(delay)
    if not gpu or not gpu.last.pcie_width or not gpu.last.pcie_gen:
        return None
    width, gen = gpu.last.pcie_width, gpu.last.pcie_gen
    best_width = max((one.last.pcie_width or 0 for one in others), default=0)
    best_gen = max((one.last.pcie_gen or 0 for one in others), default=0)
    if width >= best_width and gen >= best_gen:
        return None
    return Cause(
        "pcie",
        f"PCIe of GPU {gpu.last.index} is x{width} of generation {gen}, those of other ranks have"
        f" x{best_width} of generation {best_gen}",
        f"busbw check; nvidia-smi -q -i {gpu.last.index} | grep -A 12 'GPU Link Info'",
        delay.same("with all lanes: after reseating, or on another GPU"),
    )


def nvlink(delay: Delay) -> Cause | None:
    gpu, others = _gpus(delay)
    if not gpu:
        return None
    links, most = gpu.last.nvlinks, max((one.last.nvlinks for one in others), default=0)
    said = delay.look.host.gpu_links.get(delay.own.gpu, [])
    if links < most:
        said = [f"{links} links are active, on others {most}", *said]
    if not said:
        return None
    return Cause(
        "nvlink",
        f"NVLink or PCIe of GPU {gpu.last.index}: {'; '.join(said)}",
        "busbw check; nvidia-smi nvlink -e",
        "the counters do not rise: busbw watch",
    )


def used(delay: Delay) -> Cause | None:
    """Whether the late rank's GPU computed meanwhile, or had nothing to do. Those of the ranks that
    wait run NCCL's kernels.
    """
    gpu, others = _gpus(delay)
    known = [other.used for other in others if other.used is not None]
    if not gpu or gpu.used is None or not known:
        return None
    share, idle = delay.us / delay.step_us, median(known) - gpu.used
    seen = (
        f"a kernel ran on GPU {gpu.last.index} in {percent_text(gpu.used, 1.0)} % of the time, on"
        f" those of other ranks in {percent_text(median(known), 1.0)} %"
    )
    if idle >= max(LEAST_IDLE, MAINLY * share):
        return Cause(
            "launch",
            f"{delay.name} gives its GPU work too late: {seen}",
            f"py-spy dump --pid {delay.pid}  # or record -d 30: what it does meanwhile",
            "its GPU is as busy as the others' in a profile of the step",
        )
    if share < LEAST_IDLE:
        return None
    return Cause(
        "compute",
        f"{delay.name} computes longer on its GPU: {seen}",
        f"nsys profile, or torch.profiler, of rank {delay.rank} and of another one",
        "the rank is as fast as the others with their data, or on their GPU",
    )


def _gpus(delay: Delay) -> tuple[GpuEvidence | None, list[GpuEvidence]]:
    """The GPU of the late rank, and those of the ranks that are not late."""
    host, evidence = delay.look.host, delay.look.evidence
    own = delay.own.gpu
    buses = {one.gpu for rank, one in evidence.items() if rank not in delay.late} - {own, ""}
    return host.gpus.get(own), [host.gpus[bus] for bus in buses if bus in host.gpus]
