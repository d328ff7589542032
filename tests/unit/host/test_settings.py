"""Small formats of the kernel and systemd, and any text in their place."""

import pytest
from healthy_os import LIMITS
from hypothesis import given
from hypothesis import strategies as st
from tree import Tree

from busbw.host.mounts import MOUNTINFO, MountedFileSystem, read_mounts, read_space, total_bytes
from busbw.host.settings import (
    bracketed,
    cpu_set,
    logind_setting,
    named_counts,
    numbers,
    soft_limit,
    uptime,
)


def test_soft_limits():
    assert soft_limit(LIMITS, "Max open files") == "1048576"
    assert soft_limit(LIMITS, "Max locked memory") == "unlimited"
    assert soft_limit(LIMITS, "Max file locks") is None
    assert soft_limit("Max open files", "Max open files") is None


def test_choice_in_brackets():
    assert bracketed("always [madvise] never") == "madvise"
    assert bracketed("always madvise never") is None


def test_counts_by_name():
    assert named_counts("oom 1\noom_kill 2\nbad\nnegative -1") == {"oom": 1, "oom_kill": 2}


def test_numbers_of_a_line():
    assert numbers("4096\t131072\t6291456") == [4096, 131072, 6291456]
    assert numbers("4096 x") == []


@pytest.mark.parametrize(
    "text, cpus",
    [("0-3,8", {0, 1, 2, 3, 8}), ("", set()), ("0-", set()), ("3-x", set()), ("0-99999999", set())],
)
def test_cpus_of_a_list(text, cpus):
    assert cpu_set(text) == cpus


def test_seconds_since_boot():
    assert uptime("100000.25 5.00") == 100000.25
    assert uptime("unknown") == 0


class TestLogind:
    def test_last_value_counts(self):
        assert logind_setting(["[Login]\nRemoveIPC=yes", "RemoveIPC = no\n"], "RemoveIPC") == "no"

    def test_comment_shows_the_default(self):
        assert logind_setting(["#RemoveIPC=yes"], "RemoveIPC") == "yes"
        assert logind_setting(["RemoveIPC=no", "#RemoveIPC=yes"], "RemoveIPC") == "no"

    def test_file_without_it(self):
        assert logind_setting(["[Login]", ""], "RemoveIPC") is None


@given(st.text())
def test_any_text_is_read(text):
    soft_limit(text, "Max open files")
    bracketed(text)
    named_counts(text)
    cpu_set(text)
    uptime(text)
    logind_setting([text], "RemoveIPC")
    assert all(isinstance(value, int) for value in numbers(text))


MOUNTS = """\
36 35 98:0 / / rw,noatime shared:1 - ext4 /dev/sda1 rw,errors=continue
37 36 98:1 /part /mnt/two\\040words rw - xfs /dev/nvme0n1\\0111 ro
38 36 7:0 / /snap ro - squashfs /dev/loop0 ro
39 36 0:50 / /data ro,relatime - lustre 10.0.0.1@o2ib:/data rw
40 36 0:51 / /proc rw - proc proc rw
41 36 0:52 / /run rw - tmpfs tmpfs
half a line
"""


def test_mounted_file_systems():
    mounts = read_mounts(Tree().file(MOUNTINFO, MOUNTS).source())
    assert mounts == {
        "/": MountedFileSystem("/", "ext4", "/dev/sda1", "98:0", "/", writable=True),
        "/mnt/two words": MountedFileSystem(
            "/mnt/two words",
            "xfs",
            "/dev/nvme0n1\t1",
            "98:1",
            "/part",
            writable=False,
            remounted=True,
        ),
        "/snap": MountedFileSystem("/snap", "squashfs", "/dev/loop0", "7:0", "/", writable=False),
        "/data": MountedFileSystem(
            "/data", "lustre", "10.0.0.1@o2ib:/data", "0:50", "/", writable=False
        ),
        "/proc": MountedFileSystem("/proc", "proc", "proc", "0:51", "/", writable=True),
    }
    assert {path: (mounted.on_disk, mounted.keeps_data) for path, mounted in mounts.items()} == {
        "/": (True, True),
        "/mnt/two words": (True, True),
        "/snap": (False, False),
        "/data": (False, True),
        "/proc": (False, False),
    }
    assert read_mounts(Tree().file(MOUNTINFO, "").source()) == f"{MOUNTINFO}: it is empty"
    assert "not in the recording" in read_mounts(Tree().source())


@pytest.mark.parametrize(
    ("text", "total"),
    [('{"total": 7, "free": 1}', 7), ("[]", None), ("x", None), ('{"total": "7"}', None)],
)
def test_the_size_of_a_mount(text, total):
    assert total_bytes(read_space(Tree().call("space /data", text).source(), "/data")) == total
    assert total_bytes(read_space(Tree().source(), "/data")) is None
