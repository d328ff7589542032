"""mpirun between emulated hosts: the ranks meet, a host that does not answer is named, and
nothing is left behind.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from busbw.core.errors import NoMeasurement
from busbw.launch import job, mpirun
from busbw.launch.failures import launcher_error
from busbw.launch.hosts import parse_hosts

pytestmark = pytest.mark.netlab

RANK = Path(__file__).with_name("rank.py")
SOURCE = str(Path(__file__).parents[2] / "src")
NETWORK = "10.77.0.0/24"


@pytest.fixture
def open_mpi() -> mpirun.Mpirun:
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    try:
        return mpirun.find()
    except NoMeasurement as error:
        pytest.skip(error.message)


def line(
    launcher: mpirun.Mpirun,
    lab: Any,
    mode: str,
    hosts: str,
    ifname: str,
    monkeypatch: pytest.MonkeyPatch,
) -> list[str]:
    """The command line as it would be built on the lab's first host, which launches."""
    parsed_hosts = parse_hosts(hosts)
    ranks = sum(host.slots for host in parsed_hosts)
    for name, value in lab.environment().items():
        monkeypatch.setenv(name, value)
    # The tests run outside the first host, whose interfaces decide what --ifname means.
    own = json.loads(output(lab.hosts[0].enter(sys.executable, "-c", _LOCAL)))
    monkeypatch.setattr(
        "busbw.launch.interfaces.local",
        lambda: {name: _interface(address) for name, address in own.items()},
    )
    argv = mpirun.command(
        launcher,
        [sys.executable, str(RANK), mode],
        ranks,
        parsed_hosts,
        ifname,
        {"PYTHONPATH": SOURCE},
    )
    return list(lab.hosts[0].enter(*argv))


_LOCAL = (
    "import json; from busbw.launch import interfaces as i; print(json.dumps({n: a and str(a) for"
    " n, a in i.local().items()}))"
)


def _interface(text: str | None) -> Any:
    from ipaddress import IPv4Interface

    return IPv4Interface(text) if text else None


def output(argv: list[str]) -> str:
    done = subprocess.run(
        argv,
        env={**os.environ, "PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return done.stdout.strip()


def test_ranks_of_two_hosts_meet_over_the_network_given(open_mpi, two_hosts, monkeypatch):
    argv = line(open_mpi, two_hosts, "meet", "10.77.0.1:2,10.77.0.2:2", NETWORK, monkeypatch)
    lines: list[bytes] = []
    talk: list[bytes] = []
    status = job.run(argv, two_hosts.environment(), lines.append, talk.append, 60)
    assert status == 0, talk
    (facts,) = [json.loads(line_text) for line_text in lines]
    first, second = two_hosts.hosts
    assert facts["size"] == 4
    assert facts["total"] == [10.0, 4.0]
    assert facts["hosts"] == [first.name, first.name, second.name, second.name]
    assert facts["nccl"] == [f"={first.interface}"] * 2 + [f"={second.interface}"] * 2
    assert facts["parts"] == [0, 2]
    assert facts["lowest"] == [0.0, 3.0]
    assert facts["name"] == "from 0"


def test_ranks_of_three_hosts_behind_a_slow_switch_meet(open_mpi, three_slow_hosts, monkeypatch):
    argv = line(
        open_mpi,
        three_slow_hosts,
        "meet",
        "10.77.0.1:1,10.77.0.2:1,10.77.0.3:1",
        NETWORK,
        monkeypatch,
    )
    lines: list[bytes] = []
    assert job.run(argv, three_slow_hosts.environment(), lines.append, lambda _: None, 60) == 0
    assert json.loads(lines[0])["hosts"] == [host.name for host in three_slow_hosts.hosts]


def test_a_host_that_refuses_is_named(open_mpi, two_hosts, monkeypatch):
    argv = line(open_mpi, two_hosts, "meet", "10.77.0.1:1,10.77.0.9:1", NETWORK, monkeypatch)
    talk: list[bytes] = []
    status = job.run(argv, two_hosts.environment(), lambda _: None, talk.append, 60)
    assert status != 0
    error = launcher_error(
        status, b"\n".join(talk).decode(errors="replace"), ["10.77.0.1", "10.77.0.9"]
    )
    assert error.message == "host 10.77.0.9: No route to host"
    assert error.hint == "ip route get 10.77.0.9"
    assert error.exit == 3


def test_the_agent_takes_options_of_ssh(two_hosts):
    argv = [
        str(two_hosts.agent),
        "-o",
        "ConnectionAttempts=10",
        "-o",
        "BatchMode=yes",
        "10.77.0.2",
        "hostname",
    ]
    done = subprocess.run(
        two_hosts.hosts[0].enter(*argv), capture_output=True, text=True, timeout=20, check=True
    )
    assert done.stdout.strip() == two_hosts.hosts[1].name


@pytest.mark.skipif(not shutil.which("ssh"), reason="no ssh: make test-tools")
def test_a_host_unreachable_by_real_ssh_is_named(open_mpi, two_hosts):
    agentless = {
        name: value
        for name, value in two_hosts.environment().items()
        if not name.endswith("_agent")
    }
    hosts = parse_hosts("10.77.0.1:1,10.77.0.9:1")
    argv = two_hosts.hosts[0].enter(*mpirun.command(open_mpi, ["true"], 2, hosts))
    talk: list[bytes] = []
    status = job.run(argv, agentless, lambda _: None, talk.append, 60)
    error = launcher_error(
        status, b"\n".join(talk).decode(errors="replace"), ["10.77.0.1", "10.77.0.9"]
    )
    assert "host 10.77.0.9" in error.message
    assert "No route to host" in error.message or "timed out" in error.message


def test_an_interface_missing_on_a_host_suggests_a_cidr(open_mpi, two_hosts, monkeypatch):
    argv = line(
        open_mpi,
        two_hosts,
        "meet",
        "10.77.0.1:1,10.77.0.2:1",
        two_hosts.hosts[0].interface,
        monkeypatch,
    )
    talk: list[bytes] = []
    # its daemon leaves the agent before it looks for the interface, and mpirun is not told of its
    # end
    if open_mpi.major < 5:
        with pytest.raises(NoMeasurement, match="or the interface is wrong"):
            job.run(
                argv,
                two_hosts.environment(),
                lambda _: None,
                talk.append,
                8,
                hosts=["10.77.0.1", "10.77.0.2"],
            )
        return
    status = job.run(argv, two_hosts.environment(), lambda _: None, talk.append, 60)
    assert status != 0
    error = launcher_error(
        status, b"\n".join(talk).decode(errors="replace"), ["10.77.0.1", "10.77.0.2"]
    )
    assert "10.77.0.2: no interface of that name" in error.message
    assert "--ifname 10.1.0.0/16" in error.hint


def test_lab_hosts_have_names_and_reach_each_other(two_hosts):
    first, second = two_hosts.hosts
    assert [output(host.enter("hostname")) for host in two_hosts.hosts] == [first.name, second.name]
    server = subprocess.Popen(
        second.enter(sys.executable, "-c", _SERVE), stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    with server, server.stdout:
        assert server.stdout.readline() == "ready\n"
        assert (
            output(first.enter(sys.executable, "-c", _ASK)) == f"{second.name} saw {first.address}"
        )


_SERVE = (
    "import socket; s = socket.create_server(('10.77.0.2', 7000)); print('ready', flush=True); c,"
    " peer = s.accept();c.sendall(f'{socket.gethostname()} saw {peer[0]}'.encode()); c.close()"
)
_ASK = "import socket; print(socket.create_connection(('10.77.0.2', 7000), 5).recv(99).decode())"


def test_a_failed_lab_removes_its_hosts_and_processes():
    import netlab

    try:
        with pytest.raises(ZeroDivisionError), netlab.lab(hosts=3) as lab:
            words = lab.hosts[1].enter("sh", "-c", "echo entered; exec sleep 600")
            sleeper = subprocess.Popen(words, stdout=subprocess.PIPE)
            assert sleeper.stdout.readline() == b"entered\n"
            1 / 0  # noqa: B018
    except netlab.Unavailable as error:
        pytest.skip(f"no emulated hosts: {error}")
    with sleeper:
        assert sleeper.wait(5) == -signal.SIGKILL
    assert not any(Path("/var/run/netns", host.namespace).exists() for host in lab.hosts)
