"""Space and inodes of file systems.

A file system whose server does not answer is given up after a while.
"""

import json
import os
import threading
from pathlib import Path

from busbw.host.os_queries import room
from busbw.host.source import Source, once

CALL = "file systems"
LIMIT_S = 5.0
SILENT = f"no answer in {LIMIT_S:g} s"
PATHS = ("/", "/tmp", "/var", "/dev/shm")


@once
def read_file_systems(source: Source) -> dict[str, dict[str, int | str]] | None:
    """By path: what `file_systems` says, live or recorded; None if a snapshot has none."""
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.home raises without a home
    text = source.call(CALL, lambda: file_systems((*PATHS, home))).text
    return None if text is None else dict(json.loads(text))


def file_systems(paths: tuple[str, ...]) -> str:
    """JSON by path: what `room` says, and {"device"}; or {"error"}.

    All paths at once, each in a thread: statvfs(2) of a dead mount blocks until its server is back.
    Paths that do not exist are left out.
    """
    found: dict[str, dict[str, int | str]] = {}
    threads = [
        threading.Thread(target=_look, args=(path, found), daemon=True)
        for path in dict.fromkeys(paths)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    said = dict(found)  # threads that are late may still write
    return json.dumps(
        {
            path: said.get(path, {"error": SILENT})
            for path in dict.fromkeys(paths)
            if said.get(path) != {}
        }
    )


def _look(path: str, found: dict[str, dict[str, int | str]]) -> None:
    try:
        found[path] = {**room(path), "device": Path(path).stat().st_dev}
    except FileNotFoundError:
        found[path] = {}
    except OSError as error:
        found[path] = {"error": str(error.strerror).lower()}
