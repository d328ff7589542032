"""Names and values of variables, and variables for debugging."""

from collections.abc import Iterator
from difflib import get_close_matches

from busbw.check.base import ENVIRONMENT, check, not_offered, passed, warned
from busbw.check.machine import Machine
from busbw.check.nccl.known_names import NAMES, OTHERS, PREFIXES
from busbw.check.nccl.settings import READS, STAYS, Setting, settings, variable
from busbw.check.shell_words import assignment
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.sizes import parse_int

DEBUG_VARIABLE, FILE_VARIABLE = "NCCL_DEBUG", "NCCL_DEBUG_FILE"
LOUD = ("INFO", "TRACE", "ABORT")
STREAMS = ("/dev/stdout", "/dev/stderr")

DEBUG = CheckRow(
    id="BW182",
    name="nccl-debug",
    layer=Layer.NCCL,
    title=f"{DEBUG_VARIABLE} and {FILE_VARIABLE}",
    right="not set, VERSION or WARN; a file with %h and %p in its name",
    why=(
        "INFO prints thousands of lines per job into its output. With COLL in NCCL_DEBUG_SUBSYS "
        "it prints a line for each operation. Processes that share a file overwrite each other's "
        "lines."
    ),
    fix=f"export {DEBUG_VARIABLE}=WARN",
    stays=STAYS,
    reads=READS,
    sources=("NCCL user guide, NCCL_DEBUG and NCCL_DEBUG_FILE",),
)


@variable(DEBUG, DEBUG_VARIABLE, FILE_VARIABLE)
def check_debug(machine: Machine, setting: Setting) -> Found:
    if setting.name == FILE_VARIABLE:
        if "%p" in setting.value or setting.value in STREAMS:
            return passed(
                FILE_VARIABLE, f"{setting.text}: each process has its own file", setting.evidence()
            )
        message = f"{setting.text}: all processes of a host write to this file, and overwrite it"
        return warned(
            FILE_VARIABLE,
            message,
            setting.evidence("%h and %p in the name"),
            fix=setting.to(f"{setting.value}.%h.%p"),
        )
    if setting.value.upper() in LOUD:
        return warned(
            DEBUG_VARIABLE,
            f"{setting.text} prints NCCL's log in every run",
            setting.evidence("WARN"),
            fix=setting.to("WARN"),
        )
    return passed(DEBUG_VARIABLE, f"{setting.text} is quiet", setting.evidence())


CUDA_VARIABLE = "CUDA_VISIBLE_DEVICES"

VISIBLE_DEVICES = CheckRow(
    id="BW188",
    name="cuda-visible-devices",
    layer=Layer.NCCL,
    title=f"{CUDA_VARIABLE}, compared with the GPUs of this host",
    right="not set, or all GPUs of this host, each once",
    why=(
        "Ranks that see different subsets of the GPUs number them differently, and NCCL may not use"
        " peer-to-peer and NVLink SHARP between them. An index that does not exist hides all that"
        " follow it."
    ),
    fix=f"unset {CUDA_VARIABLE}",
    stays=(
        "remove it from the job script and the shell's startup files; a scheduler that shares hosts"
        " sets it intentionally"
    ),
    reads=("environment", "NVML"),
    sources=("CUDA C++ programming guide, environment variables",),
)


@check(VISIBLE_DEVICES, needs=ENVIRONMENT)
def check_visible_devices(machine: Machine) -> Iterator[Found]:
    """The variable; an empty value hides all."""
    value = (machine.environment or {}).get(CUDA_VARIABLE)
    if value is None:
        yield passed("", f"{CUDA_VARIABLE} is not set")
        return
    yield _judge_visible_devices(machine, value)


def _judge_visible_devices(machine: Machine, value: str) -> Found:
    here = Evidence(f"${CUDA_VARIABLE}", value, "not set")
    count = len(machine.host.gpus)
    if not count:
        return not_offered(
            "",
            f"{CUDA_VARIABLE}={value}:"
            f" {machine.host.gpu_reason or 'the GPUs of this host are unknown'}",
            here,
        )
    words = [word.strip() for word in value.split(",") if word.strip()]
    evidence = (here, Evidence("NVML", f"{count} GPUs"))
    absent = [word for word in words if word.lstrip("-").isdecimal() and not 0 <= int(word) < count]
    if not words or absent:
        what = (
            f"GPU {absent[0]} does not exist: it and all after it are hidden"
            if absent
            else "all GPUs are hidden"
        )
        return warned("", f"{CUDA_VARIABLE}={value}: {what}", *evidence, fix=VISIBLE_DEVICES.fix)
    if len(set(words)) < len(words):
        return warned(
            "", f"{CUDA_VARIABLE}={value} names a GPU twice", *evidence, fix=VISIBLE_DEVICES.fix
        )
    if len(words) < count:
        return warned(
            "",
            f"{CUDA_VARIABLE}={value} shows {len(words)} of {count} GPUs",
            *evidence,
            fix=VISIBLE_DEVICES.fix,
        )
    return passed("", f"{CUDA_VARIABLE}={value} shows all {count} GPUs", *evidence)


# PyTorch reads them with the prefix TORCH_. Depending on the version it also reads these names.
RENAMED = (
    "NCCL_ASYNC_ERROR_HANDLING",
    "NCCL_BLOCKING_WAIT",
    "NCCL_DESYNC_DEBUG",
    "NCCL_ENABLE_TIMING",
    "NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK",
)
BLOCKING = "TORCH_NCCL_BLOCKING_WAIT"

TORCH_NAMES = CheckRow(
    id="BW191",
    name="torch-nccl-names",
    layer=Layer.NCCL,
    title="PyTorch's variables for NCCL",
    right=f"names that begin with TORCH_; {BLOCKING} not set",
    why=(
        "NCCL_ASYNC_ERROR_HANDLING and others are read by PyTorch, not NCCL. They now begin with "
        "TORCH_, and the old names are deprecated. With blocking wait each wait() holds the CPU "
        "thread until the GPU is done, so computation and communication overlap less."
    ),
    fix="export TORCH_NCCL_ASYNC_ERROR_HANDLING=3",
    stays="set it in the job script",
    reads=READS,
    sources=("PyTorch documentation, ProcessGroupNCCL environment variables",),
)


@variable(TORCH_NAMES, *RENAMED, BLOCKING)
def check_torch_names(machine: Machine, setting: Setting) -> Found:
    if setting.name == BLOCKING:
        if parse_int(setting.value) == 0:
            return passed(BLOCKING, f"{setting.text} is the default", setting.evidence())
        return warned(
            BLOCKING,
            f"{setting.text}: each wait() blocks the CPU thread",
            setting.evidence("not set"),
            fix=setting.unset,
        )
    new = f"TORCH_{setting.name}"
    message = f"{setting.name} is PyTorch's deprecated name for {new}"
    return warned(
        setting.name,
        message,
        setting.evidence(new),
        fix=Setting(new, setting.value, setting.file).to(setting.value),
    )


VARIABLE_NAMES = CheckRow(
    id="BW192",
    name="nccl-names",
    layer=Layer.NCCL,
    title="names of NCCL variables",
    right="names that a version of NCCL reads",
    why=(
        "NCCL silently ignores a name that it does not know. For example, NCCL_TIMEOUT is often set"
        " in training scripts and does nothing."
    ),
    fix="unset {variable}",
    stays=STAYS,
    reads=READS,
    sources=(
        "NCCL user guide, environment variables",
        "names in the libraries of NCCL 2.14.3 to 2.32.3",
    ),
)


@check(VARIABLE_NAMES, needs=ENVIRONMENT)
def check_names(machine: Machine) -> Iterator[Found]:
    """All variables that begin with NCCL_."""
    variables = settings(machine)
    named = [
        setting
        for name, setting in variables.items()
        if name.startswith("NCCL_") and not name.startswith(PREFIXES)
    ]
    strange = [
        setting
        for setting in named
        if setting.name not in NAMES | OTHERS and setting.name not in RENAMED
    ]
    for setting in strange:
        near = get_close_matches(setting.name, NAMES, 1, cutoff=0.85)
        meant = f"; the closest name is {near[0]}" if near else ""
        fix = (
            f"{setting.unset}; export {assignment(near[0], setting.value)}"
            if near
            else setting.unset
        )
        yield warned(
            setting.name,
            f"no version of NCCL from 2.14 to 2.32 reads {setting.name}{meant}",
            setting.evidence(near[0] if near else ""),
            fix=fix,
        )
    if not strange:
        yield passed(
            "",
            f"{len(named)} variables, all known" if named else "no NCCL variable is set",
            *(setting.evidence() for setting in named),
        )


SWITCHES = ("_DISABLE", "_ENABLE")
TRUE_WORDS = ("true", "yes", "on", "y", "t")

VALUES = CheckRow(
    id="BW193",
    name="nccl-values",
    layer=Layer.NCCL,
    title="values of NCCL switches",
    right="numbers",
    why=(
        "NCCL reads a switch as a number, and a word as 0. NCCL_P2P_DISABLE=true disables "
        "nothing, and NCCL_NVLS_ENABLE=yes disables NVLink SHARP."
    ),
    fix="export {variable}=1",
    stays=STAYS,
    reads=READS,
    sources=("NCCL, src/misc/param.cc",),
)


@check(VALUES, needs=ENVIRONMENT)
def check_values(machine: Machine) -> Iterator[Found]:
    """All variables whose names end in _DISABLE or _ENABLE."""
    variables = settings(machine)
    switches = [
        setting
        for name, setting in variables.items()
        if name.startswith("NCCL_") and name.endswith(SWITCHES)
    ]
    words = [
        setting
        for setting in switches
        if not setting.value.strip()[:1].isdigit() and setting.value.strip()[:1] not in ("-", "+")
    ]
    for setting in words:
        meant = "1" if setting.value.lower() in TRUE_WORDS else "0"
        yield warned(
            setting.name,
            f"NCCL reads {setting.text} as 0",
            setting.evidence("a number"),
            fix=setting.to(meant),
        )
    if not words:
        named = ", ".join(setting.text for setting in switches)
        yield passed(
            "",
            f"numbers: {named}" if named else "no NCCL switch is set",
            *(setting.evidence() for setting in switches),
        )
