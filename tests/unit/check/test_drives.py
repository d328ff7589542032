"""Drives and file systems: which one is full, dead or missing."""

import json
import os
import shutil
import threading

import pytest
from cases_os import full
from healthy_pcie import DEVICES, NVME
from looking import found, of
from tree import Tree

from busbw.check.snapshot import snapshot
from busbw.core.finding import Verdict
from busbw.host import mounts as room
from busbw.host.mounts import NO_ANSWER, file_systems
from busbw.host.snapshot import parse_archive

PASS, WARN, FAIL, SKIP, UNKNOWN = (
    Verdict.PASS,
    Verdict.WARN,
    Verdict.FAIL,
    Verdict.SKIP,
    Verdict.UNKNOWN,
)
GIB, LARGE = 1 << 30, 100 << 40


def bad(findings):
    return {
        finding.subject: finding.verdict
        for finding in findings
        if finding.verdict not in (PASS, SKIP)
    }


@pytest.mark.parametrize(
    ("path", "values", "verdict", "fix_part"),
    [
        ("/tmp", {"free": 0}, FAIL, "du -xh --max-depth=2 /tmp"),
        ("/var", {"free": 200 << 20}, FAIL, "du -xh"),
        ("/var", {"free": 300 << 20}, WARN, "du -xh"),
        ("/", {"free": 10 * GIB}, WARN, "du -xh"),
        # 2 TiB are enough, whatever their share
        ("/root", {"total": LARGE, "free": LARGE // 50}, PASS, ""),
        ("/", {"total": 30 * GIB, "free": 2 * GIB}, PASS, ""),  # more than 5 %
        ("/var", {"free_files": 0}, FAIL, "du -x --inodes"),
        ("/var", {"free_files": 50_000}, WARN, "du -x --inodes"),
        ("/var", {"files": 0, "free_files": 0}, PASS, ""),  # btrfs counts none
        ("/dev/shm", {"free": 0}, PASS, ""),  # that of shm-size
        ("/dev/shm", {"free_files": 0}, FAIL, "--inodes"),
    ],
)
def test_file_system_that_is_full(path, values, verdict, fix_part):
    findings = found("disk-space", full(path, **values))
    assert bad(findings) == ({} if verdict is PASS else {path: verdict})
    assert fix_part in of(findings, path).fix


def test_each_file_system_is_judged_once():
    findings = found("disk-space", full("/tmp", free=0, device=0), full("/", free=0))
    assert bad(findings) == {"/": FAIL} and "/tmp" not in {finding.subject for finding in findings}


def test_mount_that_does_not_answer_fails():
    findings = found(
        "disk-space", lambda tree: tree.update("file systems", **{"/root": {"error": NO_ANSWER}})
    )
    assert bad(findings) == {"/root": FAIL} and "mount | grep /root" in of(findings, "/root").fix


def test_dead_mount_is_abandoned(monkeypatch):
    monkeypatch.setattr(room, "LIMIT_S", 0.2)
    release, real = threading.Event(), os.statvfs

    def statvfs(path):
        if path == "/tmp":
            release.wait(30)
        return real(path)

    monkeypatch.setattr(room.os, "statvfs", statvfs)
    usage = json.loads(file_systems(("/", "/tmp", "/not/there")))
    release.set()
    assert (
        usage["/tmp"] == {"error": NO_ANSWER}
        and usage["/"]["total"] > usage["/"]["free"] > 0
        and "/not/there" not in usage
    )


def test_sizes_of_file_systems_and_why_one_has_none(tmp_path):
    (tmp_path / "file").write_text("")
    usage = json.loads(file_systems((str(tmp_path), f"{tmp_path}/file/x", str(tmp_path))))
    own_usage, stat = shutil.disk_usage(tmp_path), tmp_path.stat()
    assert list(usage) == [str(tmp_path), f"{tmp_path}/file/x"]
    assert usage[f"{tmp_path}/file/x"] == {"error": "not a directory"}
    room = usage[str(tmp_path)]
    assert (room["total"], room["device"]) == (own_usage.total, stat.st_dev)
    assert (
        room["free"] == pytest.approx(own_usage.free, rel=0.5)
        and room["free_files"] <= room["files"]
    )


def test_old_snapshot_has_no_file_systems():
    (finding,) = found("disk-space", tree=Tree().file("/proc/sys/kernel/hostname", "old"))
    assert (finding.verdict, finding.optional) == (UNKNOWN, True)


def test_snapshot_keeps_the_file_systems():
    from healthy import healthy

    archive = parse_archive(snapshot(healthy().source()))
    assert "/var" in json.loads(archive.call("file systems", str).text)


class TestNvme:
    @pytest.mark.parametrize(
        ("state", "verdict"),
        [
            ("live", PASS),
            ("resetting", WARN),
            ("connecting", WARN),
            ("deleting", FAIL),
            ("dead", FAIL),
            ("", FAIL),
        ],
    )
    def test_state(self, state, verdict):
        findings = found("nvme", lambda tree: tree.file("/sys/class/nvme/nvme1/state", state))
        assert bad(findings) == ({} if verdict is PASS else {"nvme1": verdict})

    def test_drive_without_controller(self):
        def lose_controller(tree):
            tree.drop("/sys/class/nvme/nvme0").drop(f"{DEVICES}/{NVME[0]}/driver")

        findings = found("nvme", lose_controller)
        assert (
            bad(findings) == {NVME[0]: FAIL}
            and f"dmesg -T | grep -e nvme -e {NVME[0]}" in of(findings, NVME[0]).fix
        )

    def test_kernel_without_the_address_of_controllers(self):
        def older(tree):
            tree.drop("/sys/class/nvme/nvme0/address").file(
                f"{DEVICES}/{NVME[0]}/nvme/nvme0/state", "live"
            )

        assert bad(found("nvme", older)) == {}

    def test_drive_that_left_the_bus(self):
        findings = found(
            "nvme",
            lambda tree: tree.drop("/sys/class/nvme/nvme0").data(
                f"{DEVICES}/{NVME[0]}/config", b"\xff" * 64
            ),
        )
        assert "does not respond on PCI" in of(findings, NVME[0]).message

    def test_drive_of_a_virtual_machine_has_no_controller_here(self):
        def passed_on(tree):
            tree.drop("/sys/class/nvme/nvme0").link(
                f"{DEVICES}/{NVME[0]}/driver", "../../../bus/pci/drivers/vfio-pci"
            )

        assert bad(found("nvme", passed_on)) == {}

    @pytest.mark.parametrize("sensor", ["hwmon1", "hwmon/hwmon1"])
    def test_temperature_warning(self, sensor):
        def hot(tree):
            tree.files(f"/sys/class/nvme/nvme1/{sensor}", temp1_alarm="1", temp1_input="84850")

        findings = found("nvme", hot)
        assert bad(findings) == {"nvme1": WARN} and "84 C" in of(findings, "nvme1").message
