"""`busbw lab` from the command line: hosts are made, reached by ssh and limited in rate, and
nothing is left of them, whichever process is killed.
"""

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from busbw.cli.main import guarded
from busbw.host.process import start_time
from busbw.lab.sshd import SSHD

pytestmark = pytest.mark.netlab

Busbw = Callable[..., "subprocess.CompletedProcess[str]"]
SOURCE = str(Path(__file__).parents[2] / "src")
ENVIRONMENT = {**os.environ, "PYTHONPATH": SOURCE}
LABS = Path("/run/busbw-lab")
SMALL = ("-b", "1K", "-e", "1K", "--timing", "classic", "--iters", "3", "--warmup-iters", "1")
RATE = 25e6  # 200 Mbit/s. What a busy machine does late looks slower
GIVE = """
import socket
with socket.create_server(("", 7000)) as server:
    print("ready", flush=True)
    server.accept()[0].sendall(bytes(10_000_000))
"""
TAKE = """
import select, socket, sys, time
start, size = time.monotonic(), 0
left = [socket.create_connection((host, 7000), 10) for host in sys.argv[1:]]
while left:
    for one in select.select(left, [], [])[0]:
        part = one.recv(1 << 20)
        size += len(part)
        if not part:
            left.remove(one)
print(size / (time.monotonic() - start))
"""
ECHO = """
import socket
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.bind(("10.77.0.2", 7001))
print(flush=True)
while True:
    one.sendto(*one.recvfrom(8))
"""
PINGS = """
import socket, struct, time
one, took = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), []
one.connect(("10.77.0.2", 7001))
one.settimeout(0.25)
for _ in range(10):
    for _ in range(100):  # fits into the sockets' buffers
        one.send(struct.pack("d", time.monotonic()))
    try:
        while sent := one.recv(8):
            took.append(time.monotonic() - struct.unpack("d", sent)[0])
    except TimeoutError:
        pass
print(min(took), len(took))
"""


def up(*words: str) -> "subprocess.CompletedProcess[str]":
    """`busbw lab up` in a process of its own, which ends, as that of users does."""
    argv = [sys.executable, "-m", "busbw", "lab", "up", *words]
    return subprocess.run(
        argv, env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.fixture
def busbw(capfd: pytest.CaptureFixture[str]) -> Busbw:
    """busbw("status", ...) calls `busbw lab` in this process."""

    def call(*words: str) -> "subprocess.CompletedProcess[str]":
        code = guarded(["lab", *words])
        return subprocess.CompletedProcess(words, code, *capfd.readouterr())

    return call


def on(lab: str, host: str, *words: str) -> list[str]:
    return [sys.executable, "-m", "busbw", "lab", "exec", "--name", lab, host, "--", *words]


def received(lab: str, receiver: str, *senders: str) -> float:
    """Bytes per second that a host receives from others at the same time."""
    with contextlib.ExitStack() as undo:
        for sender in senders:
            argv = on(lab, sender, sys.executable, "-c", GIVE)
            give = undo.enter_context(
                subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
            )
            assert give.stdout and give.stdout.readline() == "ready\n"
        take = on(lab, receiver, sys.executable, "-c", TAKE, *senders)
        return float(
            subprocess.run(
                take, env=ENVIRONMENT, capture_output=True, check=True, timeout=30
            ).stdout
        )


def state(lab: str) -> dict[str, Any]:
    return dict(json.loads((LABS / lab / "state.json").read_text()))


@pytest.fixture
def name() -> Iterator[str]:
    """A lab's name; a lab that the test leaves is removed."""
    own = f"test-{uuid.uuid4().hex[:6]}"
    yield own
    if (LABS / own).exists():
        guarded(["lab", "down", "--name", own])


def start_lab(name: str, *words: str) -> dict[str, Any]:
    done = up("--name", name, *words)
    if done.returncode == 3:
        pytest.skip(f"no lab: {done.stderr.splitlines()[0]} (make test-tools)")
    assert done.returncode == 0, done.stderr
    return state(name)


def leftovers(lab: dict[str, Any]) -> list[str]:
    """Everything on this machine that mentions the lab's token or folder: namespaces, mounts,
    interfaces, processes, folders.
    """
    token, remaining = lab["token"], []
    for places in (Path("/run/netns").glob(f"bb{token}*"), LABS.glob(lab["spec"]["name"])):
        remaining += [str(place) for place in places]
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (
                token in (process / "mountinfo").read_text()
                or f"{lab['folder']}/" in (process / "cmdline").read_text()
            ):
                remaining.append((process / "cmdline").read_text().replace("\0", " "))
    return remaining


def test_hosts_send_at_the_rate_run_a_collective_over_ssh_and_are_gone_after_down(
    busbw, name, tmp_path
):
    links = sorted(Path("/sys/class/net").iterdir())
    lab = start_lab(name, "--rate", "200Mbit/s")
    again = up("--name", name)
    assert again.returncode == 2
    assert f"hint: busbw lab down --name {name}" in again.stderr
    assert RATE / 2 < received(name, "h2", "h1") < 1.15 * RATE
    for host in lab["hosts"]:
        receive_cores = Path(f"/sys/class/net/{host['interface']}/queues/rx-0/rps_cpus")
        mask = subprocess.run(
            on(name, host["name"], "cat", str(receive_cores)),
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        ).stdout
        cores = host["cores"] or os.sched_getaffinity(0)
        assert int(mask.replace(",", ""), 16) == sum(1 << core for core in cores), (
            "one core receives a connection, so that packets do not overtake each other"
        )
    file = tmp_path / "result.json"
    words = [
        *shlex.split("-m busbw run all_reduce --engine mpi --hosts root@h[1-2]:1"),
        *SMALL,
        "--json",
        str(file),
    ]
    done = subprocess.run(
        on(name, "h1", sys.executable, *words),
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(file.read_text())
    assert [device["host"] for device in result["world"]["devices"]] == ["h1", "h2"]
    assert result["rows"][0]["out_of_place"]["wrong"] == 0
    assert result["ideal"]["busbw"] == RATE
    assert result["ideal"]["link"] == "the lab's rate, 1 x 0.025 GB/s"
    assert "Accepted publickey" in Path(lab["folder"], "sshd_log.h2").read_text(), (
        "the second rank was started by ssh"
    )
    assert sorted(Path("/sys/class/net").iterdir()) == links, (
        "nothing is added to this machine's own network"
    )
    assert busbw("down", "--name", name).returncode == 0
    assert leftovers(lab) == []
    done = subprocess.run(
        on(name, "h1", "true"),
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 2
    assert f"no lab '{name}'" in done.stderr


def test_two_labs_do_not_disturb_each_other(busbw, name):
    other = f"{name}b"
    first = start_lab(name, "--nodes", "3", "--no-sshd", "--rate", "200Mbit/s")
    try:
        second = start_lab(other)
        assert RATE / 2 < received(name, "h1", "h2", "h3") < 1.15 * RATE, (
            "what a host receives is limited too"
        )
        lines = busbw(
            "exec",
            "--name",
            name,
            "--all-hosts",
            "--",
            "sh",
            "-c",
            "printf a; sleep 0.2; hostname; printf b; exit $(hostname | tr -d h)",
        )
        assert lines.returncode == 3, "the largest exit code"
        assert sorted(lines.stdout.splitlines()) == [
            "h1: ah1",
            "h1: b",
            "h2: ah2",
            "h2: b",
            "h3: ah3",
            "h3: b",
        ]
        assert busbw("down", "--name", name).returncode == 0
        assert leftovers(first) == [], "processes of the other lab keep nothing of it"
        status = busbw("status", "--name", other)
        assert status.returncode == 0, status.stdout
        done = subprocess.run(
            on(other, "h2", "ssh", "h1", "hostname"),
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert done.stdout == "h1\n", done.stderr
    finally:
        busbw("down", "--name", other)
    assert leftovers(second) == []


def test_status_shows_killed_processes_and_down_removes_the_others(busbw, name):
    lab = start_lab(name)
    pid = int(Path(lab["folder"], "sshd_pid.h2").read_text())
    subprocess.run(
        on(name, "h1", "sh", "-c", "setsid sleep 600 >/dev/null 2>&1 &"),
        env=ENVIRONMENT,
        check=True,
        timeout=30,
    )
    os.kill(pid, signal.SIGKILL)
    limit = time.monotonic() + 10
    while start_time(pid) and time.monotonic() < limit:
        time.sleep(0.01)
    status = busbw("status", "--name", name)
    assert status.returncode == 1
    h1, h2 = status.stdout.splitlines()[2:]
    assert re.search(r" 2 +ok$", h1), "sshd and the sleeper"
    assert h2.endswith("sshd has ended")
    for verb, own in (("down", name), ("up", f"{name}b")):
        inside = subprocess.run(
            on(name, "h1", sys.executable, "-m", "busbw", "lab", verb, "--name", own),
            env=ENVIRONMENT,
            check=False,
        )
        assert inside.returncode == 2, "down would end itself, and only h1 would see the other lab"
    # A network that somebody has removed, and a process that has left it.
    subprocess.run(
        on(name, "h1", "unshare", "--net", "setsid", "--fork", "sleep", "600"),
        env=ENVIRONMENT,
        check=True,
        timeout=30,
    )
    subprocess.run(["umount", "-l", f"/run/netns/bb{lab['token']}h2"], check=True)
    Path(f"/run/netns/bb{lab['token']}h2").unlink()
    done = busbw("exec", "--name", name, "--all-hosts", "--", "true")
    assert done.returncode == 3
    assert f"error: the network of h2 in lab '{name}' is gone" in done.stderr
    # A pid that was given to another process: it must not be taken for that of sshd.
    with subprocess.Popen(["sleep", "600"]) as stranger:
        Path(lab["folder"], "sshd_pid.h1").write_text(f"{stranger.pid}\n")
        assert busbw("status", "--name", name).returncode == 1
        assert busbw("down", "--name", name).returncode == 0
        assert stranger.poll() is None, "it is no process of the lab"
        stranger.kill()
    assert leftovers(lab) == []


KILLED, INTERRUPTED = (signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)
# `up` says so, and the first that it prints then is a note if the hosts share one core
STANDS = "stands"
ON_ONE_CORE = ("taskset", "-c", str(min(os.sched_getaffinity(0))))
NEEDS_SSHD = pytest.mark.skipif(not os.access(SSHD, os.X_OK), reason="no sshd: make test-tools")


@pytest.mark.parametrize(
    ("moment", "number", "code"),
    [
        ("state.json", *KILLED),
        ("state.json", *INTERRUPTED),
        (STANDS, *INTERRUPTED),
        pytest.param("hosts.*", *INTERRUPTED, marks=NEEDS_SSHD),
        pytest.param("sshd_pid.h1", *KILLED, marks=NEEDS_SSHD),
    ],
)
def test_an_up_that_is_stopped_leaves_nothing_after_the_next_command(
    busbw, name, moment, number, code
):
    """At several moments: when the state is there, the networks, the first sshd, and when the lab
    stands.

    The pipe to which `up` writes its answer is full, so that it cannot end before the signal.
    """
    bare = ["--no-sshd"] if moment in ("state.json", STANDS) else []
    argv = [*ON_ONE_CORE, sys.executable, "-m", "busbw", "lab", "up", "--name", name, *bare]
    answers, full = full_pipe()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(
            argv, env=ENVIRONMENT, stdout=full, stderr=subprocess.PIPE, text=True
        )
    finally:
        signal.signal(signal.SIGINT, before)
        os.close(full)
    assert process.stderr
    with os.fdopen(answers, "rb") as reader:
        if moment == STANDS:
            assert (
                process.stderr.readline()
                == "note: 2 hosts share 1 cores: there are fewer cores than hosts\n"
            )
        else:
            wait_for(LABS / name, moment, process)
        lab = state(name)
        process.send_signal(number)
        if number == signal.SIGINT:
            reader.read()
        errors = process.communicate(timeout=100)[1]
    assert process.returncode == code, errors
    if number == signal.SIGKILL:
        assert busbw("down", "--name", name).returncode in (0, 2), (
            "2: a lab of another test has removed it"
        )
    assert leftovers(lab) == []


def wait_for(folder: Path, file: str, process: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + 100  # Python starts late on a busy machine
    while not any(folder.glob(file)) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.001)


def full_pipe() -> tuple[int, int]:
    """Both ends of a pipe whose writer waits until somebody reads."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, bytes(1 << 16))
    os.set_blocking(writing, True)
    return reading, writing


def test_what_a_killed_owner_left_is_removed_by_the_next_lab(busbw, name):
    script = (
        "import sys, time; from busbw import lab; from busbw.lab.types import LabSpec; import"
        " netlab\n"
        "with lab.temporary_lab(LabSpec(name=sys.argv[1], names=['a', 'b'], sshd=False)),"
        " netlab.namespaces(sys.argv[1], [sys.argv[2]]): print('up', flush=True); time.sleep(600)"
    )
    bare, environ = f"bb{name}", {**ENVIRONMENT, "PYTHONPATH": f"{SOURCE}:{Path(__file__).parent}"}
    owner = subprocess.Popen(
        [sys.executable, "-c", script, name, bare], env=environ, stdout=subprocess.PIPE, text=True
    )
    with owner:
        assert owner.stdout
        if owner.stdout.readline() != "up\n":
            pytest.skip("no lab")
        old = state(name)
        alive = up("--name", name, "--no-sshd")
        had_networks = Path("/run/netns", bare).exists()
        owner.kill()
    assert alive.returncode == 2, "its owner lives"
    assert had_networks
    new = start_lab(name, "--no-sshd")
    assert leftovers(old) == [str(LABS / name)], "the folder is the new lab's"
    assert not Path("/run/netns", bare).exists(), "nor of a test that makes networks of its own"
    assert busbw("down", "--name", name).returncode == 0
    assert leftovers(new) == []


def test_two_ups_of_one_name_make_one_lab_and_its_commands_end_with_exec(busbw, name):
    argv = [sys.executable, "-m", "busbw", "lab", "up", "--no-sshd", "--name", name]
    processes = [
        subprocess.Popen(
            argv, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for _ in range(2)
    ]
    codes = sorted(process.wait(60) for process in processes)
    if 3 in codes:
        pytest.skip("no lab")
    assert codes == [0, 2]
    lab = state(name)
    everywhere = [sys.executable, "-m", "busbw", "lab", "exec", "--name", name, "--all-hosts", "--"]
    done = subprocess.run(
        ["sh", "-c", '"$@" | head -n 1', "sh", *everywhere, "yes"],
        env=ENVIRONMENT,
        capture_output=True,
        timeout=30,
    )
    assert done.stdout in (b"h1: y\n", b"h2: y\n"), "it ends when nobody reads"
    assert done.stderr == b""
    for number in (signal.SIGKILL, signal.SIGINT):
        talk = [
            "sh",
            "-c",
            "trap 'echo cleared up; exit 3' INT; echo ready; while sleep 0.05; do :; done",
        ]
        # A session of its own, whose processes get the signal together, as from a terminal.
        process = subprocess.Popen(
            [*everywhere, *talk],
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        with process:
            assert process.stdout
            assert sorted(process.stdout.readline() for _ in "12") == ["h1: ready\n", "h2: ready\n"]
            if number == signal.SIGKILL:
                process.kill()
            else:
                os.killpg(process.pid, number)
                assert sorted(process.stdout) == ["h1: cleared up\n", "h2: cleared up\n"]
        assert process.returncode == (130 if number == signal.SIGINT else -number)
    deadline = time.monotonic() + 5
    while any(
        host["processes"]
        for host in json.loads(busbw("status", "--name", name, "--format", "json").stdout)[0][
            "hosts"
        ]
    ):
        assert time.monotonic() < deadline, "the commands have ended"
    assert busbw("down", "--name", name).returncode == 0
    assert leftovers(lab) == []


def test_a_program_that_exits_in_its_own_sigterm_handler_can_start_a_lab(name):
    pytest.importorskip("pyroute2", reason="pyroute2 is not installed")
    if os.geteuid() != 0:
        pytest.skip("a lab needs root")
    code = """if True:
        import signal, sys, time
        from pyroute2 import process
        from busbw import lab
        from busbw.lab.types import LabSpec
        from busbw.lab.processes import exists
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        answer = process.wrapper  # runs in a fork, which gets SIGTERM once it has answered
        process.wrapper = lambda *words: (answer(*words), time.sleep(0.1))
        with lab.temporary_lab(LabSpec(name=sys.argv[1], names=['a', 'b'], sshd=False, gpus=0)) as one:
            print(*map(exists, one.namespaces))
    """
    done = subprocess.run(
        [sys.executable, "-c", code, name],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "True True\n", done.stderr


def in_own_mounts(script: str, *words: str) -> "subprocess.CompletedProcess[str]":
    """A shell script that mounts what only it and its processes see; `lab` is busbw lab, `$1` is
    the first of `words`.
    """
    text = f'lab() {{ "{sys.executable}" -m busbw lab "$@"; }}\n{script}'
    argv = ["unshare", "--mount", "sh", "-ec", text, "sh", *words]
    return subprocess.run(
        argv, env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_full_disk_is_reported_and_nothing_is_left(name):
    done = in_own_mounts(
        'mount -t tmpfs -o size=8k,nr_inodes=8 tmpfs /run; lab up --no-sshd --name "$1" || code=$?;'
        " ls -R /run; exit $code",
        name,
    )
    assert done.returncode == 3, done.stderr
    assert f"error: /run/busbw-lab/{name}" in done.stderr
    assert "No space left on device\n\nhint: df -h /run\n" in done.stderr
    assert done.stdout.split() == ["/run:", "netns", "/run/netns:"]


@pytest.mark.skipif(not Path("/etc/ssh/ssh_config").exists(), reason="no ssh: make test-tools")
def test_settings_of_ssh_on_this_machine_do_not_keep_hosts_from_each_other(name, tmp_path):
    """Port and jump host are usual settings; a lab's ssh ignores them for its hosts, and only
    for these.
    """
    config = tmp_path / "ssh_config"
    config.write_text("Host *\n    Port 2222\n    User nobody\n    ProxyJump bastion\n")
    script = """
        mount -t tmpfs tmpfs /run
        mount --bind "$2/ssh_config" /etc/ssh/ssh_config
        ! [ -e ~/.bashrc ] || mount --bind /dev/null ~/.bashrc  # logins by ssh run it
        lab up --name "$1" >&2
        lab exec --name "$1" h1 -- scp -q "$2/ssh_config" "h2:$2/copy"
        lab exec --name "$1" h1 -- ssh h2 hostname
        lab exec --name "$1" h1 -- ssh -G other | grep -E '^(port|user|proxyjump) '
        lab exec --name "$1" h1 -- ssh -o PubkeyAuthentication=no -o BatchMode=yes h2 true || true
        lab exec --name "$1" h1 -- unshare --net setsid --fork sh -c "echo \\$\\$ > $2/pid; exec sleep 600"
        until [ -s "$2/pid" ]; do sleep 0.01; done
        lab down --name "$1"
    """
    done = in_own_mounts(script, name, str(tmp_path))
    if "hint: Debian, Ubuntu: apt-get install" in done.stderr:
        pytest.skip(f"no lab: {done.stderr.splitlines()[0]} (make test-tools)")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n") == ["h2", "user nobody", "port 2222", "proxyjump bastion", ""]
    assert "Permission denied (publickey)." in done.stderr, "no other way is open"
    assert (tmp_path / "copy").read_text() == config.read_text()
    assert start_time(int((tmp_path / "pid").read_text())) == 0, (
        "it is gone, although it had left its network"
    )


def test_packets_are_delayed_and_lost_or_the_missing_module_is_named(busbw, name):
    done = up("--name", name, "--no-sshd", "--delay", "20ms", "--loss", "10%")
    if done.returncode == 3:
        assert (
            "error: this kernel has no sch_netem, which --delay and --loss need" in done.stderr
        ), done.stderr
        assert not (LABS / name).exists()
        pytest.skip("this kernel has no sch_netem")
    lab = state(name)
    with subprocess.Popen(
        on(name, "h2", sys.executable, "-c", ECHO),
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdout and server.stdout.readline()
        out = subprocess.run(
            on(name, "h1", sys.executable, "-c", PINGS),
            env=ENVIRONMENT,
            capture_output=True,
            check=True,
            timeout=30,
        ).stdout
        server.kill()
    least, received_count = out.split()
    assert 0.04 <= float(least) < 0.1, "20 ms each way"
    assert 700 < int(received_count) < 900, "81 % survive both ways"
    assert busbw("down", "--name", name).returncode == 0
    assert leftovers(lab) == []
