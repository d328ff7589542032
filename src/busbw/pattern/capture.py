"""Runs a command that records what its ranks send.

busbw's profiler plugin records the calls of NCCL. A recorder inside each rank's Python
(recorder/sitecustomize.py) saves, while it runs, the dump of PyTorch's Flight Recorder, which has
the calls of Gloo too, and the steps of a training under DistributedDataParallel.
"""

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from busbw.core.env import CAPTURE
from busbw.core.errors import NoMeasurement, UsageError
from busbw.core.pattern import Pattern
from busbw.host import net_plugin
from busbw.launch import wrap_command
from busbw.measure.record import save
from busbw.pattern.pattern_lines import lines
from busbw.pattern.rank_ends import notes
from busbw.pattern.registry import NoCall, load
from busbw.pattern.unfinished import KEPT

LAUNCH_FILE = ".launch"  # which rank 0 writes
RECORDER = Path(__file__).parent / "recorder"
# As many calls as a rank of a few hundred steps makes; PyTorch keeps 2000 by default.
FLIGHT_RECORDER_SIZE = ("TORCH_FR_BUFFER_SIZE", "20000")
ONLY_PYTORCH = "only PyTorch's own record is made, without the GPU's times"
OTHER_HOST = "rank 0 was started by busbw on another host, which says what was recorded"
NOTHING_HINT = (
    "capture needs NCCL 2.24 or newer, loaded dynamically (NCCL_DEBUG=INFO shows what it loads), or"
    " PyTorch 2.7 or newer, whose ranks end by themselves and start without python -I or -S"
)

KEEP_HINT = "record again, into a folder that stays: --output FOLDER"
NO_CALL_HINT = "run two ranks or more: a rank that is alone sends nothing"


def variables(folder: Path, mode: str, steps: int) -> tuple[dict[str, str], str]:
    """The variables of the ranks, and why NCCL's calls cannot be recorded, '' if they can.

    The training ends after `steps` steps, 0 for never. UsageError if another profiler is set.
    """
    values = {CAPTURE.folder: str(folder), CAPTURE.mode: mode, CAPTURE.launch: uuid.uuid4().hex}
    if steps:
        values[CAPTURE.steps] = str(steps)
    name, size = FLIGHT_RECORDER_SIZE
    values[name] = os.environ.get(name, size)
    values |= python_path()
    plugin = os.environ.get(CAPTURE.plugin)
    if plugin:
        raise UsageError(
            f"{CAPTURE.plugin}={plugin} is set, and NCCL loads only one profiler",
            f"unset {CAPTURE.plugin}",
        )
    try:
        library = net_plugin.find()
        net_plugin.check(library)
    except NoMeasurement as error:
        return values, error.message
    return values | {CAPTURE.plugin: str(library)}, ""


def python_path() -> dict[str, str]:
    """The variable by which Python starts the recorder."""
    paths = [str(RECORDER), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}


def make_folder(folder: Path) -> None:
    """UsageError if it has files, or cannot be made."""
    if folder.is_dir() and any(folder.iterdir()):
        raise UsageError(f"{folder}: the folder is not empty", "name a new folder for each capture")
    try:
        # The plugin's files in it have the mode of the umask.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror}", "name a folder that can be made") from error


def run(
    command: Sequence[str],
    values: dict[str, str],
    stdout: int | None = None,
    limit_s: float | None = None,
    *,
    is_part: bool = False,
    on_signal: Callable[[int], None] | None = None,
) -> int:
    """Run a command with the variables on all of its ranks; returns its exit code.

    `stdout`: the file descriptor for its output, None for that of this process. TimedOut after
    `limit_s` seconds. `is_part`: more follows it; then KeyboardInterrupt if a signal ended it.
    """
    line = wrap_command.command_line(command, values)
    environ = {**os.environ, **values}
    return wrap_command.run(line, environ, stdout, limit_s, is_part=is_part, on_signal=on_signal)


def has_rank_0(folder: Path, values: Mapping[str, str]) -> bool:
    """Whether the command that ran with these variables started rank 0; True if that is unknown.

    torchrun is started on each host, and the hosts may share the folder: then one of them is to
    say what was recorded.
    """
    try:
        return (folder / LAUNCH_FILE).read_text() == values[CAPTURE.launch]
    except OSError:
        return True


def is_empty(folder: Path) -> bool:
    """Whether no rank has recorded anything. NoMeasurement if the folder cannot be read."""
    try:
        return not any(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise NoMeasurement(
            f"{folder}: {error.strerror}: it was removed or changed while the command ran",
            KEEP_HINT,
        ) from error


def pattern(folder: Path) -> Pattern:
    """The pattern of the ranks, and who went first; NoMeasurement if no rank, or no call, was
    recorded.
    """
    if is_empty(folder):
        raise NoMeasurement(f"no rank of the command was recorded: {folder} is empty", NOTHING_HINT)
    try:
        recorded = load([str(folder)])
    except NoCall as error:
        raise NoMeasurement(error.message, NO_CALL_HINT) from error
    recorded.header.notes += notes(folder)
    return recorded


def keep(recorded: Pattern, folder: Path) -> Path:
    """Save a pattern to KEPT in the folder; NoMeasurement if that cannot be written."""
    file = folder / KEPT
    save(b"".join(lines(recorded)), file, f"free some space, then: busbw show {folder}")
    return file
