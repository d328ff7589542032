"""GPUs in one machine that differ from each other."""

from collections import Counter
from collections.abc import Callable, Iterator

from busbw.check.base import Check, not_offered, passed, skipped, unknown, warned
from busbw.check.gpu.each import WITHHELD, no_gpus
from busbw.check.machine import Machine
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.sizes import counted, format_size
from busbw.host.gpu_health import GpuHealth
from busbw.host.nvml_health import read_health

TRAITS: tuple[tuple[str, str, Callable[[GpuHealth], str]], ...] = (
    ("model", "nvmlDeviceGetName", lambda gpu: gpu.name),
    ("VBIOS", "nvmlDeviceGetVbiosVersion", lambda gpu: gpu.vbios or ""),
    ("memory", "nvmlDeviceGetMemoryInfo", lambda gpu: format_size(gpu.memory_bytes) if gpu.memory_bytes else ""),
)

LEAVE = "leave GPU {gpu} out: CUDA_VISIBLE_DEVICES"

ROW = CheckRow(
    id="BW019",
    name="gpu-same-model",
    layer=Layer.GPU,
    title="identical GPUs in one machine",
    right="all GPUs have the same model, VBIOS and memory size",
    why="A collective runs at the pace of its slowest GPU. A replacement GPU can have an older VBIOS, with different clock, power or "
    "NVLink settings.",
    fix="ask the server vendor for VBIOS {common} for GPU {gpu}, or leave it out: CUDA_VISIBLE_DEVICES",
    stays="yes: the VBIOS is stored in the GPU",
    reads=tuple(function for _, function, _ in TRAITS),
    sources=("Meta GPU cluster monitoring, check_nvidia_smi",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each trait, compared with most GPUs."""
    gpus = read_health(machine)
    readable = [gpu for gpu in gpus.gpus if not gpu.error]
    if missing := no_gpus(machine, gpus):
        yield missing
    elif len(readable) < 2:
        yield skipped("there is no second GPU to compare with")
    else:
        found = [one for trait in TRAITS for one in _differing(readable, *trait)]
        yield from found
        silent = [gpu.label for gpu in gpus.gpus if gpu.error or not all(trait(gpu) for _, _, trait in TRAITS)]
        if silent:
            lost = any(gpu.error and WITHHELD not in gpu.error for gpu in gpus.gpus)
            yield (unknown if lost else not_offered)("", f"NVML does not report model, VBIOS and memory of {', '.join(silent)}")
        elif not found:
            first = readable[0]
            yield passed("", f"{counted(len(readable), 'identical GPU')}: {first.name}, VBIOS {first.vbios}")


def _differing(gpus: list[GpuHealth], what: str, function: str, trait: Callable[[GpuHealth], str]) -> Iterator[Found]:
    known = [(gpu, trait(gpu)) for gpu in gpus if trait(gpu)]
    common = Counter(value for _, value in known).most_common(1)[0][0] if known else ""
    for gpu, value in known:
        if value != common:
            evidence = Evidence(f"{function}, {gpu.label}", value, common)
            fix = filled(ROW.fix if what == "VBIOS" else LEAVE, common=common, gpu=gpu.index)
            yield warned(gpu.label, f"its {what} is {value}; most GPUs have {common}", evidence, fix=fix)


CHECK = Check(ROW, look)
