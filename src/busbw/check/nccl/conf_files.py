"""The files that silently set NCCL variables."""

from collections.abc import Iterator

from busbw.check.base import Check, no_environment, passed, unread, warned
from busbw.check.machine import Machine
from busbw.check.nccl.settings import files
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.env import shown
from busbw.host.nccl_conf import FILE_VARIABLE, SYSTEM, parse

MISSING = "no such file or directory"

ROW = CheckRow(
    id="BW184",
    name="nccl-conf-files",
    layer=Layer.NCCL,
    title="/etc/nccl.conf and the user's file",
    right="none, or lines NAME=VALUE without white space, quotes and export, that do not conflict with the environment",
    why="Every NCCL program silently reads these files. The environment has precedence, then NCCL_CONF_FILE or ~/.nccl.conf, then "
    "/etc/nccl.conf. They are not shell scripts: quotes become part of the value, and a space becomes part of the name.",
    fix="edit {path}",
    stays="permanent; keep the file the same on all hosts",
    reads=(SYSTEM, "~/.nccl.conf", f"${FILE_VARIABLE}"),
    sources=("NCCL user guide, environment variables", "NCCL, src/misc/param.cc"),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each file."""
    if machine.environment is None:
        yield no_environment()
        return
    for path in files(machine):
        yield from _file(machine, path)


def _file(machine: Machine, path: str) -> Iterator[Found]:
    reading = machine.read(path)
    if reading.text is None and not reading.reason.endswith(MISSING):
        yield unread(path, reading, "the file")
        return
    environment = machine.environment or {}
    if reading.text is None:
        if environment.get(FILE_VARIABLE) == path:
            message = f"{FILE_VARIABLE}={path}, but there is no such file"
            yield warned(path, message, Evidence(f"${FILE_VARIABLE}", path, "a file"), fix=f"unset {FILE_VARIABLE}")
        else:
            yield passed(path, "there is no such file")
        return
    lines = [(line, shown(line.name, line.value)) for line in parse((reading.data or b"").decode("utf-8", "replace"))]
    seen = [Evidence(f"{path}:{line.line}", f"{line.name}={value}") for line, value in lines]
    faulty = [(line, value) for line, value in lines if line.fault]
    hidden = [(line, value) for line, value in lines if line.name in environment and environment[line.name] != value]
    for line, value in faulty:
        yield warned(
            path,
            f"line {line.line}: {line.fault}",
            *seen,
            fix=filled("edit {path}: write {text}", path=path, text=f"{_clean(line.name)}={_clean(value)}"),
        )
    for line, value in hidden:
        other = environment[line.name] or "an empty value"
        message = f"{line.name}={value} has no effect: the environment has {other}"
        yield warned(
            path, message, *seen, Evidence(f"${line.name}", other), fix=filled("edit {path}, or unset {name}", path=path, name=line.name)
        )
    if not faulty and not hidden:
        yield passed(path, f"it sets {', '.join(line.name for line, _ in lines) or 'nothing'}", *seen)


def _clean(text: str) -> str:
    return text.removeprefix("export ").strip().strip("'\"").strip()


CHECK = Check(ROW, look)
