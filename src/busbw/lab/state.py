"""The state of labs on disk: a folder for each lab. Its state file is written before anything is
made, and removed after everything is gone.

So, whatever is killed, the file tells the next `up` or `down` what to remove, and nothing else is
ever touched.
"""

import contextlib
import shutil
from pathlib import Path

import msgspec

from busbw.core import folder_lock, json_codec
from busbw.core.errors import NoMeasurement
from busbw.lab.processes import alive
from busbw.lab.types import Lab

FOLDER = Path("/run/busbw-lab")
STATE = "state.json"
LOCK_LIMIT_S = 60.0


def locked() -> contextlib.AbstractContextManager[None]:
    """Only one process of this machine makes or removes labs' folders at a time.

    NoMeasurement if another one takes too long.
    """
    refusal = NoMeasurement(
        f"another process keeps {FOLDER.parent} locked for {LOCK_LIMIT_S:g} s", "busbw lab status"
    )
    return folder_lock.locked(FOLDER.parent, LOCK_LIMIT_S, refusal)


def boot_id() -> str:
    """Identifies the time since the last boot: pids and namespaces from before it are void."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def folder(name: str) -> Path:
    return FOLDER / name


def write(lab: Lab) -> None:
    """Write the state, making the folder if need be.

    Only root reads it: the lab's key will be there.
    """
    directory = Path(lab.folder)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = directory / f"{STATE}.new"
    new.write_bytes(json_codec.encode(lab) + b"\n")
    new.replace(directory / STATE)


def read(name: str) -> Lab | None:
    """The lab with this name; None if there is none, or a folder whose state was never written.

    NoMeasurement if the file is no state of a lab.
    """
    file = folder(name) / STATE
    try:
        return json_codec.decode(file.read_bytes(), Lab)
    except OSError:
        return None
    except msgspec.DecodeError as error:
        raise NoMeasurement(
            f"{file} is not the state of a lab: {error}",
            f"remove it, and what ip netns lists of it: rm -r {file.parent}",
        ) from error


def names() -> list[str]:
    """Names of all folders, including those of labs that are being made or were left behind."""
    try:
        return sorted(entry.name for entry in FOLDER.iterdir())
    except OSError:
        return []


def left_behind(lab: Lab) -> bool:
    """Whether the process that was to remove the lab has ended, or the machine has rebooted."""
    return lab.boot_id != boot_id() or (lab.owner is not None and not alive(lab.owner))


def forget(name: str) -> None:
    """Remove the folder of a lab, and the folder of labs after the last one."""
    shutil.rmtree(folder(name), ignore_errors=True)
    with contextlib.suppress(OSError):  # other labs are there
        FOLDER.rmdir()
