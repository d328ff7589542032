"""The faults of `job_faults.py`: what is done to a running job, and what counts as right."""

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from job_faults_rank import Word

SOON_S, LATER_S, LATEST_S = 15.0, 60.0, 300.0  # for a verdict
PORT = 29_444  # of the traffic of a second job
CPU_GROUPS = Path("/sys/fs/cgroup/cpu")  # of cgroup v1
GROUPS = Path("/sys/fs/cgroup")  # of v2
STRANGER = """
import torch
a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
while True:
    for _ in range(20):
        b = a @ a
    torch.cuda.synchronize()
"""


class Job(Protocol):
    """What a fault can reach."""

    words: list[Any]  # the numbers of each rank (job_faults_rank.py)
    lab: Any  # the emulated hosts, or None
    rate_mbit: float  # of what each host sends

    def pid(self, rank: int) -> int:
        """The process of a rank."""
        ...

    def host_of(self, rank: int) -> int:
        """The number of its host."""
        ...


Do = Callable[[Job, int], AbstractContextManager[None]]  # of a rank; undone at its end


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault. `kinds` are the verdicts that name it rightly, with one of `causes`, if
    there are any.
    """

    name: str
    do: Do
    kinds: frozenset[str]
    causes: frozenset[str] = frozenset()
    limit_s: float = LATER_S  # of the wait for a verdict
    in_time_s: float = 20.0  # until the rank or link should be named
    ends_job: bool = False
    needs_hosts: bool = False
    needs_gpus: bool = False
    needs_loader: bool = False  # of PyTorch
    on_request: bool = False  # by --kinds alone
    suspect: str = "rank"  # or `host`: any rank of the host that was hit, or its name; or `none`
    words: dict[str, float] = field(default_factory=dict)


def by_signal(number: int, undo: int | None = None) -> Do:
    """Send a signal, and another one at the end."""

    @contextlib.contextmanager
    def do(job: Job, rank: int) -> Iterator[None]:
        pid = job.pid(rank)
        os.kill(pid, number)
        yield
        if undo:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, undo)

    return do


def by_words(**values: float) -> Do:
    """Change numbers of the rank's file, named as in Word."""

    @contextlib.contextmanager
    def do(job: Job, rank: int) -> Iterator[None]:
        for name, value in values.items():
            job.words[rank][Word[name]] = value
        yield
        for name in values:
            job.words[rank][Word[name]] = 0.0

    return do


@contextlib.contextmanager
def paused_loaders(job: Job, _rank: int) -> Iterator[None]:
    """No rank gets a batch."""
    for words in job.words:
        words[Word.LOADER_MS] = -1.0
    yield
    for words in job.words:
        words[Word.LOADER_MS] = 0.0


@contextlib.contextmanager
def starved(job: Job, rank: int) -> Iterator[None]:
    """The kernel gives the rank's process a tenth of a CPU, as it does to a container's quota."""
    is_old = CPU_GROUPS.is_dir()
    top = CPU_GROUPS if is_old else GROUPS
    if not is_old:
        (top / "cgroup.subtree_control").write_text("+cpu")
    group = top / f"job_faults_{os.getpid()}"
    group.mkdir()
    try:
        if is_old:
            (group / "cpu.cfs_period_us").write_text("100000")
            (group / "cpu.cfs_quota_us").write_text("10000")
        else:
            (group / "cpu.max").write_text("10000 100000")
        (group / "cgroup.procs").write_text(str(job.pid(rank)))
        yield
    finally:
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (top / "cgroup.procs").write_text(pid)
        time.sleep(0.1)
        group.rmdir()


@contextlib.contextmanager
def stranger(_job: Job, rank: int) -> Iterator[None]:
    """Another process computes on the rank's GPU."""
    environ = dict(os.environ, CUDA_VISIBLE_DEVICES=str(rank))
    with subprocess.Popen([sys.executable, "-c", STRANGER], env=environ) as process:
        try:
            yield
        finally:
            process.kill()


def by_rate(share: float) -> Do:
    """The host of the rank sends with a share of the rate."""

    @contextlib.contextmanager
    def do(job: Job, rank: int) -> Iterator[None]:
        host = job.lab.hosts[job.host_of(rank)]
        _set_rate(host, share * job.rate_mbit)
        yield
        _set_rate(host, job.rate_mbit)

    return do


def _set_rate(host: Any, rate_mbit: float) -> None:
    """As the lab has it (busbw.lab.network), in place of the rate before."""
    tbf = f"tbf rate {rate_mbit:g}mbit burst 256kb latency 20ms"
    _in_network(host, "tc", "qdisc", "replace", "dev", host.interface, "root", *tbf.split())


def by_drops(percent: float) -> Do:
    """So many of the packets that the rank's host sends are lost on the way.

    They are dropped where they arrive: of a packet that cannot leave, TCP of its host is told.
    """

    @contextlib.contextmanager
    def do(job: Job, rank: int) -> Iterator[None]:
        host = job.lab.hosts[job.host_of(rank)]
        others = [other for other in job.lab.hosts if other.name != host.name]
        chance = [] if percent >= 100 else f"numgen random mod 1000 < {10 * percent:.0f}".split()
        for other in others:
            _nft(other, "add table inet faults")
            _nft(other, "add chain inet faults in { type filter hook prerouting priority -300 ; }")
            _nft(other, "add rule inet faults in ip saddr", host.address, *chance, "drop")
        yield
        for other in others:
            _nft(other, "delete table inet faults")

    return do


def _nft(host: Any, *words: str) -> None:
    _in_network(host, "nft", *" ".join(words).split())


def _in_network(host: Any, *words: str) -> None:
    line = ["ip", "netns", "exec", host.namespace, *words]
    subprocess.run(line, check=True, timeout=20, capture_output=True)


@contextlib.contextmanager
def second_job(job: Job, rank: int) -> Iterator[None]:
    """Other processes of the rank's host send as fast as they can."""
    host = job.lab.hosts[job.host_of(rank)]
    peer = job.lab.hosts[job.host_of(rank) - 1]
    ended = threading.Event()
    with peer.network():
        server = socket.create_server((peer.address, PORT))
    with host.network():
        clients = [socket.create_connection((peer.address, PORT)) for _ in range(4)]
    accepted = [server.accept()[0] for _ in clients]
    threads = [threading.Thread(target=_send, args=(each, ended)) for each in clients]
    threads += [threading.Thread(target=_receive, args=(each,)) for each in accepted]
    for thread in threads:
        thread.start()
    yield
    ended.set()
    for each in (*clients, *accepted, server):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()
    for thread in threads:
        thread.join(20)


def _send(connection: socket.socket, ended: threading.Event) -> None:
    data = bytes(1 << 16)
    with contextlib.suppress(OSError):
        while not ended.is_set():
            connection.sendall(data)


def _receive(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while connection.recv(1 << 16):
            pass


def slow(percent: float, every: int = 0) -> Do:
    """The rank computes longer, by a share of a step."""
    return by_words(SLOW=percent / 100, EVERY=every)


LATE, LONGER = frozenset({"late"}), frozenset({"longer", "late"})
COMPUTE, INPUT, NO_CPU = frozenset({"compute"}), frozenset({"input"}), frozenset({"cpu"})
LINK = frozenset({"link", "traffic"})
STOPPED, DEAD = frozenset({"stopped"}), frozenset({"dead", "ended", "over"})
CALLS, WAITING = frozenset({"missing", "mismatch"}), frozenset({"missing"})
SLOW_LINK, LOSSY = LONGER | {"slow-link"}, LONGER | {"lossy"}
STILL, STALLED = frozenset({"still"}), frozenset({"stalled"})
KINDS = (
    Kind(
        "SIGSTOP", by_signal(signal.SIGSTOP, signal.SIGCONT), STOPPED, limit_s=SOON_S, in_time_s=5
    ),
    Kind("SIGKILL", by_signal(signal.SIGKILL), DEAD, limit_s=SOON_S, in_time_s=5, ends_job=True),
    Kind("30 % slower", slow(30), LATE, COMPUTE),
    Kind("10 % slower", slow(10), LATE, COMPUTE, in_time_s=LATER_S),
    Kind("5 % slower", slow(5), LATE, COMPUTE, LATEST_S, in_time_s=LATEST_S),
    Kind("3 % slower", slow(3), LATE, COMPUTE, LATEST_S, in_time_s=LATEST_S, on_request=True),
    Kind("slow every 10th step", slow(100, every=10), LATE),
    Kind("a call left out", by_words(SKIP=1), CALLS, ends_job=True),
    Kind("another size", by_words(ODD_SIZE=1), CALLS, ends_job=True),
    Kind("loader slower", by_words(LOADER_MS=30), LATE, INPUT, needs_loader=True),
    Kind("loader paused", by_words(LOADER_MS=-1), WAITING, INPUT, needs_loader=True),
    Kind("all loaders paused", paused_loaders, STILL, INPUT, needs_loader=True, suspect="none"),
    Kind("CPU starved", starved, LATE, NO_CPU),
    Kind("stranger on the GPU", stranger, LATE, frozenset({"shared"}), needs_gpus=True),
    Kind("link at 50 %", by_rate(0.5), SLOW_LINK, LINK, needs_hosts=True, suspect="host"),
    Kind("link at 10 %", by_rate(0.1), SLOW_LINK, LINK, needs_hosts=True, suspect="host"),
    Kind("2 % loss", by_drops(2), LOSSY, LINK, needs_hosts=True, suspect="host"),
    Kind("one-way drop", by_drops(100), STALLED, needs_hosts=True, suspect="host", ends_job=True),
    Kind("second job on the link", second_job, SLOW_LINK, LINK, needs_hosts=True, suspect="host"),
)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault at a random moment."""

    number: int
    kind: Kind
    rank: int
    after_s: float  # of a job without a fault


def draw(seed: int, number: int, ranks: int, kinds: list[Kind]) -> Fault:
    """The fault with this number: kinds in turn, in an order of their own each time."""
    order = list(range(len(kinds)))
    random.Random(f"{seed} {number // len(kinds)}").shuffle(order)
    chance = random.Random(f"{seed} {number}")
    kind = kinds[order[number % len(kinds)]]
    return Fault(number, kind, chance.randrange(ranks), chance.uniform(3.0, 10.0))
