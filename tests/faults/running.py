"""One run of the real command, watched from outside: its rows as they come, its processes, its
result file, and its end.
"""

import contextlib
import fcntl
import json
import os
import platform
import select
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

SOURCE = str(Path(__file__).parents[2] / "src")
MARK = "FAULT_RUN"
RANK_PROGRAM = b"busbw.measure.rank"
SIZES = 5  # 1K to 16K
SEARCH_S = 1.0


class Gone(Exception):
    """The process to act on does not exist."""


@dataclass
class Setting:
    """How busbw is called.

    `cycles` 0: until the fault ends it. `sweep` are options in place of small sizes timed
    classically.

    Within `start_limit_s` it comes to the moment of the fault. `engine` torch needs seconds for its
    start. `prefix` is a program that starts it, `shell` are commands of a shell that does so then,
    and `ignored` the signals that it does not get. With `small_pipe` little of what it prints waits
    to be read.
    """

    limit_s: float
    launch_limit_s: float
    cycles: int
    start_limit_s: float = 30.0
    ifname: str = "10.77.0.0/24"
    ranks: int = 4
    engine: str = "mpi"
    sweep: tuple[str, ...] = ()
    prefix: tuple[str, ...] = ()
    shell: str = ""
    ignored: tuple[signal.Signals, ...] = ()
    small_pipe: bool = False


class Run:
    """`busbw run` with four ranks, on two emulated hosts or here where `netlab` is None.

    Leaves nothing behind.
    """

    def __init__(self, folder: Path, netlab: ModuleType | None, setting: Setting) -> None:
        self.folder, self._netlab, self.setting = folder, netlab, setting
        self.file = folder / "result.json"
        self.lab: Any = None
        self.rows_seen = 0
        self.code: int | None = None
        self.stderr = ""
        self.began = False  # the table's header is there: the sweep begins
        self.heard: list[tuple[float, str]] = []  # lines of stderr, and when they came
        self._undo = contextlib.ExitStack()
        self._shared: set[str] = set()  # files in /dev/shm that its processes had mapped
        self._reads = threading.Event()
        self._reads.set()
        self._closes = threading.Event()
        self._token = uuid.uuid4().hex
        self._process: subprocess.Popen[str] | None = None
        self._readers: list[threading.Thread] = []
        self._afterwards: list[Callable[[], object]] = []

    def __enter__(self) -> "Run":
        with contextlib.ExitStack() as undo:
            self.temporary = Path(
                undo.enter_context(
                    tempfile.TemporaryDirectory(prefix="bbf-", ignore_cleanup_errors=True)
                )
            )
            if self._netlab is not None:
                self.lab = undo.enter_context(self._netlab.lab())
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        while self._afterwards:
            self._afterwards.pop()()
        for pid in self._here():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        for reader in self._readers:
            reader.join(5)
        if self._process is not None:
            assert self._process.stderr is not None
            self._process.stderr.close()
        self._undo.close()

    def start(self) -> None:
        small = (
            *shlex.split("--timing classic -b 1K -e"),
            f"{2 ** (SIZES - 1)}K",
            "--iters",
            "3",
            "--run-cycles",
            str(self.setting.cycles),
        )
        words = [
            "run",
            "all_reduce",
            "--engine",
            self.setting.engine,
            "--format",
            "csv",
            "--json",
            str(self.file),
            *(self.setting.sweep or small),
        ]
        words += [
            "--limit",
            str(self.setting.limit_s),
            "--launch-limit",
            str(self.setting.launch_limit_s),
        ]
        argv = [sys.executable, "-m", "busbw", *words]
        # Four ranks on few cores: waiting ranks yield.
        environment = {
            **os.environ,
            "PYTHONPATH": SOURCE,
            MARK: self._token,
            "OMPI_MCA_mpi_yield_when_idle": "1",
        }
        environment["TMPDIR"] = str(self.temporary)
        environment.pop("PRTE_MCA_prte_local_tmpdir_base", None)  # of the suite, in place of TMPDIR
        if self.lab is None:
            argv += ["-np", str(self.setting.ranks)]
        else:
            argv = self.lab.hosts[0].enter(
                *argv, "--hosts", "10.77.0.1:2,10.77.0.2:2", "--ifname", self.setting.ifname
            )
            environment |= self.lab.environment()
        if self.setting.shell:
            argv = ["sh", "-c", f'{self.setting.shell} && exec "$@"', "sh", *argv]
        out, into = os.pipe()
        if self.setting.small_pipe:
            fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, 4096)
        with _as_inherited(self.setting.ignored):
            self._process = subprocess.Popen(
                [*self.setting.prefix, *argv],
                env=environment,
                cwd=self.folder,
                stdout=into,
                stderr=subprocess.PIPE,
                text=True,
            )
        os.close(into)
        self._readers = [
            threading.Thread(target=self._read_rows, args=(out,)),
            threading.Thread(target=self._read_talk),
        ]
        for reader in self._readers:
            reader.start()

    def _read_rows(self, out: int) -> None:
        # Two lines a row: out of place and in place. The first line is the header.
        lines = 0
        while not self._closes.is_set():
            if not self._reads.wait(0.1) or not select.select([out], [], [], 0.1)[0]:
                continue
            data = os.read(out, 1 << 16)
            if not data:
                break
            lines += data.count(b"\n")
            self.began, self.rows_seen = self.began or lines > 0, max(lines - 1, 0) // 2
        os.close(out)

    def pause_stdout(self) -> None:
        """Do not read what busbw prints for now."""
        self._reads.clear()

    def resume_stdout(self) -> None:
        self._reads.set()

    def close_stdout(self) -> None:
        """As a reader that has gone."""
        self._closes.set()

    def undo(self, action: Callable[[], object]) -> None:
        """Something to do at the end, after all processes have ended."""
        self._undo.callback(action)

    def when_ended(self, action: Callable[[], object]) -> None:
        """Something to do when busbw has ended, before what is left is counted."""
        self._afterwards.append(action)

    def _read_talk(self) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.stderr += line
            self.heard.append((time.monotonic(), line))

    def comes_to(self, row: int, rank: int) -> bool:
        """Wait until `row` rows were printed, for row 0 until the rank's process is there;
        returns whether that happened.
        """
        assert self._process is not None
        end = time.monotonic() + self.setting.start_limit_s
        while (
            (self.rows_seen < row if row else self._pid(rank) is None)
            and self._process.poll() is None
            and time.monotonic() < end
        ):
            time.sleep(0.01)
        return self._process.poll() is None and time.monotonic() < end

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def begins(self) -> bool:
        """Wait until the sweep begins; returns whether it did."""
        end = time.monotonic() + self.setting.start_limit_s
        while (
            not self.began
            and self._process is not None
            and self._process.poll() is None
            and time.monotonic() < end
        ):
            time.sleep(0.01)
        return self.began

    def pid_of(self, rank: int) -> int:
        """The process of a rank."""
        assert self._process is not None
        end = time.monotonic() + SEARCH_S
        while (
            (pid := self._pid(rank)) is None
            and self._process.poll() is None
            and time.monotonic() < end
        ):
            time.sleep(0.01)  # a process that starts or ends others may hide from one look at /proc
        if pid is None:
            raise Gone(f"rank {rank} has gone before anything was done to it")
        return pid

    def _pid(self, rank: int) -> int | None:
        for pid in self.pids():
            try:
                if RANK_PROGRAM in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                    variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                    if f"OMPI_COMM_WORLD_RANK={rank}".encode() in variables:
                        return pid
            except OSError:
                continue
        return None

    def named(self, *names: str) -> list[int]:
        """Processes of the run by their program's name; the youngest first."""
        return sorted((pid for pid in self.pids() if _comm(pid) in names), reverse=True)

    def signal_busbw(self, number: signal.Signals) -> None:
        """To the command itself, as a terminal or a scheduler sends it."""
        assert self._process is not None
        # entering a host replaces the process, so its pid is the command's
        self._process.send_signal(number)

    def pids(self) -> list[int]:
        """All processes of the run but the command itself."""
        own = self._process.pid if self._process else 0
        pids = (
            self._here()
            if self.lab is None
            else [pid for host in self.lab.hosts for pid in host.pids()]
        )
        return [pid for pid in pids if pid != own]

    def _here(self) -> list[int]:
        mark, pids = f"{MARK}={self._token}".encode(), []
        for entry in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if mark in entry.read_bytes().split(b"\0"):
                    pids.append(int(entry.parent.name))
        return pids

    def ended_within(self, seconds: float) -> bool:
        assert self._process is not None
        try:
            self.code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        for reader in self._readers:
            reader.join(5)
        while self._afterwards:
            self._afterwards.pop()()
        return True

    def record_files(self) -> None:
        """Remember which files in /dev/shm the run has, as nothing tells afterwards whose they
        were.
        """
        for pid in self.pids():
            with contextlib.suppress(OSError):
                lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
                self._shared |= {
                    line.split()[-1]
                    for line in lines
                    if "/dev/shm/" in line and not line.endswith("(deleted)")
                }

    def left_after(self, seconds: float) -> tuple[list[str], float]:
        """Processes and files still there after the limit, and the seconds until all had gone."""
        start = time.monotonic()
        while (left := self._remaining()) and time.monotonic() - start < seconds:
            time.sleep(0.05)
        return left, time.monotonic() - start

    def _remaining(self) -> list[str]:
        folders = [
            path for name in ("ompi", "prte", "prted") for path in self.temporary.glob(f"{name}*")
        ]
        names = [host.name for host in self.lab.hosts] if self.lab else []
        folders += [
            path.parent for name in names for path in Path("/tmp").glob(f"prted.*/pmix.{name}.tool")
        ]
        shared = [name for name in self._shared if Path(name).exists()]
        return [*(f"{pid} {_comm(pid)}" for pid in self.pids()), *map(str, folders), *shared]

    def describe(self) -> str:
        return (
            ", ".join(f"{pid} {_comm(pid)}" for pid in self.pids())
            + f"; stderr: {self.stderr[-500:]}"
        )

    @property
    def error(self) -> str:
        """The command's last message: from `error:` on, or its last lines."""
        at = self.stderr.rfind("error: ")
        return self.stderr[at:] if at >= 0 else "\n".join(self.stderr.splitlines()[-3:])

    @property
    def rows_kept(self) -> int:
        # its working directory, where the file goes that cannot be written
        elsewhere = self.folder / self.file.name
        return max(_rows(self.file), _rows(elsewhere))

    @property
    def expected_rows(self) -> int:
        return SIZES * self.setting.cycles

    def host_name(self, rank: int) -> str:
        return str(self.lab.hosts[rank // 2].name) if self.lab else platform.node()

    def address(self, rank: int) -> str:
        return str(self.lab.hosts[rank // 2].address) if self.lab else platform.node()

    def ip(self, *words: str) -> None:
        assert self._netlab is not None
        self._netlab.ip(*words)

    def mount_small_disk(self, kilobytes: int) -> None:
        place = self.folder / "small"
        place.mkdir(exist_ok=True)
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(place)],
            check=True,
            timeout=10,
        )
        self._undo.callback(subprocess.run, ["umount", "-l", str(place)], check=False, timeout=10)
        self.file = place / "result.json"


def _rows(file: Path) -> int:
    try:
        return len(json.loads(file.read_text())["rows"])
    except (OSError, ValueError):
        return 0


@contextlib.contextmanager
def _as_inherited(ignored: tuple[signal.Signals, ...]) -> Iterator[None]:
    """While a program is started: it ignores these signals, but none that a shell's background
    job or nohup ignores and passes on.
    """
    handlers: dict[signal.Signals, Any] = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGHUP: signal.SIG_DFL,
    }
    handlers |= dict.fromkeys(ignored, signal.SIG_IGN)
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _comm(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
