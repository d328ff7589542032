"""The files that NCCL loads: libraries, configuration, plugins and topology."""

from collections.abc import Iterator

from busbw.check.base import ENVIRONMENT, check, not_offered, passed, skipped, unread, warned
from busbw.check.machine import Machine
from busbw.check.nccl.settings import (
    LIBRARIES_CALL,
    REMOVE_VARIABLE,
    VARIABLE_SOURCES,
    NcclSetting,
    files,
    libraries,
    variable,
)
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Finding
from busbw.core.env import shown
from busbw.core.finding import CheckRow, Layer
from busbw.host.nccl_libraries import live, located
from busbw.host.nccl_packages import FILE_VARIABLE, SYSTEM, parse
from busbw.host.source import Reading
from busbw.model import topo_xml

LIBRARIES = CheckRow(
    id="BW183",
    name="nccl-libraries",
    layer=Layer.NCCL,
    title="versions of libnccl on this machine",
    right="one version, or several copies of it",
    why=(
        "PyTorch from pip loads the NCCL of its Python package. nccl-tests loads the one of the "
        "system or of LD_LIBRARY_PATH. The NCCL that was tested is then not the one used for "
        "training, and has other defaults, algorithms and bugs."
    ),
    fix=(
        "for the test: export LD_LIBRARY_PATH={folder}:$LD_LIBRARY_PATH; or install the same"
        " version"
    ),
    stays="set it in the job script, or keep the versions of both packages equal",
    reads=("the Python package nvidia-nccl", "LD_LIBRARY_PATH", "library folders of the system"),
    sources=("NCCL user guide, environment variables",),
)
MISSING = "no such file or directory"
INTERNAL = ("none", "static_plugin")  # no file: NCCL's own, or symbols of the program
FOLDERS = "LD_LIBRARY_PATH and the system's folders"
NET_VARIABLE = "NCCL_NET_PLUGIN"
TUNER_VARIABLE = "NCCL_TUNER_PLUGIN"
PROFILER_VARIABLE = "NCCL_PROFILER_PLUGIN"
TOPO_VARIABLE = "NCCL_TOPO_FILE"


@check(LIBRARIES)
def check_libraries(machine: Machine) -> Iterator[Finding]:
    """The versions of all libnccl.so.2 that a program may load."""
    installed = libraries(machine)
    if installed is None:
        yield unread("", machine.call(LIBRARIES_CALL, live), "the libraries of NCCL")
        return
    if not installed:
        yield skipped("no libnccl.so.2 in the usual places")
        return
    evidence = [
        Evidence(library.path, library.version or "no version in the file") for library in installed
    ]
    versions = {library.version for library in installed}
    if "" in versions:
        yield not_offered("", "a libnccl.so.2 does not contain its version", *evidence)
    elif len(versions) == 1:
        yield passed("", f"NCCL {versions.pop()}", *evidence)
    else:
        named = ", ".join(f"{library.version} ({library.by})" for library in installed)
        folder = installed[0].path.rpartition("/")[0]
        yield warned(
            "",
            f"several versions of NCCL: {named}",
            *evidence,
            fix=filled(LIBRARIES.fix, folder=folder),
        )


CONF_FILES = CheckRow(
    id="BW184",
    name="nccl-conf-files",
    layer=Layer.NCCL,
    title="/etc/nccl.conf and the user's file",
    right=(
        "none, or lines NAME=VALUE without white space, quotes and export, that do not conflict"
        " with the environment"
    ),
    why=(
        "Every NCCL program silently reads these files. The environment has precedence, then "
        "NCCL_CONF_FILE or ~/.nccl.conf, then /etc/nccl.conf. They are not shell scripts: quotes "
        "become part of the value, and a space becomes part of the name."
    ),
    fix="edit {path}",
    stays="permanent; keep the file the same on all hosts",
    reads=(SYSTEM, "~/.nccl.conf", f"${FILE_VARIABLE}"),
    sources=("NCCL user guide, environment variables", "NCCL, src/misc/param.cc"),
)


@check(CONF_FILES, needs=ENVIRONMENT)
def check_conf_files(machine: Machine) -> Iterator[Finding]:
    for path in files(machine):
        yield from _judge_file(machine, path)


def _judge_file(machine: Machine, path: str) -> Iterator[Finding]:
    reading = machine.read(path)
    if reading.text is None and not reading.reason.endswith(MISSING):
        yield unread(path, reading, "the file")
        return
    environment = machine.environment or {}
    if reading.text is None:
        yield _judge_no_file(path, named=environment.get(FILE_VARIABLE) == path)
        return
    lines = [
        (line, shown(line.name, line.value))
        for line in parse((reading.data or b"").decode("utf-8", "replace"))
    ]
    evidence = [Evidence(f"{path}:{line.line}", f"{line.name}={value}") for line, value in lines]
    faulty = [(line, value) for line, value in lines if line.fault]
    hidden = [
        (line, value)
        for line, value in lines
        if line.name in environment and environment[line.name] != value
    ]
    for line, value in faulty:
        yield warned(
            path,
            f"line {line.line}: {line.fault}",
            *evidence,
            fix=filled(
                "edit {path}: write {text}", path=path, text=f"{_clean(line.name)}={_clean(value)}"
            ),
        )
    for line, value in hidden:
        other = environment[line.name] or "an empty value"
        message = f"{line.name}={value} has no effect: the environment has {other}"
        yield warned(
            path,
            message,
            *evidence,
            Evidence(f"${line.name}", other),
            fix=filled("edit {path}, or unset {name}", path=path, name=line.name),
        )
    if not faulty and not hidden:
        yield passed(
            path, f"it sets {', '.join(line.name for line, _ in lines) or 'nothing'}", *evidence
        )


def _judge_no_file(path: str, *, named: bool) -> Finding:
    """The finding where a file that NCCL reads does not exist, and a variable may name it."""
    if not named:
        return passed(path, "there is no such file")
    message = f"{FILE_VARIABLE}={path}, but there is no such file"
    evidence = Evidence(f"${FILE_VARIABLE}", path, "a file")
    return warned(path, message, evidence, fix=f"unset {FILE_VARIABLE}")


def _clean(text: str) -> str:
    return text.removeprefix("export ").strip().strip("'\"").strip()


def _judge_plugin(machine: Machine, setting: NcclSetting, kind: str, without: str) -> Finding:
    """The libraries of a variable, a list since NCCL 2.27; `without`: what NCCL does otherwise."""
    names = [name for name in setting.value.split(",") if name and name.lower() not in INTERNAL]
    if not names:
        return passed("", f"{setting.text} uses no library", setting.evidence())
    readings = {name: _locate(machine, kind, name) for name in names}
    evidence = [setting.evidence()]
    for name, reading in readings.items():
        where = name if "/" in name else FOLDERS
        evidence.append(Evidence(where, reading.text or "no such library"))
    missing = next((name for name, reading in readings.items() if reading.text == ""), "")
    if missing:
        tried = missing if "/" in missing else f"{missing} or libnccl-{kind}-{missing}.so"
        message = f"{setting.text}: there is no {tried}; {without}"
        return warned("", message, *evidence, fix=setting.unset)
    unknown = next((reading.reason for reading in readings.values() if reading.text is None), "")
    if unknown:
        message = f"whether the library of {setting.text} exists is unknown: {unknown}"
        return not_offered("", message, setting.evidence())
    paths = ", ".join(reading.text or "" for reading in readings.values())
    return passed("", f"{setting.text} is {paths}", *evidence)


def _locate(machine: Machine, kind: str, name: str) -> Reading:
    """The path of a plugin's library; '' if there is none."""
    return machine.call(f"nccl-plugin {kind} {name}", lambda: located(name, kind))


NET_PLUGIN = CheckRow(
    id="BW185",
    name="nccl-net-plugin",
    layer=Layer.NCCL,
    title=f"library of {NET_VARIABLE}",
    right="not set, none, or a library that exists",
    why=(
        "An image built for another fabric names a plugin that the host lacks, or the reverse. NCCL"
        " then uses its own InfiniBand or socket transport, which on some fabrics is many times"
        " slower."
    ),
    fix=f"unset {NET_VARIABLE}",
    stays=REMOVE_VARIABLE,
    reads=(*VARIABLE_SOURCES, "LD_LIBRARY_PATH", "library folders of the system"),
    sources=(f"NCCL user guide, {NET_VARIABLE}",),
)


@variable(NET_PLUGIN, NET_VARIABLE)
def check_net_plugin(machine: Machine, setting: NcclSetting) -> Finding:
    return _judge_plugin(machine, setting, "net", "NCCL uses its own network")


TUNER_PLUGIN = CheckRow(
    id="BW186",
    name="nccl-tuner-plugin",
    layer=Layer.NCCL,
    title=f"library of {TUNER_VARIABLE}",
    right="not set, none, or a library that exists",
    why="If it is missing, its algorithm choices are not used, without an error.",
    fix=f"unset {TUNER_VARIABLE}",
    stays=REMOVE_VARIABLE,
    reads=(*VARIABLE_SOURCES, "LD_LIBRARY_PATH", "library folders of the system"),
    sources=(f"NCCL user guide, {TUNER_VARIABLE}",),
)


@variable(TUNER_PLUGIN, TUNER_VARIABLE)
def check_tuner_plugin(machine: Machine, setting: NcclSetting) -> Finding:
    return _judge_plugin(machine, setting, "tuner", "NCCL chooses algorithms itself")


PROFILER_PLUGIN = CheckRow(
    id="BW187",
    name="nccl-profiler-plugin",
    layer=Layer.NCCL,
    title=f"library of {PROFILER_VARIABLE}",
    right="not set, none, or a library that exists",
    why=(
        "If it is missing, nothing is recorded, without an error. If it is left enabled after a"
        " capture, it costs time in each operation."
    ),
    fix=f"unset {PROFILER_VARIABLE}",
    stays=REMOVE_VARIABLE,
    reads=(*VARIABLE_SOURCES, "LD_LIBRARY_PATH", "library folders of the system"),
    sources=(f"NCCL user guide, {PROFILER_VARIABLE}",),
)


@variable(PROFILER_PLUGIN, PROFILER_VARIABLE)
def check_profiler_plugin(machine: Machine, setting: NcclSetting) -> Finding:
    return _judge_plugin(machine, setting, "profiler", "nothing is recorded")


TOPO_FILE = CheckRow(
    id="BW194",
    name="nccl-topo-file",
    layer=Layer.NCCL,
    title=f"topology file of {TOPO_VARIABLE}",
    right="not set, or a file for this machine type",
    why=(
        "Virtual machines hide which GPU and NIC share a PCIe switch, so clouds provide a file with"
        " the topology. Without it NCCL pairs GPUs with distant NICs. On bare metal, a file from"
        " another machine has the same effect."
    ),
    fix=f"unset {TOPO_VARIABLE}",
    stays=REMOVE_VARIABLE,
    reads=(*VARIABLE_SOURCES, f"${TOPO_VARIABLE}"),
    sources=("NCCL user guide, NCCL_TOPO_FILE",),
)


@variable(TOPO_FILE, TOPO_VARIABLE)
def check_topo_file(machine: Machine, setting: NcclSetting) -> Finding:
    reading = machine.read(setting.value)
    if reading.text is None and not reading.reason.endswith(MISSING):
        return unread("", reading, f"the file of {setting.text}")
    if reading.text is None:
        return warned(
            "",
            f"{setting.text}: there is no such file",
            setting.evidence("a file"),
            fix=setting.unset,
        )
    if "<system" not in reading.text:
        first = Evidence(setting.value, reading.text.partition("\n")[0][:80], "<system version=...")
        return warned(
            "",
            f"{setting.text} is not an NCCL topology",
            setting.evidence(),
            first,
            fix=setting.unset,
        )
    fault = topo_xml.fault(reading.data or b"", setting.value)
    if fault:
        return warned(
            "",
            f"{setting.text} is cut or damaged: {fault.removeprefix(f'{setting.value}: ')}",
            setting.evidence("a whole topology"),
            fix=setting.unset,
        )
    if not machine.hypervisor:
        message = f"{setting.text} replaces what NCCL detects, and this is not a virtual machine"
        return warned("", message, setting.evidence("not set"), fix=setting.unset)
    return passed(
        "", f"{setting.text} is a topology, and this is a virtual machine", setting.evidence()
    )
