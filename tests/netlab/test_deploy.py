"""`busbw deploy` over four hosts by real ssh, of which two fail, and what runs from the file."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.netlab

SOURCE = str(Path(__file__).parents[2] / "src")
LIMIT_S = 30.0
H1, H2, H3, H4, H9 = (f"10.77.0.{number}" for number in (1, 2, 3, 4, 9))


def run(hosts: Any, *words: str | Path) -> subprocess.CompletedProcess[str]:
    lab, environment = hosts
    return subprocess.run(
        lab.hosts[0].enter(*map(str, words)),
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def cache_of_hosts(lab: Any, folder: Path) -> None:
    """Let processes that sshd starts unpack into a folder of the test."""
    for host in lab.hosts:
        config = lab.folder / f"sshd_config.{host.name}"
        config.write_text(f"SetEnv XDG_CACHE_HOME={folder} SHLVL=1\n{config.read_text()}")
        for pid in host.pids():
            os.kill(pid, 1)  # sshd reads its configuration again


def mount_small(host: Any, folder: Path) -> None:
    """Mount an empty file system of 64 KiB, which sessions on this host alone see."""
    words = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    [pid] = host.pids()
    subprocess.run(["nsenter", f"--target={pid}", "--mount", *words], check=True)


def test_hosts_that_fail_are_named_and_the_others_run_from_the_file(ssh_hosts, tmp_path):
    lab, environment = ssh_hosts
    environment |= {"PYTHONPATH": SOURCE, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    place, pythons = tmp_path / "place", tmp_path / "pythons"
    place.mkdir()
    pythons.mkdir()
    python = pythons / "python3"
    python.symlink_to(sys.executable)
    cache_of_hosts(lab, tmp_path / "cache")
    mount_small(lab.hosts[1], place)
    mount_small(lab.hosts[2], pythons)
    file = place / "busbw.pyz"
    everyone = ",".join((H1, H2, H3, H4, H9))
    words = ("--hosts", everyone, "--to", file, "--python", python, "--limit", "60", "--wide")
    done = run(ssh_hosts, sys.executable, "-m", "busbw", "deploy", *words)
    assert done.returncode == 3, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"ok      10.77.0.[1,4]: {file}, busbw "), done.stdout
    assert f"failed  {H2}: cat: write error: No space left on device" in lines
    assert f"        fix: ssh {H2} df -h {place}, or name another path with --to" in lines
    assert f"failed  {H3}: no {python} on this host" in lines
    assert f"failed  {H9}: ssh: connect to host {H9} port 22: No route to host" in lines
    assert lines[-1] == f"run     {python} {file} check --hosts {H1},{H4}"
    assert "error: busbw was not deployed to 3 of 5 hosts: 10.77.0.[2-3,9]\n" in done.stderr
    assert [path.name for path in place.iterdir()] == ["busbw.pyz"]
    [pid] = lab.hosts[1].pids()
    assert list(Path(f"/proc/{pid}/root{place}").iterdir()) == []

    del environment["PYTHONPATH"]
    pair = f"{H1},{H4}"
    checked = run(ssh_hosts, python, file, "check", "--hosts", pair, "--only", "kernel-port-range")
    assert checked.stdout.startswith("2 nodes, 2 answered"), checked.stdout + checked.stderr
    words = ("--engine", "mpi", "-b", "8", "-e", "8", "--timing", "classic")
    measured = run(
        ssh_hosts, sys.executable, file, "run", "all_reduce", "--hosts", pair, "-np", "2", *words
    )
    assert measured.returncode == 0, measured.stdout + measured.stderr
    assert "on 2 hosts, mpi engine" in measured.stdout

    assert_stopped_copy_leaves_nothing(ssh_hosts, file, tmp_path / "stopped")


def assert_stopped_copy_leaves_nothing(hosts: Any, file: Path, place: Path) -> None:
    """Kill a deploy that has copied a part, and wait until the host has removed it."""
    lab, environment = hosts
    import netlab

    netlab.limit(lab.hosts[0], 8)
    words = [sys.executable, file, "deploy", "--hosts", H4, "--to", place / "busbw.pyz"]
    process = subprocess.Popen(lab.hosts[0].enter(*map(str, words)), env=environment)
    wait_until(lambda: any(path.stat().st_size for path in place.glob("busbw.pyz.*")))
    process.kill()
    process.wait()
    wait_until(lambda: not list(place.iterdir()))


def wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)
