"""GPUs that the environment hides."""

from collections.abc import Iterator

from busbw.check.base import Check, no_environment, not_offered, passed, warned
from busbw.check.machine import Machine
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer

VARIABLE = "CUDA_VISIBLE_DEVICES"

ROW = CheckRow(
    id="BW188",
    name="cuda-visible-devices",
    layer=Layer.NCCL,
    title=f"{VARIABLE}, compared with the GPUs of this host",
    right="not set, or all GPUs of this host, each once",
    why="Ranks that see different subsets of the GPUs number them differently, and NCCL may not use peer-to-peer and NVLink SHARP "
    "between them. An index that does not exist hides all that follow it.",
    fix=f"unset {VARIABLE}",
    stays="remove it from the job script and the shell's startup files; a scheduler that shares hosts sets it intentionally",
    reads=("environment", "NVML"),
    sources=("CUDA C++ programming guide, environment variables",),
)


def look(machine: Machine) -> Iterator[Found]:
    """The variable; an empty value hides all."""
    if machine.environment is None:
        yield no_environment()
        return
    value = machine.environment.get(VARIABLE)
    if value is None:
        yield passed("", f"{VARIABLE} is not set")
        return
    yield _judge(machine, value)


def _judge(machine: Machine, value: str) -> Found:
    here = Evidence(f"${VARIABLE}", value, "not set")
    count = len(machine.host.gpus)
    if not count:
        return not_offered("", f"{VARIABLE}={value}: {machine.host.gpu_reason or 'the GPUs of this host are unknown'}", here)
    words = [word.strip() for word in value.split(",") if word.strip()]
    evidence = (here, Evidence("NVML", f"{count} GPUs"))
    absent = [word for word in words if word.lstrip("-").isdecimal() and not 0 <= int(word) < count]
    if not words or absent:
        what = f"GPU {absent[0]} does not exist: it and all after it are hidden" if absent else "all GPUs are hidden"
        return warned("", f"{VARIABLE}={value}: {what}", *evidence, fix=ROW.fix)
    if len(set(words)) < len(words):
        return warned("", f"{VARIABLE}={value} names a GPU twice", *evidence, fix=ROW.fix)
    if len(words) < count:
        return warned("", f"{VARIABLE}={value} shows {len(words)} of {count} GPUs", *evidence, fix=ROW.fix)
    return passed("", f"{VARIABLE}={value} shows all {count} GPUs", *evidence)


CHECK = Check(ROW, look)
