"""Mounted file systems against [[mounts]], and NVMe drives against [storage]."""

from collections.abc import Iterator

from busbw.check.base import failed, passed, skipped, unknown
from busbw.check.expect import inventory
from busbw.check.expect.base import PartComparison, Target, expectation, gib, hidden
from busbw.check.shell_words import word
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer
from busbw.core.sizes import counted
from busbw.host.mounts import MOUNTINFO, MountedFileSystem, read_mounts, read_space, total_bytes
from busbw.host.pci import DEVICES

STORAGE = CheckRow(
    id="BW298",
    name="expect-storage",
    layer=Layer.EXPECTED,
    title="mounted file systems and the number of NVMe drives, as an expectations file has them",
    right=(
        "each of [[mounts]] is mounted at path, with its type, at least min_bytes large, and "
        "writable if it says so; NVMe drives on PCI are nvme of [storage] or more, and the kernel "
        "calls each live"
    ),
    why=(
        "Without the mount, a job fails when it opens its data, or it fills the root file system"
        " below the mount point."
    ),
    fix="mount {path}; systemctl --failed; dmesg | grep -i -E 'nfs|lustre|ext4|xfs|nvme'",
    stays="lost at the next reboot unless it is in /etc/fstab or a mount unit",
    reads=(MOUNTINFO, "statvfs", f"{DEVICES}/*/class", "/sys/class/nvme/*/state"),
    sources=("the file given with --expect", "proc_pid_mountinfo(5)"),
)


@expectation(STORAGE)
def expect_storage(target: Target) -> Iterator[Finding]:
    """A finding for each expected mount, then those on the drives."""
    findings = [*_judge_mounts(target), *_judge_drives(target)]
    yield from findings or [skipped("the file expects no mounts and no NVMe drives")]


def _judge_mounts(target: Target) -> Iterator[Finding]:
    if not target.node.mounts:
        return
    mounted = read_mounts(target.machine)
    for number, expected in enumerate(target.node.mounts):
        path = expected.path.rstrip("/") or "/"
        if isinstance(mounted, str):
            yield unknown(path, f"the mounts cannot be read: {mounted}")
        elif path in mounted:
            yield from _judge_mount(target, number, mounted[path])
        else:
            yield _judge_unmounted(target, number, path)


def _judge_unmounted(target: Target, number: int, path: str) -> Finding:
    expected = target.expected(path, "mounts", number, "path")
    evidence = Evidence(MOUNTINFO, "no such mount", expected)
    hider = hidden(target.machine)
    if hider:
        return unknown(path, f"{path} is not mounted here: {hider} may hide it", evidence)
    fix = STORAGE.fix.format(path=word(path))
    return failed(path, f"{path} is not mounted", evidence, fix=fix)


def _judge_mount(target: Target, number: int, mounted: MountedFileSystem) -> list[Finding]:
    expected = target.node.mounts[number]
    compared = PartComparison(target, mounted.path, _fix_of_mount(target, number, mounted))
    compared.same("type", mounted.kind, expected.type, ("mounts", number, "type"), MOUNTINFO)
    if expected.writable:
        compared.same(
            "access",
            _access(writable=mounted.writable),
            _access(writable=True),
            ("mounts", number, "writable"),
            MOUNTINFO,
        )
    if expected.min_bytes is not None:
        space = read_space(target.machine, mounted.path)
        size = total_bytes(space)
        if size is None:
            compared.missing("size", space.reason or f"statvfs gave '{space.text}'")
        else:
            compared.least(
                "size",
                size,
                expected.min_bytes,
                ("mounts", number, "min_bytes"),
                f"statvfs({mounted.path})",
                unit=gib,
            )
    return compared.findings("mounted")


def _access(*, writable: bool) -> str:
    return "read and write" if writable else "read only"


def _fix_of_mount(target: Target, number: int, mounted: MountedFileSystem) -> str:
    expected = target.node.mounts[number]
    if expected.writable and not mounted.writable:
        return (
            "dmesg | grep -i -E 'remount|error' | tail; check the file system and its drive, then"
            f" mount -o remount,rw {word(mounted.path)}"
        )
    return (
        f"findmnt {word(mounted.path)}; compare with /etc/fstab and the mount units of a good node"
    )


def _judge_drives(target: Target) -> Iterator[Finding]:
    expected = target.node.storage.nvme
    if expected is None:
        return
    drives = inventory.nvme(target.machine)
    if drives is None:
        yield unknown("NVMe", "the NVMe drives cannot be counted: PCI cannot be read")
        return
    evidence = Evidence(
        f"{DEVICES}/*/class",
        ", ".join(drives) or "none",
        target.expected(str(expected), "storage", "nvme"),
    )
    if len(drives) < expected:
        fix = "the BMC's inventory names the missing drive; drain the node and reseat or replace it"
        yield failed(
            "NVMe", f"{counted(len(drives), 'NVMe drive')}, expected {expected}", evidence, fix=fix
        )
    else:
        yield passed("NVMe", counted(len(drives), "NVMe drive"), evidence)
    for name, state in inventory.dead_nvme(target.machine):
        evidence_of_state = Evidence(
            f"/sys/class/nvme/{name}/state", state, target.expected("live", "storage", "nvme")
        )
        yield failed(
            name,
            f"the NVMe controller {name} is {state}",
            evidence_of_state,
            fix=(
                f"nvme smart-log /dev/{word(name)}; dmesg | grep {word(name)}; drain the node and"
                " replace it"
            ),
        )
