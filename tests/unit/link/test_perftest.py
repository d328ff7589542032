"""Programs of perftest are started and ended, and missing ones are reported. Debian's own programs
run where they are installed.
"""

import shutil

import pytest

from busbw.core.errors import NoMeasurement
from busbw.host.endpoints import Endpoint
from busbw.link import perftest
from busbw.link.driver import Tournament
from busbw.link.types import PERFTEST, LinkSpec, PerftestProgram

TEST = perftest.Test(program=perftest.BANDWIDTH, device="mlx5_0", address="10.0.0.1")
PORT = Endpoint(name="eth0", address="10.0.0.1", network="10.0.0.0/24")
RDMA = Endpoint(name="eth0", address="10.0.0.1", network="10.0.0.0/24", device="mlx5_0")
installed = pytest.mark.skipif(
    shutil.which("ib_write_bw") is None, reason="no perftest: make test-tools"
)


@pytest.fixture(autouse=True)
def forget():
    """What programs print is kept for a process."""
    perftest._output_of.cache_clear()
    yield
    perftest._output_of.cache_clear()


def checked(program, ports, gpu=None):
    tournament = Tournament(
        ["h1", "h2"], LinkSpec(method=PERFTEST, gpu=gpu), lambda report: None, print
    )
    tournament.report.hosts[0].perftest = tournament.report.hosts[1].perftest = program
    tournament._check([ports, ports])


def test_missing_perftest_is_reported_by_host():
    with pytest.raises(NoMeasurement, match="h1: ib_write_bw is not installed") as caught:
        checked(None, [RDMA])
    assert caught.value.hint == "install perftest on all hosts, or use --test tcp"


def test_perftest_without_cuda_is_reported_with_build_instructions():
    with pytest.raises(
        NoMeasurement, match=r"h1: ib_write_bw 6.06 was built without CUDA \(no --use_cuda\)"
    ) as caught:
        checked(PerftestProgram("6.06", gpu=False), [RDMA], gpu=0)
    assert "CUDA_H_PATH" in caught.value.hint
    checked(PerftestProgram("6.06", gpu=True), [RDMA], gpu=0)


def test_a_host_without_rdma_devices_is_reported():
    with pytest.raises(
        NoMeasurement, match="h1: no RDMA device has an interface with an IPv4 address"
    ):
        checked(PerftestProgram("6.06", gpu=False), [PORT])


def test_without_perftest_nothing_is_detected(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert perftest.detect() is None
    with pytest.raises(NoMeasurement, match="ib_write_bw: No such file"):
        perftest.serve(TEST, 5)


@installed
def test_the_installed_version_is_detected():
    program = perftest.detect()
    assert program is not None
    assert program.version


@installed
def test_a_server_without_its_device_is_reported():
    with pytest.raises(NoMeasurement, match=r"`ib_write_bw -d mlx5_0 .*`: exit code 1: "):
        perftest.serve(TEST, 10)
    with pytest.raises(NoMeasurement, match="exit code 1"):
        perftest.client(TEST, "127.0.0.1", 18515, 10)


def test_all_programs_end_with_the_node():
    running = perftest.start(["sleep", "60"])
    assert running.process.poll() is None
    perftest.end_all()
    assert running.process.returncode == -9
    assert not running.out.exists()


def test_a_server_binds_to_its_address_where_supported(monkeypatch):
    monkeypatch.setattr(
        perftest, "_output_of", lambda program, option: "      --bind_source_ip  Source IP"
    )
    assert "--bind_source_ip=10.0.0.1" in TEST.words(18515)
    monkeypatch.setattr(perftest, "_output_of", lambda program, option: "")
    assert not [word for word in TEST.words(18515) if "bind" in word]


def test_both_ends_get_the_same_symmetric_options():
    server, client = TEST.words(18515), TEST.words(18515, "10.0.0.2")
    assert client == [*server, "10.0.0.2"]
