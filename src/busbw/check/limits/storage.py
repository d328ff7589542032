"""Space in /dev/shm and in the file systems that jobs write to."""

import json
from collections.abc import Iterator

from busbw.check.base import check, failed, not_offered, passed, unread, warned
from busbw.check.machine import Machine
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer
from busbw.core.sizes import counted
from busbw.host.mounts import (
    MOUNTINFO,
    NO_ANSWER,
    MountedFileSystem,
    read_file_systems,
    read_mounts,
    read_space,
)

SHM = "/dev/shm"
MIN_SHM_BYTES, DOCKER_SHM_BYTES = 1 << 30, 64 << 20  # the second is Docker's default
LEFT_OVER = "nccl-"

SHM_SIZE = CheckRow(
    id="BW134",
    name="shm-size",
    layer=Layer.LIMITS,
    title=f"size of {SHM}",
    right="1 GiB or more are free",
    why=(
        "Ranks on a host exchange data there. If it is full, NCCL fails with: failed to extend "
        "/dev/shm/nccl-..., or the job ends with a bus error."
    ),
    fix="mount -o remount,size=50% /dev/shm; for containers --shm-size=1g or --ipc=host",
    stays="in /etc/fstab (tmpfs /dev/shm tmpfs size=...); for containers, an option at their start",
    reads=(f"statvfs({SHM})", SHM),
    sources=("NCCL user guide, troubleshooting: shared memory",),
)
# Less than this share, and less than this number of bytes or files, is little.
MIN_FREE_SHARE = 0.05
AMPLE_BYTES = 20 << 30
AMPLE_INODES = 100_000
FULL_SHARE, FULL_BYTES, FULL_INODES = 0.01, 256 << 20, 1000
DEAD_MOUNT_FIX = (
    "mount | grep {path}; the server of this mount must answer again, or: umount -l {path}"
)
SPACE_FIX = "du -xh --max-depth=2 {path} | sort -h | tail; remove what ended jobs left"
INODES_FIX = "du -x --inodes --max-depth=3 {path} | sort -n | tail; remove what ended jobs left"


@check(SHM_SIZE)
def check_shm_size(machine: Machine) -> Iterator[Finding]:
    """The free space, which files left by ended jobs reduce."""
    reading = read_space(machine, SHM)
    if reading.text is None:
        yield unread("", reading, f"the size of {SHM}")
        return
    size = json.loads(reading.text)
    free, total = size["free"], size["total"]
    share = f"{_mib(free)} free of {_mib(total)}"
    evidence = Evidence(f"statvfs({SHM})", share, "1024 MiB or more")
    text = f"{_mib(free)} of {_mib(total)} are free in {SHM}"
    report = failed if free <= DOCKER_SHM_BYTES else warned
    left_over = [name for name in machine.names(SHM) if name.startswith(LEFT_OVER)]
    if free >= MIN_SHM_BYTES:
        yield passed("", text, evidence)
        return
    fix = f"mount -o remount,size=50% {SHM}"
    if total >= MIN_SHM_BYTES and left_over:
        fix = f"drain the host; then rm {SHM}/{LEFT_OVER}*"
    elif total >= MIN_SHM_BYTES:
        fix = f"ls -l {SHM}; remove what ended jobs left"
    elif machine.container:
        fix = (
            "start the container with --shm-size=1g or --ipc=host; in Kubernetes mount an emptyDir"
            " with medium: Memory"
        )
    yield report("", text, evidence, fix=fix)


def _mib(size: int) -> str:
    return f"{size >> 20} MiB"


DISK_SPACE = CheckRow(
    id="BW263",
    name="disk-space",
    layer=Layer.LIMITS,
    title="space and inodes of /, /tmp, /var, /dev/shm and the home directory",
    right=(
        f"{MIN_FREE_SHARE:.0%} free, or {AMPLE_BYTES >> 30} GiB and {AMPLE_INODES} inodes,"
        " and each file system answers within 5 s"
    ),
    why=(
        "Programs end with: No space left on device. Without space in /var the logs stop, which "
        "would show why. A dead mount hangs every program that touches it."
    ),
    fix=SPACE_FIX,
    stays="until jobs fill it again; quotas or a scheduler epilog that cleans up keep it free",
    reads=("statvfs(2)",),
    sources=("statvfs(3)",),
)


@check(DISK_SPACE, after=SHM_SIZE)
def check_disk_space(machine: Machine) -> Iterator[Finding]:
    """Each file system once, by the first of its paths."""
    file_systems = read_file_systems(machine)
    if file_systems is None:
        yield not_offered("", "the snapshot has no file systems")
        return
    devices: set[int | str] = set()
    for path, state in file_systems.items():
        if state.get("device") not in devices:
            yield _judge_file_system(path, state)
        devices |= {state["device"]} if "device" in state else set()


def _judge_file_system(path: str, state: dict[str, int | str]) -> Finding:
    where = f"statvfs({path})"
    if state.get("error") == NO_ANSWER:
        message = f"{path} does not answer: every program that touches it hangs"
        evidence = Evidence(where, NO_ANSWER, "an answer")
        return failed(path, message, evidence, fix=filled(DEAD_MOUNT_FIX, path=path))
    if "error" in state:
        return not_offered(path, f"{path} cannot be read: {state['error']}")
    total, free, files, free_files = (
        int(state[name]) for name in ("total", "free", "files", "free_files")
    )
    space = f"{free >> 20} of {total >> 20} MiB free"
    inodes = f"{free_files} of {files} inodes free"
    few = _scarcity(free, total, AMPLE_BYTES, FULL_BYTES) if path != SHM else 0
    few_files = _scarcity(free_files, files, AMPLE_INODES, FULL_INODES)
    if not few and not few_files:
        text = f"{space}, {inodes}" if files else space
        return passed(path, text, Evidence(where, space))
    if few >= few_files:
        scarce, share, fix = space, free / total, SPACE_FIX
    else:
        scarce, share, fix = inodes, free_files / files, INODES_FIX
    report = failed if 2 in (few, few_files) else warned
    return report(
        path,
        f"{path} has {scarce}",
        Evidence(where, scarce, f"{MIN_FREE_SHARE:.0%} or more"),
        fix=filled(fix, path=path),
        weight=1 - share,
    )


def _scarcity(free: int, total: int, many: int, few: int) -> int:
    """2 if a file system is as good as full, 1 if little is left, else 0.

    One that does not count has a `total` of 0, and is taken to have enough.
    """
    if not total or free >= MIN_FREE_SHARE * total or free >= many:
        return 0
    full = free < few and free < max(FULL_SHARE * total, 1)
    return 2 if full or not free else 1


# File systems of a disk that are made to be written to. Images, such as squashfs, are not.
WRITTEN_KINDS = frozenset(("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "jfs", "bcachefs"))
FSTAB, VERITY = "/etc/fstab", "CRYPT-VERITY-"
READ_ONLY = CheckRow(
    id="BW270",
    name="read-only-disk",
    layer=Layer.LIMITS,
    title="local file systems that became read-only",
    right="each is writable, or mounted read-only on purpose",
    why=(
        "After an error of the disk the kernel makes the file system read-only. Jobs, slurmd and"
        " kubelet then fail to write, and the logs stop."
    ),
    fix=(
        "drain the host first; dmesg | grep -i -E 'error|remount'; smartctl -a {source}; replace a"
        " bad disk; if it is good, unmount the file system (for / boot a rescue system) and run"
        " fsck or xfs_repair on {source}"
    ),
    stays="a repaired file system stays writable; if the disk fails, it comes back",
    reads=(MOUNTINFO, FSTAB, "/sys/dev/block/*/dm/uuid"),
    sources=("proc_pid_mountinfo(5)", "mount(8), errors=remount-ro"),
)


@check(READ_ONLY)
def check_read_only(machine: Machine) -> Iterator[Finding]:
    """Each device that cannot be written to, once."""
    mounts = read_mounts(machine)
    if isinstance(mounts, str):
        yield not_offered("", f"the mounts cannot be read: {mounts}")
        return
    local = [mount for mount in mounts.values() if mount.on_disk and mount.kind in WRITTEN_KINDS]
    locked = {mount.device: mount for mount in reversed(local) if _is_locked(machine, mount)}
    for mount in locked.values():
        evidence = Evidence(MOUNTINFO, f"{mount.kind} {mount.source} read-only", "read and write")
        fix = filled(READ_ONLY.fix, source=mount.source)
        yield failed(mount.path, f"{mount.path} is read-only", evidence, fix=fix)
    if not locked:
        yield passed(
            "", f"{counted(len(local), 'local file system')}, none of which became read-only"
        )


def _is_locked(machine: Machine, mount: MountedFileSystem) -> bool:
    """Whether nobody can want that it is read-only: the kernel made it so, or it is mounted so
    although /etc/fstab has it writable, or it is the root, but no image that is verified.
    """
    if mount.writable or mount.remounted:
        return mount.remounted
    options = _fstab_options(machine).get(mount.path)
    if options is not None:
        return "ro" not in options.split(",")
    uuid = machine.text(f"/sys/dev/block/{mount.device}/dm/uuid") or ""
    return mount.path == "/" and not uuid.startswith(VERITY)


def _fstab_options(machine: Machine) -> dict[str, str]:
    lines = (line.split() for line in (machine.text(FSTAB) or "").splitlines())
    return {words[1]: words[3] for words in lines if len(words) > 3 and words[0][0] != "#"}
