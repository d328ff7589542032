"""Space and inodes of the file systems that jobs write to."""

from collections.abc import Iterator

from busbw.check.base import Check, failed, not_offered, passed, warned
from busbw.check.machine import Machine
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.file_systems import SILENT, read_file_systems

SHM = "/dev/shm"  # its space is judged by shm-size
LOW, MANY_BYTES, MANY_FILES = 0.05, 20 << 30, 100_000  # less than this share and than this number is little
FULL_SHARE, FULL_BYTES, FULL_FILES = 0.01, 256 << 20, 1000
DEAD = "mount | grep {path}; the server of this mount must answer again, or: umount -l {path}"
SPACE = "du -xh --max-depth=2 {path} | sort -h | tail; remove what ended jobs left"
INODES = "du -x --inodes --max-depth=3 {path} | sort -n | tail; remove what ended jobs left"

ROW = CheckRow(
    id="BW263",
    name="disk-space",
    layer=Layer.LIMITS,
    title="space and inodes of /, /tmp, /var, /dev/shm and the home directory",
    right=f"{LOW:.0%} free, or {MANY_BYTES >> 30} GiB and {MANY_FILES} inodes, and each file system answers within 5 s",
    why="Programs end with: No space left on device. Without space in /var the logs stop, which would show why. A dead mount hangs "
    "every program that touches it.",
    fix=SPACE,
    stays="until jobs fill it again; quotas or a scheduler epilog that cleans up keep it free",
    reads=("statvfs(2)",),
    sources=("statvfs(3)",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each file system once, by the first of its paths."""
    found = read_file_systems(machine)
    if found is None:
        yield not_offered("", "the snapshot has no file systems")
        return
    seen: set[int | str] = set()
    for path, said in found.items():
        if said.get("device") not in seen:
            yield _judge(path, said)
        seen |= {said["device"]} if "device" in said else set()


def _judge(path: str, said: dict[str, int | str]) -> Found:
    where = f"statvfs({path})"
    if "error" in said:
        if said["error"] == SILENT:
            message = f"{path} does not answer: every program that touches it hangs"
            return failed(path, message, Evidence(where, SILENT, "an answer"), fix=filled(DEAD, path=path))
        return not_offered(path, f"{path} cannot be read: {said['error']}")
    total, free, files, free_files = (int(said[name]) for name in ("total", "free", "files", "free_files"))
    space, inodes = f"{free >> 20} of {total >> 20} MiB free", f"{free_files} of {files} inodes free"
    few = _few(free, total, MANY_BYTES, FULL_BYTES) if path != SHM else 0
    few_files = _few(free_files, files, MANY_FILES, FULL_FILES)
    if not few and not few_files:
        return passed(path, f"{space}{f', {inodes}' if files else ''}", Evidence(where, space))
    report = failed if 2 in (few, few_files) else warned
    seen = space if few >= few_files else inodes
    share = free / total if few >= few_files else free_files / files
    fix = filled(SPACE if few >= few_files else INODES, path=path)
    return report(path, f"{path} has {seen}", Evidence(where, seen, f"{LOW:.0%} or more"), fix=fix, weight=1 - share)


def _few(free: int, total: int, many: int, few: int) -> int:
    """2 if it is as good as full, 1 if little is left, 0 else; also for a file system that does not count."""
    if not total or free >= LOW * total or free >= many:
        return 0
    return 2 if (free < few and free < max(FULL_SHARE * total, 1)) or not free else 1


CHECK = Check(ROW, look)
