"""Removes the processes of an aborted job on this host, and the files that a killed Open MPI or
NCCL leaves behind.

`Guard` is a process that does so if busbw itself is killed by SIGKILL. The launcher then gets
SIGTERM, but mpirun often leaves its directories and shared memory.
"""

import contextlib
import functools
import os
import re
import shutil
import signal
import socket
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import FrameType

from busbw.host import process

# Variable of every process of a job: mpirun's local ranks leave its process group.
MARKER = "BUSBW_JOB"
KILL_LIMIT_S = 5.0
# Repeated reads of an environment, which is empty while its process executes a new program.
EXEC_READS, EXEC_S = 500, 0.001
SHARED = Path("/dev/shm")
# Open MPI 5, Open MPI 4, NCCL. Other segments may belong to other jobs, such as those of CUDA MPS.
_SEGMENTS = tuple(f"{SHARED}/{name}" for name in ("sm_segment.", "vader_segment.", "nccl-"))
_DELETED = " (deleted)"
# "/dev/shm/sm_segment.HOST.UID.JOB.RANK": all ranks of a job share what is before RANK.
_OF_JOB = re.compile(r"(.*/(?:sm|vader)_segment\..+\.)\d+")
# Of Open MPI 5 and 4, on hosts other than the launching one. They have no MARKER.
DAEMONS = ("prted", "orted")
_STARTERS = ("prterun", "mpirun", *DAEMONS)
# Variable with the directory that Open MPI's daemon created for its job on a host: /tmp/ompi.PID,
# /tmp/prted.PID
FOLDER = "PMIX_SERVER_TMPDIR"
_FOLDER = re.compile(r"(?:ompi|prte|prted|prterun|pid)\.\d+|ompi\.[^/]+\.\d+")
LAUNCHER_S = 5.0  # for the launcher to end its ranks
_POLL_S = 0.05
_CHUNK = 1 << 12


def new_mark() -> str:
    """A value of MARKER for a new job."""
    return uuid.uuid4().hex


class Cleanup:
    """Cleans up the job whose processes have MARKER=`marker` in their environment.

    `launcher` is mpirun's process on `node`. Only processes in the network namespace of this
    process or of the launcher belong to the job: containers and emulated hosts may share one list
    of processes.
    """

    def __init__(self, marker: str, launcher: int = 0, node: str = "") -> None:
        self.marker, self.launcher, self.node = marker, launcher, node or os.uname().nodename
        self._segments: set[str] = set()
        self._folders: set[Path] = set()
        self._networks = {_network("self")}
        # Start time of each process of the job: it stays one of the job's while it hangs.
        self._started: dict[int, int] = {}
        self.on_record: Callable[[str], None] = lambda _path: None

    def record(self, pids: Iterable[int] | None = None) -> None:
        """Record the files of running processes (`pids`, by default all of the job).

        After they exit, the owner is unknown.
        """
        for pid in self.pids() if pids is None else pids:
            self._started.setdefault(pid, process.start_time(pid))
            for segment in _segments(pid):
                self.add(segment)
            environ = variables(pid)
            self.record_folder(environ.get(FOLDER, ""))
            if process.name(pid) in _STARTERS:
                self._record_folders_of(pid, environ)

    def _record_folders_of(self, pid: int, environ: Mapping[str, str]) -> None:
        """Record the directories that this launcher or daemon of Open MPI 5 may have."""
        for program in ("ompi", "prte", "prterun", "prted"):
            self.record_folder(f"{temporary(environ)}/{program}.{pid}")

    def record_folder(self, folder: str) -> None:
        """Record a directory that the launcher created for the job."""
        if _FOLDER.fullmatch(Path(folder).name):
            self.add(folder)

    def add(self, path: str) -> None:
        if path in self._segments or Path(path) in self._folders:
            return
        if path.startswith(_SEGMENTS):
            self._segments.add(path)
        else:
            self._folders.add(Path(path))
        self.on_record(path)

    def kill_remaining(self) -> None:
        """Kill remaining processes, and remove the files of all processes of the job."""
        deadline = time.monotonic() + KILL_LIMIT_S
        while (remaining := self.pids()) and time.monotonic() < deadline:
            self.record(remaining)
            for pid in remaining:
                process.kill(pid)
            time.sleep(0.02)
        self.remove_files()

    def remove_files(self) -> None:
        """Remove what was recorded, and what is known to be the job's."""
        for segment in self._segments:
            of_job = _OF_JOB.fullmatch(segment)
            for file in SHARED.glob(f"{Path(of_job[1]).name}*") if of_job else [Path(segment)]:
                with contextlib.suppress(OSError):
                    file.unlink()
        if self._has_launcher_here():
            self._record_folders_of(self.launcher, os.environ)
        # A daemon that failed has gone. In its directory a file has the launcher's name.
        for folder in temporary().glob("prted.*"):
            with contextlib.suppress(OSError):  # another job's, which ends meanwhile
                if any(folder.glob(f"pmix.*-{self.node}-{self.launcher}@0")):
                    self.record_folder(str(folder))
        for folder in self._folders:
            with contextlib.suppress(OSError):  # also where its file system does not answer
                process.answer(str(folder), functools.partial(_remove_folder, folder))

    def see_launcher(self) -> None:
        """Record the launcher's network, which its command line may have entered."""
        if self._has_launcher_here() and process.state(self.launcher) not in process.ENDED:
            self._networks |= {_network(self.launcher)} - {""}

    def _has_launcher_here(self) -> bool:
        return bool(self.launcher) and self.node == os.uname().nodename

    def pids(self) -> list[int]:
        """Running processes of the job, with Open MPI's daemons that started them."""
        self.see_launcher()
        pids = []
        for entry in Path("/proc").glob("[0-9]*"):
            pid = int(entry.name)
            if pid == os.getpid():  # a rank's child that cleans up
                continue
            try:
                is_of_job = self._is_marked(pid) or self._is_daemon(pid)
                if is_of_job and _network(pid) in self._networks:
                    pids.append(pid)
                    self._started[pid] = process.start_time(pid)
            except TimeoutError:  # it hangs in the kernel
                if self._started.get(pid) == process.start_time(pid):
                    pids.append(pid)
            except OSError:  # exited meanwhile, or another user's
                continue
        parents = {process.parent(pid) for pid in pids}
        daemons = {parent for parent in parents if process.name(parent) in DAEMONS}
        return [*pids, *(daemons - set(pids))]

    def _is_marked(self, pid: int) -> bool:
        return f"{MARKER}={self.marker}".encode() in _environment(pid).split(b"\0")

    def _is_daemon(self, pid: int) -> bool:
        """Whether this is a daemon of Open MPI 5.

        Its command line names the launcher: `prterun-HOST-PID@0`.
        """
        return (
            bool(self.launcher)
            and process.name(pid) in DAEMONS
            and f"-{self.node}-{self.launcher}@" in process.command(pid)
        )


def end_job_here() -> None:
    """Kill the job that this process belongs to on this host, with its daemon, and remove its
    files. One process of the job does it, the first.
    """
    marker = os.environ.get(MARKER, "")
    with socket.socket(socket.AF_UNIX) as first, contextlib.suppress(OSError):
        first.bind(f"\0{MARKER}.{marker}")
        if marker:
            job = Cleanup(marker)
            job.record_folder(os.environ.get(FOLDER, ""))  # the other ranks may have ended
            job.kill_remaining()


def _remove_folder(folder: Path) -> None:
    """Remove a directory of the job, and the one above it if that is left empty.

    Open MPI 4 has the directories of all jobs in /tmp/ompi.HOST.UID.
    """
    if folder.is_dir() and not folder.is_symlink() and folder.stat().st_uid == os.geteuid():
        shutil.rmtree(folder, ignore_errors=True)
        if _FOLDER.fullmatch(folder.parent.name):
            with contextlib.suppress(OSError):  # another job has one
                folder.parent.rmdir()


def temporary(environ: Mapping[str, str] = os.environ) -> Path:
    """Open MPI's directory for temporary files, even one without room."""
    for name in ("TMPDIR", "TEMP", "TMP"):
        if environ.get(name):
            return Path(environ[name])
    return Path("/tmp")


def variables(pid: int) -> dict[str, str]:
    """The environment with which a process was started.

    Empty if it has exited, or is another user's.
    """
    try:
        text = _environment(pid).decode(errors="replace")
    except OSError:
        return {}
    return dict(line.split("=", 1) for line in text.split("\0") if "=" in line)


def _network(pid: int | str) -> str:
    """The network namespace of a process; '' if it has exited, or is another user's."""
    try:
        return str(Path(f"/proc/{pid}/ns/net").readlink())
    except OSError:
        return ""


def _environment(pid: int) -> bytes:
    """The environment of a process. OSError if it has exited, is another user's, or hangs."""
    for _ in range(EXEC_READS):
        environment = process.read_memory_file(pid, "environ")
        if environment or process.has_no_variables(pid) or not _has_program(pid):
            break
        time.sleep(EXEC_S)
    return environment


def _has_program(pid: int) -> bool:
    """Whether the process is neither a kernel thread nor a zombie."""
    try:
        return bool(Path(f"/proc/{pid}/exe").readlink().name)
    except OSError:
        return False


def _segments(pid: int) -> Iterator[str]:
    """Shared memory files that a process has mapped."""
    try:
        maps = process.read_memory_file(pid, "maps").decode(errors="replace")
    except OSError:
        return
    for line in maps.splitlines():
        path = line[line.find("/") :] if "/" in line else ""
        if path.startswith(_SEGMENTS) and not path.endswith(_DELETED):
            yield path


class Guard:
    """Watches this process from the start of the launcher of `job` until `dismiss`."""

    def __init__(self, job: Cleanup) -> None:
        guard_end, self._pipe = os.pipe()  # the kernel closes this end if this process is killed
        with warnings.catch_warnings():
            # Python warns of forks with threads, but the child uses none of their locks.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._pid = os.fork()
        if self._pid == 0:
            try:
                _clean_up_after(guard_end, job)
            finally:
                os._exit(0)
        os.close(guard_end)
        self._job = job
        job.on_record = self._send

    def survive_exec(self) -> None:
        """Watch the program too that replaces this process."""
        os.set_inheritable(self._pipe, True)

    def _send(self, path: str) -> None:
        """Have the guard remove this path too."""
        with contextlib.suppress(OSError):  # the guard was killed
            os.write(self._pipe, f"{path}\n".encode())

    def dismiss(self) -> None:
        """End the guard: this process cleans up itself."""
        self._job.on_record = lambda _path: None
        process.kill(self._pid)
        os.waitpid(self._pid, 0)
        os.close(self._pipe)


def _clean_up_after(pipe: int, job: Cleanup) -> None:
    """Wait until the kernel closes the other end of the pipe, then end what the launcher leaves.

    The pipe brings paths to remove, one a line.
    """
    os.setsid()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _ignore)
    os.dup2(pipe, 0)
    # Close the rest: a reader of this process's output must see its end.
    for entry in list(Path("/proc/self/fd").iterdir()):
        if entry.name != "0":
            with contextlib.suppress(OSError):
                os.close(int(entry.name))
    paths = b""
    while data := os.read(0, _CHUNK):
        paths += data
    for path in paths.decode().splitlines():
        job.add(path)
    job.record()
    end = time.monotonic() + LAUNCHER_S
    while process.state(job.launcher) not in process.ENDED and time.monotonic() < end:
        time.sleep(_POLL_S)
    job.kill_remaining()


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Take no notice of a signal."""
