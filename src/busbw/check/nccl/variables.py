"""Names and values of variables, and variables for debugging.

check/nccl/variables.csv has the names that NCCL reads.
"""

from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache

import msgspec

from busbw.check.base import ENVIRONMENT, check, judged, not_offered, passed, warned
from busbw.check.machine import Machine
from busbw.check.nccl.plugins import plugin_with
from busbw.check.nccl.settings import (
    REMOVE_VARIABLE,
    VARIABLE_SOURCES,
    NcclSetting,
    settings,
    variable,
)
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer
from busbw.core.sizes import parse_int
from busbw.core.table_file import rows

# Names that images and builds use for library paths.
OTHERS = frozenset(
    f"NCCL_{name}"
    for name in (
        "HOME",
        "ROOT",
        "ROOT_DIR",
        "DIR",
        "PATH",
        "INCLUDE_DIR",
        "LIB_DIR",
        "LIBRARY",
        "VERSION",
    )
)
# Prefixes of variables that nccl-tests and plugins read.
PREFIXES = (
    "NCCL_TESTS_", "NCCL_INSPECTOR_", "NCCL_PROFILER_", "NCCL_TUNER_", "NCCL_SHARP_", "NCCL_IBEXT_",
    "NCCL_GPUDIRECTTCPX_", "NCCL_FASTRAK_", "NCCL_OFI_", "NCCL_SHIMNET_", "NCCL_TELEMETRY_",
    "NCCL_GPUVIZ_", "NCCL_PLUGIN_", "NCCL_UCX_",
)  # fmt: skip
DEBUG_VARIABLE, FILE_VARIABLE = "NCCL_DEBUG", "NCCL_DEBUG_FILE"
SUBSYS_VARIABLE, LAUNCH_VARIABLE = "NCCL_DEBUG_SUBSYS", "CUDA_LAUNCH_BLOCKING"
LEVELS_WITH_SUBSYS = ("INFO", "TRACE", "ABORT")
LEVELS = ("VERSION", "WARN", *LEVELS_WITH_SUBSYS)
PER_OPERATION = {"COLL", "TUNING", "CALL", "ALL"}  # subsystems with a line for each operation
STREAMS = ("/dev/stdout", "/dev/stderr")

DEBUG = CheckRow(
    id="BW182",
    name="nccl-debug",
    layer=Layer.NCCL,
    title=f"{DEBUG_VARIABLE}, {FILE_VARIABLE} and {LAUNCH_VARIABLE}",
    right="not TRACE, and no line for each operation; a file with %h and %p in its name",
    why=(
        "INFO prints how NCCL sets up each communicator. TRACE, and INFO with COLL in"
        " NCCL_DEBUG_SUBSYS, print a line for each operation, which takes time, into the job's"
        " output if there is no file for it. Processes that share a file overwrite each other's"
        f" lines. NCCL prints nothing at a level that it does not know. With {LAUNCH_VARIABLE} each"
        " launch waits for its kernel."
    ),
    fix=f"export {DEBUG_VARIABLE}=INFO",
    stays=REMOVE_VARIABLE,
    reads=VARIABLE_SOURCES,
    sources=("NCCL user guide, NCCL_DEBUG and NCCL_DEBUG_FILE",),
)
CUDA_VARIABLE = "CUDA_VISIBLE_DEVICES"
# Variables that PyTorch reads with the prefix TORCH_, and in some versions also by these names.
RENAMED = (
    "NCCL_ASYNC_ERROR_HANDLING",
    "NCCL_BLOCKING_WAIT",
    "NCCL_DESYNC_DEBUG",
    "NCCL_ENABLE_TIMING",
    "NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK",
)
BLOCKING = "TORCH_NCCL_BLOCKING_WAIT"
SWITCHES = ("_DISABLE", "_ENABLE")
TRUE_WORDS = ("true", "yes", "on", "y", "t")


@variable(DEBUG, DEBUG_VARIABLE, FILE_VARIABLE, SUBSYS_VARIABLE, LAUNCH_VARIABLE)
def check_debug(machine: Machine, setting: NcclSetting) -> Finding:
    if setting.name == LAUNCH_VARIABLE:
        if setting.value == "0":
            return passed(LAUNCH_VARIABLE, f"{setting.text} is the default", setting.evidence())
        message = f"{setting.text}: each launch waits for its kernel, and nothing overlaps"
        return warned(LAUNCH_VARIABLE, message, setting.evidence("not set"), fix=setting.unset)
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
            fix=setting.change_to(f"{setting.value}.%h.%p"),
        )
    variables = settings(machine)
    level = variables.get(DEBUG_VARIABLE)
    if setting.name == SUBSYS_VARIABLE:
        subsystems = set(setting.value.upper().lstrip("^").split(","))
        per_operation = bool(subsystems & PER_OPERATION) != setting.value.startswith("^")
        is_read = level is not None and level.value.upper() in LEVELS_WITH_SUBSYS
        asked_for = FILE_VARIABLE in variables  # as patterns are read from such files
        better, excessive = "INIT,ENV,NET", is_read and per_operation and not asked_for
    elif setting.value.upper() not in LEVELS:
        message = (
            f"{setting.text} is not a level that NCCL knows: it prints nothing, not even errors"
        )
        return warned(
            setting.name,
            message,
            setting.evidence(", ".join(LEVELS)),
            fix=setting.change_to("WARN"),
        )
    else:
        better, excessive = "INFO", setting.value.upper() == "TRACE"
    return judged(
        right=not excessive,
        subject=setting.name,
        good=setting.text,
        bad=f"{setting.text} prints a line for each operation",
        evidence=(setting.evidence(better if excessive else ""),),
        fix=setting.change_to(better),
    )


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
def check_visible_devices(machine: Machine) -> Iterator[Finding]:
    """The GPUs that the variable shows; an empty value hides all."""
    value = (machine.environment or {}).get(CUDA_VARIABLE)
    if value is None:
        yield passed("", f"{CUDA_VARIABLE} is not set")
        return
    yield _judge_visible_devices(machine, value)


def _judge_visible_devices(machine: Machine, value: str) -> Finding:
    variable_evidence = Evidence(f"${CUDA_VARIABLE}", value, "not set")
    count = len(machine.host.gpus)
    if not count:
        reason = machine.host.gpu_reason or "the GPUs of this host are unknown"
        return not_offered("", f"{CUDA_VARIABLE}={value}: {reason}", variable_evidence)
    words = [word.strip() for word in value.split(",") if word.strip()]
    evidence = (variable_evidence, Evidence("NVML", f"{count} GPUs"))
    absent = [word for word in words if word.lstrip("-").isdecimal() and not 0 <= int(word) < count]
    if not words or absent:
        effect = "all GPUs are hidden"
        if absent:
            effect = f"GPU {absent[0]} does not exist: it and all after it are hidden"
        return warned("", f"{CUDA_VARIABLE}={value}: {effect}", *evidence, fix=VISIBLE_DEVICES.fix)
    if len(set(words)) < len(words):
        message = f"{CUDA_VARIABLE}={value} names a GPU twice"
        return warned("", message, *evidence, fix=VISIBLE_DEVICES.fix)
    if len(words) < count:
        message = f"{CUDA_VARIABLE}={value} shows {len(words)} of {count} GPUs"
        return warned("", message, *evidence, fix=VISIBLE_DEVICES.fix)
    return passed("", f"{CUDA_VARIABLE}={value} shows all {count} GPUs", *evidence)


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
    reads=VARIABLE_SOURCES,
    sources=("PyTorch documentation, ProcessGroupNCCL environment variables",),
)


@variable(TORCH_NAMES, *RENAMED, BLOCKING)
def check_torch_names(machine: Machine, setting: NcclSetting) -> Finding:
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
        fix=NcclSetting(new, setting.value, setting.file).change_to(setting.value),
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
    stays=REMOVE_VARIABLE,
    reads=VARIABLE_SOURCES,
    sources=(
        "NCCL user guide, environment variables",
        "names in the libraries of NCCL 2.14.3 to 2.32.3",
    ),
)


class NcclVariable(msgspec.Struct, frozen=True):
    """A variable that a release of NCCL reads."""

    name: str


@cache
def known_names() -> frozenset[str]:
    """The names of all variables of the table."""
    return frozenset(row.name for row in rows("check/nccl/variables.csv", NcclVariable))


def _similar(name: str) -> str:
    """The only known name that begins with this one, else the closest; '' if none is close."""
    longer = [known for known in known_names() if known.startswith(name)]
    close = longer if len(longer) == 1 else get_close_matches(name, known_names(), 1, cutoff=0.85)
    return close[0] if close else ""


@check(VARIABLE_NAMES, needs=ENVIRONMENT)
def check_names(machine: Machine) -> Iterator[Finding]:
    """A finding for each variable of NCCL that no version reads."""
    variables = settings(machine)
    named = [
        setting
        for name, setting in variables.items()
        if name.startswith("NCCL_") and not name.startswith(PREFIXES)
    ]
    strange = [
        setting
        for setting in named
        if setting.name not in known_names() | OTHERS
        and setting.name not in RENAMED
        and not plugin_with(setting.name, machine.environment or {})
    ]
    for setting in strange:
        similar = _similar(setting.name)
        suggestion = f"; the closest name is {similar}" if similar else ""
        yield warned(
            setting.name,
            f"no version of NCCL from 2.14 to 2.32 reads {setting.name}{suggestion}",
            setting.evidence(similar),
            fix=setting.unset,
        )
    if not strange:
        yield passed(
            "",
            f"{len(named)} variables, all known" if named else "no NCCL variable is set",
            *(setting.evidence() for setting in named),
        )


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
    stays=REMOVE_VARIABLE,
    reads=VARIABLE_SOURCES,
    sources=("NCCL, src/misc/param.cc",),
)


@check(VALUES, needs=ENVIRONMENT)
def check_values(machine: Machine) -> Iterator[Finding]:
    """A finding for each variable in _DISABLE or _ENABLE that is not a number."""
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
        fix = setting.change_to(meant)
        if meant == "1" and setting.name.endswith("_DISABLE"):
            # it has disabled nothing so far, and jobs ran
            fix = f"{setting.unset}; only if it must be disabled: {fix}"
        yield warned(
            setting.name, f"NCCL reads {setting.text} as 0", setting.evidence("a number"), fix=fix
        )
    if not words:
        named = ", ".join(setting.text for setting in switches)
        yield passed(
            "",
            f"numbers: {named}" if named else "no NCCL switch is set",
            *(setting.evidence() for setting in switches),
        )
