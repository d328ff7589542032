"""How GPUs are divided among hosts, and that the MPS which a lab started is stopped with it."""

import os
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.core.errors import UsageError
from busbw.host import nvml, process
from busbw.lab import gpus
from busbw.lab.gpus import GpuShare, divide
from busbw.lab.host_exec import variables
from busbw.lab.types import Lab, LabHost, LabSpec

HOSTS, FOUND = st.integers(2, 8), st.integers(0, 16)


def test_two_hosts_have_half_of_one_gpu_each():
    assert divide(2, [0], None) == [GpuShare((0,), 50), GpuShare((0,), 50)]


def test_two_hosts_have_one_of_two_gpus_each():
    assert divide(2, [0, 1], None) == [GpuShare((0,)), GpuShare((1,))]


def test_only_hosts_that_share_a_gpu_have_a_part_of_it():
    assert divide(3, [0, 1], None) == [GpuShare((0,), 50), GpuShare((1,)), GpuShare((0,), 50)]


def test_only_gpus_that_are_visible_here_are_divided(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(nvml, "count", lambda: 4)
    assert gpus.visible_gpus() == [0, 1, 2, 3]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, 2")
    assert gpus.visible_gpus() == [3, 2]
    assert divide(2, gpus.visible_gpus(), None) == [GpuShare((3,)), GpuShare((2,))]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert gpus.visible_gpus() == []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1b4c")
    with pytest.raises(
        UsageError, match="CUDA_VISIBLE_DEVICES=GPU-1b4c: a lab divides GPUs by number, here 0 to 3"
    ):
        gpus.visible_gpus()


def test_hosts_have_as_many_gpus_as_asked_for():
    assert divide(2, range(8), 4) == [GpuShare((0, 1, 2, 3)), GpuShare((4, 5, 6, 7))]
    assert divide(2, range(8), 0) == [GpuShare(), GpuShare()]


def test_hosts_share_as_many_gpus_as_asked_for():
    assert divide(2, [0, 1], 2) == [GpuShare((0, 1), 50), GpuShare((0, 1), 50)]


@given(HOSTS, FOUND, st.integers(1, 8))
def test_more_gpus_for_a_host_than_there_are_is_an_error(hosts, available, per_host):
    if per_host <= available:
        shares = divide(hosts, range(available), per_host)
        assert [len(set(share.gpus)) for share in shares] == [per_host] * hosts
        if hosts * per_host <= available:
            assert len({gpu for share in shares for gpu in share.gpus}) == hosts * per_host
    else:
        with pytest.raises(UsageError, match=f"--gpus {per_host}: this machine has"):
            divide(hosts, range(available), per_host)


@given(HOSTS, FOUND)
def test_no_gpu_is_given_away_more_than_once(hosts, available):
    shares = divide(hosts, range(available), None)
    assert len(shares) == hosts
    for gpu in range(available):
        assert sum(share.percent or 100 for share in shares if gpu in share.gpus) <= 100
    assert all(share.gpus for share in shares) == (available > 0)


@pytest.fixture
def control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in place of NVIDIA's, which needs a GPU.

    Its daemon keeps the output open and ignores `quit`, as one with clients does.
    """
    path = tmp_path / gpus.CONTROL
    path.write_text("""#!/bin/sh
echo "$1 $CUDA_MPS_PIPE_DIRECTORY ${CUDA_VISIBLE_DEVICES-all}" >> "$0.log"
[ "$1" = -d ] || exit 0
setsid sleep 600 & echo $! > "$0.pid"
""")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return path


def test_only_mps_that_was_started_here_is_stopped(control: Path, monkeypatch: pytest.MonkeyPatch):
    with subprocess.Popen(
        [str(control), "-d"], env={"PATH": os.environ["PATH"]}, stdout=subprocess.DEVNULL
    ) as other:
        other.wait(5)
    foreign = int(control.with_suffix(".pid").read_text())
    try:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
        assert gpus.start_mps("/a") == ""
        daemon_pid = int(control.with_suffix(".pid").read_text())
        # of another shell, where somebody else's MPS may run
        monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", "/b")
        gpus.stop_mps("/b")
        assert process.state(daemon_pid) not in process.ENDED
        gpus.stop_mps("/a")
        end = time.monotonic() + 5
        while process.state(daemon_pid) not in process.ENDED and time.monotonic() < end:
            time.sleep(0.01)  # the kernel ends a killed process a little later
        assert process.state(daemon_pid) in process.ENDED
        assert process.state(foreign) not in process.ENDED
        gpus.stop_mps("/a")  # nothing is left to stop
    finally:
        os.kill(foreign, 9)
    assert control.with_suffix(".log").read_text().splitlines() == ["-d  all", "-d /a all", " /a 1"]


def test_mps_that_does_not_start_is_reported(control: Path, monkeypatch: pytest.MonkeyPatch):
    control.write_text("#!/bin/sh\necho no permission; exit 1\n")
    assert gpus.start_mps("/not-started") == f"{gpus.CONTROL}: no permission"
    control.write_text("#!/bin/sh\necho An instance of this daemon is already running; exit 1\n")
    assert gpus.start_mps("/not-started") == ""
    control.write_text("#!/bin/sh\nexec sleep 600\n")
    monkeypatch.setattr(gpus, "LIMIT_S", 0.2)
    assert gpus.start_mps("/not-started") == f"{gpus.CONTROL}: it is not done within 0.2 s"


def test_a_missing_mps_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpus.start_mps("/not-started").startswith(f"no {gpus.CONTROL} here: ")


def test_hosts_that_share_a_gpu_find_mps_where_it_was_started():
    hosts = [
        LabHost(name=f"h{n}", namespace="", address="", interface="", gpus=[0], gpu_percent=50)
        for n in (1, 2)
    ]
    lab = Lab(
        boot_id="",
        token="1",
        folder="",
        spec=LabSpec(names=["h1", "h2"]),
        hosts=hosts,
        owner=None,
        mps="/a",
    )
    host_variables = variables(lab, hosts[1])
    assert (
        host_variables["CUDA_VISIBLE_DEVICES"],
        host_variables["CUDA_MPS_PIPE_DIRECTORY"],
        host_variables["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"],
    ) == ("0", "/a", "50")


def test_hosts_without_gpus_see_none():
    host = LabHost(name="h1", namespace="", address="", interface="")
    lab = Lab(
        boot_id="",
        token="1",
        folder="",
        spec=LabSpec(names=["h1", "h2"], gpus=0),
        hosts=[host, host],
        owner=None,
    )
    assert variables(lab, host)["CUDA_VISIBLE_DEVICES"] == ""
