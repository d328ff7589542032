"""Copies the single file to hosts through the launch agent, and starts it there.

On each host the file is written under a temporary name, started with the Python that will run it,
and renamed only if that works. A host that fails keeps what it had.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile, ZipFile

from busbw.core.errors import NoMeasurement, UsageError
from busbw.core.version import __version__
from busbw.launch import remote
from busbw.launch.deployed import DeployedBusbw
from busbw.launch.remote_ps import SSH_FAILED
from busbw.launch.single_file import build

INSTALL_PYTHON_HINT = (
    "install Python 3.11 or newer there, or give its path: --python /opt/bin/python3.12"
)
OTHER_PYTHON_HINT = (
    "name such a Python with --python; for another processor build the file there: busbw deploy"
    " --hosts localhost"
)
# Arguments: the path, the file's bytes, the Python, seconds for its start. One line without `!`,
# which csh would read.
_RECEIVE_SCRIPT = "; ".join(
    (
        "umask 022",
        "LC_ALL=C",
        "export LC_ALL",
        'fail() { echo "error: $1" >&2; echo "hint: $2" >&2; exit 1; }',
        'if [ -d "$1" ]; then fail "$1 is a directory" "give a file: --to $1/busbw.pyz"; fi',
        "new=",
        "trap 'rm -f \"$new\"' EXIT",
        "trap 'exit 1' HUP INT TERM",
        "trap '' PIPE",  # where nobody reads the message any more, the file is removed too
        'mkdir -p "$(dirname "$1")" || exit',
        'new=$(mktemp "$1.XXXXXX") || exit',  # a file that nobody else could prepare
        'cat > "$new" || exit',
        'size=$(wc -c < "$new") || exit',
        'if [ "$size" -ne "$2" ]; then fail "$size of $2 bytes arrived" "deploy once more"; fi',
        'chmod 755 "$new" || exit',
        f'command -v "$3" > /dev/null || fail "no $3 on this host" "{INSTALL_PYTHON_HINT}"',
        'timeout "$4" "$3" "$new" -m busbw.launch.deployed || exit',
        'mv -f "$new" "$1"',
    )
)
WRONG_PYTHON_TEXT = "this file needs CPython"  # in the message of single_file.zip_main
HOST_PLACEHOLDER = "%h"  # stands for the host in a message, as in ssh's configuration


@dataclass(frozen=True, slots=True)
class DeployOutcome:
    """Hosts that ended in the same way; `problem` is '' where busbw runs.

    HOST_PLACEHOLDER in the problem and in the hint stands for a host.
    """

    hosts: tuple[str, ...]
    started: DeployedBusbw | None
    problem: str = ""
    hint: str = ""


def check_file(path: Path) -> None:
    """UsageError if a file is not a single file of busbw."""
    hint = "make dist builds one in a checkout of busbw"
    try:
        with ZipFile(path) as archive:
            names = set(archive.namelist())
    except OSError as error:
        raise UsageError(f"--file {path}: {error.strerror}", hint) from error
    except BadZipFile as error:
        raise UsageError(f"--file {path}: no single file, or only a part of one", hint) from error
    if build.DESCRIPTION not in names:
        raise UsageError(f"--file {path}: a zip file without busbw", hint)


def build_file(path: Path) -> None:
    """Build the single file of this busbw for its Python; NoMeasurement if it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        build.write(path, __version__, build.of_this_python())
    except OSError as error:
        raise NoMeasurement(
            f"{path}: {error.strerror}", "name another place with --to /path/busbw.pyz"
        ) from error


def deploy(
    hosts: Sequence[str], file: Path, to: str, python: str, limit_s: float
) -> list[DeployOutcome]:
    """Copy `file` to the path `to` on each host and start it there with `python`.

    The hosts are copied to side by side, each within `limit_s` seconds. The outcomes are those
    where busbw runs, then the others.
    """
    size = str(file.stat().st_size)
    words = ["sh", "-c", _RECEIVE_SCRIPT, "sh", to, size, python, f"{limit_s:g}"]
    inputs = dict.fromkeys(hosts, file)
    outcomes: dict[tuple[DeployedBusbw | None, str, str], list[str]] = {}
    for done in remote.run_each(dict.fromkeys(hosts, words), limit_s, inputs):
        outcomes.setdefault(_outcome(done, to), []).append(done.host)
    ordered = sorted(outcomes.items(), key=lambda item: bool(item[0][1]))
    return [DeployOutcome(tuple(names), *outcome) for outcome, names in ordered]


def _outcome(done: remote.CommandResult, to: str) -> tuple[DeployedBusbw | None, str, str]:
    """What runs on a host; else the problem and its hint."""
    if not done.problem:
        try:
            return done.answer(DeployedBusbw), "", ""
        except ValueError:
            start = done.out[:60].decode(errors="replace")
            return (
                None,
                f"unexpected answer: '{start}'",
                f"ssh {HOST_PLACEHOLDER} true must print nothing",
            )
    return None, _problem(done, to), _hint(done, to)


def _problem(done: remote.CommandResult, to: str) -> str:
    """The host's own message: its line that begins with `error:`, else the last line.

    It has the path of the file instead of the temporary one, and %h instead of the host's name, so
    that hosts with the same problem are one line.
    """
    stated = _stated(done, "error: ")
    if done.code is None:
        text = done.problem
    else:
        text = stated or done.problem.partition(": ")[2] or done.problem
    text = re.sub(re.escape(to) + r"\.[A-Za-z0-9]{6}\b", to, text)
    return re.sub(rf"(?<![\w.-]){re.escape(done.host)}(?![\w.-])", HOST_PLACEHOLDER, text)


def _hint(done: remote.CommandResult, to: str) -> str:
    if done.code is None:
        return "give each host more time, like --limit 300"
    if done.code == SSH_FAILED:
        return f"ssh {HOST_PLACEHOLDER} true must work without a password"
    if WRONG_PYTHON_TEXT in done.error:
        return OTHER_PYTHON_HINT
    space = f"ssh {HOST_PLACEHOLDER} df -h {Path(to).parent}, or name another path with --to"
    return _stated(done, "hint: ") or space


def _stated(done: remote.CommandResult, start: str) -> str:
    lines = [line for line in done.error.splitlines() if line.startswith(start)]
    return lines[0].removeprefix(start) if lines else ""
