"""The stages of the launch doctor that log in and start ranks. tests/netlab has real hosts."""

import json
import socket
import threading
from types import SimpleNamespace

import pytest
from doctor_answers import FABRIC, answers, context, host_result, identity, on_two

from busbw.check.doctor import launching, networks
from busbw.check.doctor.launching import commands, diagnosis, stages
from busbw.check.doctor.networks import passed
from busbw.core.errors import NoMeasurement
from busbw.core.finding import Verdict
from busbw.core.version import __version__
from busbw.launch.hosts import LaunchHost

FAIL, PASS, SKIP, WARN = Verdict.FAIL, Verdict.PASS, Verdict.SKIP, Verdict.WARN


@pytest.mark.parametrize(
    ("result", "verdict", "message", "fix"),
    [
        (host_result("h2", b""), PASS, "2 hosts can be logged into without a prompt", ""),
        (
            host_result("h2", b"", 3, "bye"),
            FAIL,
            "on h2 every command in a login shell exits with 3",
            "the startup files of its shell on h2",
        ),
        (
            host_result("h2", b"", 255, "Something new"),
            FAIL,
            "h2 cannot be logged into: exit code 255: Something new",
            "ssh -o BatchMode=yes",
        ),
        (
            host_result("h2", b"", 127, "ssh: not found"),
            FAIL,
            "h2 cannot be logged into: exit code 127: ssh: not found",
            "ssh -o BatchMode=yes",
        ),
        (
            host_result("h2", b"", None, "", "no answer within the time limit"),
            FAIL,
            "h2 cannot be logged into: no answer within the",
            "ssh -o",
        ),
        (
            host_result("h2", b"", 255, "Host key verification failed."),
            FAIL,
            "h2 cannot be logged into: exit code 255: Host key",
            "ssh-key",
        ),
    ],
)
def test_logins(monkeypatch, result, verdict, message, fix):
    monkeypatch.setattr(launching, "_read_banner", lambda host: "")
    answers(monkeypatch, host_result("h1", b""), result)
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
            with server.accept()[0] as connection:
                connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\nmore")

        threading.Thread(target=serve, daemon=True).start()
        answers(monkeypatch, host_result("127.0.0.1", b"", None, "", "no answer"))
        stage = launching.ssh(context({}))
    assert stage.message.startswith(
        "127.0.0.1: sshd answers ('SSH-2.0-OpenSSH_9.6'), but ssh gets no further"
    )
    assert (stage.verdict, stage.fix) == (FAIL, networks.SHOW_PATH_MTU)
    assert launching._read_banner("127.0.0.1") == "", "nothing listens any more"


@pytest.mark.parametrize(
    ("second", "verdict", "message"),
    [
        (
            host_result("h2", identity("h2")),
            PASS,
            f"busbw {__version__} is at the same path on all hosts",
        ),
        (
            host_result("h2", identity("h2", busbw="0.0.1")),
            FAIL,
            f"h2 has busbw 0.0.1, this host {__version__}",
        ),
        (
            host_result("h2", b"motd", 1, "No module named busbw"),
            FAIL,
            "h2: {python} does not run busbw: exit code 1: No module named busbw",
        ),
        (host_result("h2", b"no JSON"), FAIL, "h2: {python} does not run busbw: no answer"),
        (
            host_result("h2", identity("h2", eth0="no address")),
            FAIL,
            "h2: {python} does not run busbw: no answer",
        ),
    ],
)
def test_the_same_installation_everywhere(monkeypatch, second, verdict, message):
    calls = answers(monkeypatch, host_result("h1", identity("h1")), second)
    launch_context = context({}, {})
    launch_context.identities = {}
    stage = launching.install(launch_context)
    words = calls[0][0]["h2"]
    assert (stage.verdict, stage.message) == (verdict, message.format(python=words[0]))
    assert words[1:] == ["-m", "busbw.check.doctor.node", "identity"] and json.loads(
        calls[0][2]["h2"]
    ) == {"names": ["h1", "h2"]}
    if verdict is PASS:
        assert launch_context.identities["h2"]["mtus"] == {"eth0": 9000}


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


def test_stages_end_at_the_first_that_fails(monkeypatch):
    all_stages = [
        passed("one", "fine"),
        launching.failed("two", "bad", fix="mend it"),
        passed("three", "fine"),
    ]
    monkeypatch.setattr(
        launching, "STAGES", tuple(lambda _, stage=stage: stage for stage in all_stages)
    )
    stages_run = list(stages(on_two()))
    assert stages_run == all_stages[:2]
    report = diagnosis(on_two(), stages_run)
    assert (report.hosts, report.stages, report.failed, report.commands) == (
        ["h1", "h2"],
        stages_run,
        True,
        {},
    )


def test_command_lines_name_the_network_that_works(monkeypatch):
    monkeypatch.setattr(launching.mpirun, "find", lambda: "found")
    monkeypatch.setattr(
        launching.mpirun,
        "command",
        lambda *words: [
            *("mpirun", "-x", f"{launching.interfaces.VARIABLE}=1"),
            *(str(word) for word in words[2:]),
            *words[1],
        ],
    )
    monkeypatch.setattr(launching.shutil, "which", lambda name: f"/usr/bin/{name}")
    launch_context = on_two()
    variables = "{'NCCL_SOCKET_IFNAME': '=eth0', 'GLOO_SOCKET_IFNAME': 'eth0'}"
    command_lines = diagnosis(launch_context, [passed("one", "fine")]).commands
    assert launching.shlex.split(command_lines["mpirun"]) == [
        "mpirun",
        "4",
        str(launch_context.hosts),
        "10.1.0.0/24",
        variables,
        *("-x", "PATH", "python", "train.py"),
    ]
    sockets = "NCCL_SOCKET_IFNAME='=eth0' GLOO_SOCKET_IFNAME=eth0 "
    assert command_lines[
        "srun"
    ] == f"{sockets}srun --mpi=pmix -N 2 --ntasks-per-node 2 python train.py".replace(
        "'=eth0'", "=eth0"
    )
    torchrun = (
        "torchrun --nnodes 2 --nproc-per-node 2 --rdzv-backend c10d --rdzv-endpoint 10.1.0.1:29500"
        " train.py"
    )
    assert command_lines["torchrun, on each host"].endswith(torchrun)
    launch_context.identities["h2"]["addresses"] = {"ib0": "10.1.0.2/24"}
    assert "SOCKET" not in commands(launch_context)["srun"], "no name that is right on all hosts"
    launch_context.hosts = (LaunchHost("h1", 2), LaunchHost("h2", 4))
    assert list(commands(launch_context)) == ["mpirun"]
    launch_context.hosts, launch_context.networks = (LaunchHost("h1", 2), LaunchHost("h2", 2)), []
    assert "--rdzv-endpoint h1:29500" in commands(launch_context)["torchrun, on each host"]
    launch_context.hosts = (LaunchHost("h1"), LaunchHost("h2"))
    assert launching.shlex.split(commands(launch_context)["mpirun"])[1] == "2", (
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
    launch_context = on_two(engine="torch")
    stage = launching.all_reduce(launch_context)
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
    launching.ring(launch_context)
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
    nobody = context(identity("h1", gpus=0), identity("h2", gpus=0))
    assert launching.nccl(nobody).verdict is SKIP
    nobody.networks = [FABRIC]
    assert launching._socket_variables(nobody) == {"GLOO_SOCKET_IFNAME": "eth0"}
    some = launching.nccl(context(identity("h1"), identity("h2", gpus=0)))
    assert (some.verdict, some.message) == (FAIL, "no NVIDIA GPU on h2")
    assert len(lines) == 1, "NCCL was not started"


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
        answers(monkeypatch, host_result("h1", b"", code, f"{LONG}\n"))
        assert launching.ssh(context({})).evidence == ("y" * 300,)
    assert launching.install(context({})).evidence == ("y" * 300,)
    assert networks.tcp(on_two()).evidence == ("y" * 300,)


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
        lambda mpi, program, ranks, hosts, network: [str(ranks), *map(str, hosts), network],
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
