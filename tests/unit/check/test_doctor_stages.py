"""What the stages of the launch doctor conclude from the answers of hosts. tests/netlab has the
answers of real hosts.
"""

import contextlib
import json
import socket
import threading
import time
from ipaddress import IPv4Network
from types import SimpleNamespace

import pytest

from busbw.check.doctor import launching, networks, node
from busbw.check.doctor.launching import commands, diagnosis, stages
from busbw.check.doctor.networks import LaunchContext, parse_identity, passed
from busbw.core.errors import NoMeasurement
from busbw.core.finding import Verdict
from busbw.core.version import __version__
from busbw.launch import remote
from busbw.launch.hosts import Host
from busbw.launch.remote import Done

FAIL, PASS, SKIP, WARN = Verdict.FAIL, Verdict.PASS, Verdict.SKIP, Verdict.WARN
FABRIC, DOCKER = IPv4Network("10.1.0.0/24"), IPv4Network("172.17.0.0/16")


def identity(host, *, mtu=9000, busbw=__version__, names=None, **addresses):
    addresses = addresses or {"eth0": f"10.1.0.{host[1:]}/24"}
    every = {name: [f"10.1.0.{name[1:]}"] for name in ("h1", "h2", "h3")}
    return {
        "hostname": host,
        "busbw": busbw,
        "addresses": addresses,
        "mtus": dict.fromkeys(addresses, mtu),
        "names": every | (names or {}),
    }


def context(*hosts, ifname="", **fields):
    """A launch on hosts with these identities."""
    made = LaunchContext(
        tuple(Host(f"h{number}", 2) for number in range(1, len(hosts) + 1)), 5.0, ifname, **fields
    )
    made.identities = dict(zip(made.names, hosts, strict=True))
    return made


def answers(monkeypatch, *done):
    """The hosts answer that; returns what they were asked."""
    asked = []

    def run_each(words, limit_s, given, *, together):
        assert together  # one limit for all hosts
        asked.append((words, limit_s, given))
        return list(done)

    monkeypatch.setattr(remote, "run_each", run_each)
    return asked


def said(host, answer, code=0, error="", killed=""):
    return Done(
        host,
        code,
        answer if isinstance(answer, bytes) else json.dumps(answer).encode(),
        error,
        killed,
    )


@pytest.mark.parametrize(
    ("done", "verdict", "message", "fix"),
    [
        (said("h2", b""), PASS, "2 hosts can be logged into without a prompt", ""),
        (
            said("h2", b"", 3, "bye"),
            FAIL,
            "on h2 every command in a login shell exits with 3",
            "the startup files of its shell on h2",
        ),
        (
            said("h2", b"", 255, "Something new"),
            FAIL,
            "h2 cannot be logged into: exit code 255: Something new",
            "ssh -o BatchMode=yes",
        ),
        (
            said("h2", b"", 127, "ssh: not found"),
            FAIL,
            "h2 cannot be logged into: exit code 127: ssh: not found",
            "ssh -o BatchMode=yes",
        ),
        (
            said("h2", b"", None, "", "no answer within the time limit"),
            FAIL,
            "h2 cannot be logged into: no answer within the",
            "ssh -o",
        ),
        (
            said("h2", b"", 255, "Host key verification failed."),
            FAIL,
            "h2 cannot be logged into: exit code 255: Host key",
            "ssh-key",
        ),
    ],
)
def test_logins(monkeypatch, done, verdict, message, fix):
    monkeypatch.setattr(launching, "_read_banner", lambda host: "")
    answers(monkeypatch, said("h1", b""), done)
    stage = launching.ssh(context({}, {}))
    assert (stage.name, stage.verdict, stage.message.startswith(message), fix in stage.fix) == (
        "ssh",
        verdict,
        True,
        True,
    ), stage


def test_an_sshd_that_answers_only_its_banner(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(launching, "SSH_PORT", server.getsockname()[1])

        def serve():
            with server.accept()[0] as one:
                one.sendall(b"SSH-2.0-OpenSSH_9.6\r\nmore")

        threading.Thread(target=serve, daemon=True).start()
        answers(monkeypatch, said("127.0.0.1", b"", None, "", "no answer"))
        stage = launching.ssh(context({}))
    assert stage.message.startswith(
        "127.0.0.1: sshd answers ('SSH-2.0-OpenSSH_9.6'), but ssh gets no further"
    )
    assert (stage.verdict, stage.fix) == (FAIL, networks.LARGER_THAN)
    assert launching._read_banner("127.0.0.1") == "", "nothing listens any more"


@pytest.mark.parametrize(
    ("second", "verdict", "message"),
    [
        (said("h2", identity("h2")), PASS, f"busbw {__version__} is at the same path on all hosts"),
        (
            said("h2", identity("h2", busbw="0.0.1")),
            FAIL,
            f"h2 has busbw 0.0.1, this host {__version__}",
        ),
        (
            said("h2", b"motd", 1, "No module named busbw"),
            FAIL,
            "h2: {python} does not run busbw: exit code 1: No module named busbw",
        ),
        (said("h2", b"no JSON"), FAIL, "h2: {python} does not run busbw: no answer"),
        (
            said("h2", identity("h2", eth0="no address")),
            FAIL,
            "h2: {python} does not run busbw: no answer",
        ),
    ],
)
def test_the_same_installation_everywhere(monkeypatch, second, verdict, message):
    asked = answers(monkeypatch, said("h1", identity("h1")), second)
    one = context({}, {})
    one.identities = {}
    stage = launching.install(one)
    words = asked[0][0]["h2"]
    assert (stage.verdict, stage.message) == (verdict, message.format(python=words[0]))
    assert words[1:] == ["-m", "busbw.check.doctor.node", "identity"] and json.loads(
        asked[0][2]["h2"]
    ) == {"names": ["h1", "h2"]}
    if verdict is PASS:
        assert one.identities["h2"]["mtus"] == {"eth0": 9000}


@pytest.mark.parametrize(
    ("hosts", "verdict", "message"),
    [
        ((identity("h1"), identity("h2")), PASS, "all names resolve on all hosts"),
        ((identity("h1"), identity("h2", names={"h1": []})), FAIL, "h2 cannot resolve h1"),
        (
            (identity("h1"), identity("h1")),
            FAIL,
            "several hosts have the name h1: launchers count them as one host",
        ),
        (
            (identity("h1"), identity("h2", names={"h2": ["127.0.1.1"]})),
            WARN,
            "h2 resolves its own name h2 to 127.0.1.1, where other",
        ),
        (
            (identity("h1"), identity("h2", names={"h2": ["127.0.1.1", "10.1.0.2"]})),
            PASS,
            "all names resolve on all hosts",
        ),
    ],
)
def test_names_of_hosts(hosts, verdict, message):
    stage = launching.names(context(*hosts))
    assert (stage.verdict, stage.message.startswith(message)) == (verdict, True), stage


BRIDGE = {"docker0": "172.17.0.1/16"}


@pytest.mark.parametrize(
    ("hosts", "ifname", "verdict", "message", "found"),
    [
        ((identity("h1"), identity("h2")), "", PASS, "the hosts share 10.1.0.0/24", [FABRIC]),
        (
            (identity("h1"), identity("h2", eth0="10.2.0.2/24")),
            "",
            FAIL,
            "the hosts have no subnet in common",
            [],
        ),
        (
            (identity("h1"), identity("h2")),
            "10.9.0.0/16",
            FAIL,
            "the hosts have no subnet in common within 10.9.0.0/16",
            [],
        ),
        (
            (identity("h1"), identity("h2", ib0="10.1.0.2/24")),
            "eth0",
            FAIL,
            "--ifname eth0: no such interface with an address on h2",
            [],
        ),
        (
            (identity("h1", **BRIDGE), identity("h2", **BRIDGE)),
            "",
            FAIL,
            "the hosts have no subnet in common",
            [],
        ),
        (
            (
                identity("h1", eth0="10.1.0.1/24", **BRIDGE),
                identity("h2", eth0="10.1.0.2/24", **BRIDGE),
            ),
            "",
            WARN,
            "172.17.0.0/16: several hosts have the same address there",
            [FABRIC],
        ),
        (
            (identity("h1"), identity("h2", mtu=1500)),
            "",
            WARN,
            "MTUs differ on 10.1.0.0/24: h2 differs from the others",
            [FABRIC],
        ),
        (
            (identity("h1", mtu=1500), identity("h2"), identity("h3", mtu=1500)),
            "",
            WARN,
            "MTUs differ on 10.1.0.0/24: h2",
            [FABRIC],
        ),
    ],
)
def test_subnets_that_hosts_share(hosts, ifname, verdict, message, found):
    one = context(*hosts, ifname=ifname)
    stage = networks.subnets(one)
    assert (stage.verdict, stage.message.startswith(message), one.networks) == (
        verdict,
        True,
        found,
    ), stage


def test_the_odd_mtu_is_named_with_the_usual_one():
    stage = networks.subnets(
        context(identity("h1", mtu=1500), identity("h2"), identity("h3", mtu=1500))
    )
    assert stage.evidence == ("h2: eth0 has MTU 9000, 2 of 3 hosts have 1500",)
    assert stage.fix.startswith("drain h2, and there: ip link set dev eth0 mtu 1500; ")


def on_two(**fields):
    one = context(
        *(identity(f"h{n}", eth0=f"10.1.0.{n}/24", docker0=f"172.17.0.{n}/16") for n in (1, 2)),
        **fields,
    )
    one.networks = [FABRIC, DOCKER]
    return one


def failing(*labels, reason="no answer"):
    return {"failed": dict.fromkeys(labels, reason), "problems": {}}


@pytest.mark.parametrize(
    ("second", "verdict", "message", "left"),
    [
        (
            failing(),
            PASS,
            "2 hosts connect in both directions on 10.1.0.0/24, 172.17.0.0/16",
            [FABRIC, DOCKER],
        ),
        (
            failing("172.17.0.0/16 h1"),
            WARN,
            "hosts connect on 10.1.0.0/24, but not on 172.17.0.0/16",
            [FABRIC],
        ),
        (
            failing("10.1.0.0/24 h1", "172.17.0.0/16 h1"),
            FAIL,
            "hosts cannot connect to each other on 10.1.0.0/24, 172",
            [FABRIC, DOCKER],
        ),
        (
            failing("10.1.0.0/24 h1", "172.17.0.0/16 h1", reason=node.LARGE),
            FAIL,
            "large packets are lost on 10.1.0.0/24,",
            [FABRIC, DOCKER],
        ),
        (b"nothing", FAIL, "h2: no answer", [FABRIC, DOCKER]),
        ({"problems": {}}, FAIL, "h2: no answer", [FABRIC, DOCKER]),
    ],
)
def test_connections_between_hosts(monkeypatch, second, verdict, message, left):
    one = on_two()
    asked = answers(monkeypatch, said("h1", failing()), said("h2", second))
    stage = networks.tcp(one)
    assert (stage.verdict, stage.message.startswith(message), one.networks) == (
        verdict,
        True,
        left,
    ), stage
    if verdict is WARN:
        assert (stage.evidence, stage.fix) == (
            ("h2 to h1 on 172.17.0.0/16: no answer",),
            "name the subnet that works: --ifname 10.1.0.0/24",
        )
    words, limit_s, given = asked[0]
    first, other = (json.loads(given[host]) for host in ("h1", "h2"))
    port = first["own"][0][1]
    assert (sorted(words), limit_s, 20000 <= port <= 30000) == (["h1", "h2"], 5.0, True)
    assert first["own"] == [["10.1.0.1", port], ["172.17.0.1", port]]
    assert first["peers"] == {
        "10.1.0.0/24 h2": ["10.1.0.2", port],
        "172.17.0.0/16 h2": ["172.17.0.2", port],
    }
    assert (first["token"], first["seconds"], first["linger"]) == (
        other["token"],
        3.0,
        2.0,
    ) and len(first["token"]) == 32


def test_a_host_that_connects_and_listens(monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    here = ["127.0.0.1", port]
    done = node.connect(
        {"token": "t", "seconds": 20, "own": [here, here], "peers": {"net h1": here}, "linger": 0}
    )
    assert done == {"failed": {}, "problems": {"listen 127.0.0.1": "Address already in use"}}
    slept = []
    monkeypatch.setattr(node, "time", SimpleNamespace(monotonic=time.monotonic, sleep=slept.append))
    for seconds, linger in ((20, 0.5), (0.001, 9)):
        node.connect({"token": "t", "seconds": seconds, "own": [], "peers": {}, "linger": linger})
    assert slept[0] == 0.5 and 0 <= slept[1] <= 0.001, (
        "for hosts that start later, within the limit"
    )
    monkeypatch.undo()
    monkeypatch.setattr(node, "_RETRY_S", 0.0)
    gone = node.connect(
        {
            "token": "t",
            "seconds": 0.05,
            "own": [],
            "peers": {"net h1": ["127.0.0.2", port]},
            "linger": 0,
        }
    )
    assert gone == {"failed": {"net h1": "connection refused"}, "problems": {}}


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (b"x" * 32, "another program answered"),
        (b"", "another program answered"),
        (node._code(b"t", b"here"), node.LARGE),
    ],
)
def test_what_answers_in_place_of_a_peer(monkeypatch, reply, reason):
    monkeypatch.setattr(node, "_RETRY_S", 0.0)
    failed, times = {}, iter([0.0, 0.0, 99.0, 99.0])
    monkeypatch.setattr(
        node,
        "time",
        type(
            "Time",
            (),
            {
                "monotonic": staticmethod(lambda: next(times, 99.0)),
                "sleep": staticmethod(lambda s: None),
            },
        ),
    )
    monkeypatch.setattr(node, "_receive_bulk", lambda connection: False)

    def serve():
        with server.accept()[0] as one:
            one.recv(32)
            one.sendall(reply)
            with contextlib.suppress(OSError):
                while reason == node.LARGE and one.recv(1 << 16):
                    pass

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, daemon=True).start()
        node._call("net h1", list(server.getsockname()), b"t", 5.0, failed)
    assert failed == {"net h1": reason}


def test_who_this_host_says_it_is():
    found = node.identity({"names": ["localhost", "no such name."]})
    own = socket.gethostname()
    assert (found["hostname"], found["busbw"]) == (own, __version__)
    assert (
        found["names"]["localhost"] == ["127.0.0.1"]
        and found["names"]["no such name."] == []
        and own in found["names"]
    )
    assert "lo" not in found["addresses"] and found["mtus"].keys() == found["addresses"].keys()


def test_stages_end_at_the_first_that_fails(monkeypatch):
    made = [
        passed("one", "fine"),
        launching.failed("two", "bad", fix="mend it"),
        passed("three", "fine"),
    ]
    monkeypatch.setattr(launching, "STAGES", tuple(lambda _, stage=stage: stage for stage in made))
    done = list(stages(on_two()))
    assert done == made[:2]
    found = diagnosis(on_two(), done)
    assert (found.hosts, found.stages, found.failed, found.commands) == (
        ["h1", "h2"],
        done,
        True,
        {},
    )


def test_command_lines_name_the_network_that_works(monkeypatch):
    monkeypatch.setattr(launching.mpirun, "find", lambda: "found")
    monkeypatch.setattr(
        launching.mpirun,
        "command",
        lambda *words: ["mpirun", "-x", f"{launching.interfaces.VARIABLE}=1", *map(str, words[2:])],
    )
    monkeypatch.setattr(launching.shutil, "which", lambda name: f"/usr/bin/{name}")
    one = on_two()
    own = "{'NCCL_SOCKET_IFNAME': '=eth0', 'GLOO_SOCKET_IFNAME': 'eth0'}"
    found = diagnosis(one, [passed("one", "fine")]).commands
    assert launching.shlex.split(found["mpirun"]) == [
        "mpirun",
        "4",
        str(one.hosts),
        "10.1.0.0/24",
        own,
    ]
    sockets = "NCCL_SOCKET_IFNAME='=eth0' GLOO_SOCKET_IFNAME=eth0 "
    assert found[
        "srun"
    ] == f"{sockets}srun --mpi=pmix -N 2 --ntasks-per-node 2 python train.py".replace(
        "'=eth0'", "=eth0"
    )
    torchrun = (
        "torchrun --nnodes 2 --nproc-per-node 2 --rdzv-backend c10d --rdzv-endpoint 10.1.0.1:29500"
        " train.py"
    )
    assert found["torchrun, on each host"].endswith(torchrun)
    one.identities["h2"]["addresses"] = {"ib0": "10.1.0.2/24"}
    assert "SOCKET" not in commands(one)["srun"], "no name that is right on all hosts"
    one.hosts = (Host("h1", 2), Host("h2", 4))
    assert list(commands(one)) == ["mpirun"]
    one.hosts, one.networks = (Host("h1", 2), Host("h2", 2)), []
    assert "--rdzv-endpoint h1:29500" in commands(one)["torchrun, on each host"]
    one.hosts = (Host("h1"), Host("h2"))
    assert launching.shlex.split(commands(one)["mpirun"])[1] == "2", (
        "one rank each where nobody says how many"
    )


@pytest.mark.parametrize(
    ("ran", "verdict", "message", "fix"),
    [
        ((0, "one\nlast line\n", ""), PASS, "last line", ""),
        ((0, " \n", ""), PASS, "2 hosts exchanged data", ""),
        ((3, "", "note: a\nerror: no route\n\nhint: allow\n  it"), FAIL, "no route", "allow it"),
        ((1, "", "broken"), FAIL, "broken", "NCCL_DEBUG=INFO busbw run"),
        ((1, "said\n", ""), FAIL, "said", "NCCL_DEBUG=INFO busbw run"),
        ((None, "", "error: late"), FAIL, "no end within 20 s", "NCCL_DEBUG=INFO busbw run"),
    ],
)
def test_a_small_sweep_on_all_hosts(monkeypatch, ran, verdict, message, fix):
    lines = []
    monkeypatch.setattr(
        launching, "_run", lambda line, limit_s: (lines.append((line, limit_s)), ran)[1]
    )
    one = on_two(engine="torch")
    stage = launching.all_reduce(one)
    assert (stage.name, stage.verdict, stage.message, stage.fix.startswith(fix)) == (
        "all_reduce",
        verdict,
        message,
        True,
    ), stage
    ((line, limit_s),) = lines
    assert (" ".join(line[4:]), limit_s) == (
        (
            "all_reduce --engine torch -b 8 -e 1M -f 131072 --hosts h1:2,h2:2 --timing classic"
            " --iters 5 --brief --launch-limit 5 --limit 5 --ifname 10.1.0.0/24"
        ),
        20.0,
    )
    launching.ring(one)
    assert "--hosts h1:1,h2:1" in " ".join(lines[1][0])


def test_nccl_is_skipped_without_gpus(monkeypatch):
    lines = []
    monkeypatch.setattr(
        launching, "_run", lambda line, limit_s: (lines.append(line), (0, "fine", ""))[1]
    )
    assert (launching.nccl(on_two(engine="mpi")).verdict, launching.nccl(on_two()).verdict) == (
        SKIP,
        PASS,
    )
    assert "h1:1,h2:1" in lines[0]


def test_a_program_that_is_run():
    assert launching._run(["sh", "-c", "echo out; echo err >&2; exit 3"], 20) == (
        3,
        "out\n",
        "err\n",
    )
    assert launching._run(["/no/such/program"], 20) == (
        127,
        "",
        "/no/such/program: No such file or directory",
    )
    code, out, error = launching._run(["sh", "-c", "echo out; exec sleep 60"], 0.3)
    assert (code, out in ("out\n", ""), error) == (None, True, "")


LONG = "x" * 200 + "y" * 300


def test_errors_are_cut_to_their_last_300_letters(monkeypatch):
    monkeypatch.setattr(launching, "_read_banner", lambda host: "")
    for code in (255, 3, None):
        answers(monkeypatch, said("h1", b"", code, f"{LONG}\n"))
        assert launching.ssh(context({})).evidence == ("y" * 300,)
    assert launching.install(context({})).evidence == ("y" * 300,)
    assert networks.tcp(on_two()).evidence == ("y" * 300,)


def test_of_many_pairs_six_are_shown(monkeypatch):
    one = context(*(identity(f"h{number}") for number in range(1, 10)))
    one.networks = [FABRIC]
    answers(
        monkeypatch, said("h1", failing(*(f"10.1.0.0/24 h{number}" for number in range(2, 10))))
    )
    assert [text.partition(" on ")[0] for text in networks.tcp(one).evidence] == [
        f"h1 to h{number}" for number in range(2, 8)
    ]


@pytest.mark.parametrize(
    ("ran", "verdict", "message", "fix"),
    [
        (
            (0, "h2\nh1\n", ""),
            PASS,
            "/opt/mpirun (Open MPI 5.0.1) starts a process on each host",
            "",
        ),
        ((0, "h1\nh1\n", LONG), FAIL, "", ""),
        (
            (None, "", ""),
            FAIL,
            "mpirun did not end within 5 s: its daemons cannot connect back to this host",
            "name the subnet",
        ),
    ],
)
def test_mpirun_starts_a_process_on_each_host(monkeypatch, ran, verdict, message, fix):
    lines = []
    monkeypatch.setattr(
        launching.mpirun, "find", lambda: SimpleNamespace(path="/opt/mpirun", version="5.0.1")
    )
    monkeypatch.setattr(
        launching.mpirun,
        "command",
        lambda found, program, ranks, hosts, network: [str(ranks), *map(str, hosts), network],
    )
    monkeypatch.setattr(
        launching, "_run", lambda line, limit_s: (lines.append((line, limit_s)), ran)[1]
    )
    stage = launching.start(on_two())
    assert (
        stage.name,
        stage.verdict,
        stage.message.startswith(message),
        stage.fix.startswith(fix),
    ) == ("mpirun", verdict, True, True)
    assert lines == [(["2", "h1:1", "h2:1", "10.1.0.0/24"], 5.0)]
    assert verdict is PASS or stage.evidence[-1] == "2 h1:1 h2:1 10.1.0.0/24"
    assert not ran[2] or stage.evidence[0] == "y" * 300


def test_without_mpirun_its_error_is_the_stages(monkeypatch):
    def absent():
        raise NoMeasurement("mpirun is not installed", "apt install openmpi-bin")

    monkeypatch.setattr(launching.mpirun, "find", absent)
    stage = launching.start(on_two())
    assert (stage.verdict, stage.message, stage.fix) == (
        FAIL,
        "mpirun is not installed",
        "apt install openmpi-bin",
    )


@pytest.mark.parametrize(("sent", "whole"), [(9, True), (10, True), (8, False), (0, False)])
def test_whether_all_bytes_arrived(monkeypatch, sent, whole):
    monkeypatch.setattr(node, "_BULK", 9)
    one, other = socket.socketpair()
    with one, other:
        other.sendall(bytes(sent))
        other.shutdown(socket.SHUT_WR)
        assert node._receive_bulk(one) is whole


def test_an_older_busbw_tells_no_mtu():
    assert parse_identity(said("h1", identity("h1") | {"mtus": {}}))["mtus"] == {"eth0": 0}
