"""A Python that has imported what programs need: each program that it runs is a fork of one
process, which costs a hundredth of a second in place of one, or with PyTorch five.

`warm_python.py FOLDER MODULE...` is that process, until its input ends. It writes `FOLDER/python`,
a Python to tests, launchers and ranks, which hands over its arguments, variables, folder, cores,
limits, namespaces and descriptors, and ends as the fork does. Each of the two takes the other
along.
"""

import atexit
import contextlib
import ctypes
import fcntl
import gc
import importlib
import json
import os
import platform
import resource
import runpy
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import traceback
from functools import cache
from pathlib import Path
from typing import NoReturn

PYTHON = sys.executable
TORCH = (
    "torch",
    "torch._dynamo",  # what an optimizer imports
    "torch.distributed.launcher.api",
    "torch.nn.parallel",
)
# Not what imports mpi4py.MPI, which would join the ranks of MPI here.
BUSBW = ("busbw.cli.run", "busbw.measure.start", "busbw.measure.runner", "numpy", "mpi4py")
RESOURCES = (resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE, resource.RLIMIT_CORE)
MOST_DESCRIPTORS = 64  # numbers of those that are handed over are below it
NAMESPACES = ("net", "uts", "mnt")
CLIENT = """#!{python} -IS
import json, os, signal, socket, sys
numbers = [n for n in range({most}) if os.path.exists("/proc/self/fd/" + str(n))]
server = socket.socket(socket.AF_UNIX)
server.connect({path!r})
def pass_on(number, _):
    try:
        server.sendall(bytes([number]))
    except OSError:  # the program has just ended
        pass
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, pass_on)
cores = sorted(os.sched_getaffinity(0))
request = [sys.argv[1:], dict(os.environ), os.getcwd(), cores, numbers]
socket.send_fds(server, [b"0"], numbers)
server.sendall(json.dumps(request).encode() + b"\\n")
for number in numbers[3:]:  # a reader of theirs waits for their end
    os.close(number)
code = int(server.recv(16) or -signal.SIGKILL)
if code < 0:
    if code != -signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""


@cache
def started(modules: tuple[str, ...]) -> str:
    """The path of a Python that has imported these modules, until this process ends."""
    # beside what mpirun keeps, which the next run of tests removes if this one is killed
    base = os.environ["PRTE_MCA_prte_local_tmpdir_base"]  # noqa: SIM112 - PRRTE's spelling
    folder = Path(tempfile.mkdtemp(prefix="warm-", dir=base))
    (folder / "mpirun").symlink_to(Path(PYTHON).with_name("mpirun"))  # if there is one
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    server = subprocess.Popen(
        [PYTHON, __file__, str(folder), *modules],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(_end, server, folder)
    assert server.stdout
    assert server.stdout.readline() == "ready\n"
    return str(folder / "python")


def _end(server: "subprocess.Popen[str]", folder: Path) -> None:
    server.communicate()
    shutil.rmtree(folder, ignore_errors=True)


def serve(folder: Path, modules: list[str]) -> None:
    """Fork for every client."""
    for module in modules:
        with contextlib.suppress(ModuleNotFoundError):  # a program that needs it says so
            importlib.import_module(module)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    gc.freeze()  # forks do not look for garbage in what they share
    listener = socket.socket(socket.AF_UNIX)
    path = str(folder / "socket")
    listener.bind(path)
    listener.listen(64)
    client = folder / "python"
    client.write_text(CLIENT.format(python=sys.executable, path=path, most=MOST_DESCRIPTORS))
    client.chmod(0o755)
    sys.executable = str(client)
    print("ready", flush=True)
    while sys.stdin not in (ready := select.select([listener, sys.stdin], [], [], 1)[0]):
        if ready:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _keep(connection)
            connection.close()
        _reap()


def _reap() -> None:
    """Wait for what has ended, so that its CPU seconds are counted."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue


def _keep(connection: socket.socket) -> NoReturn:
    """Run a client's program in a fork, pass signals on, and say how it ended."""
    pid_of_client = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, 17, 12))[0]
    _, descriptors, _, _ = socket.recv_fds(connection, 1, MOST_DESCRIPTORS)
    with connection.makefile("rb", buffering=0) as reader:
        words, environment, folder, cores, numbers = json.loads(reader.readline())
    program = os.fork()
    if program == 0:
        connection.close()
        _enter(pid_of_client, cores)
        above = [fcntl.fcntl(at, fcntl.F_DUPFD, MOST_DESCRIPTORS) for at in descriptors]
        for descriptor in descriptors:
            os.close(descriptor)
        for number, descriptor in zip(numbers, above, strict=True):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        _run(words)
    for number in (0, 1, *descriptors):  # a reader of theirs waits for their end
        os.close(number)
    ended = os.pidfd_open(program)
    while ended not in (ready := select.select([ended, connection], [], [])[0]):
        if ready and (numbers := connection.recv(16)):
            os.kill(program, numbers[0])
        else:
            os.kill(program, signal.SIGKILL)  # as its client was
            break
    code = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
    with contextlib.suppress(OSError):  # the client is gone
        connection.sendall(str(code).encode())
    os._exit(0)


def _enter(pid: int, cores: list[int]) -> None:
    """Run on these cores, with the limits and in the network, host name and mounts of a process."""
    os.sched_setaffinity(0, cores)
    for kind in RESOURCES:
        resource.setrlimit(kind, resource.prlimit(pid, kind))
    for name in NAMESPACES:
        theirs = Path("/proc", str(pid), "ns", name)
        if not theirs.samefile(f"/proc/self/ns/{name}"):
            descriptor = os.open(theirs, os.O_RDONLY)
            if ctypes.CDLL(None, use_errno=True).setns(descriptor, 0) != 0:
                raise OSError(ctypes.get_errno(), str(theirs))
            os.close(descriptor)
    platform._uname_cache = None  # type: ignore[attr-defined]  # has the name of another host


def _run(words: list[str]) -> NoReturn:
    """Run `[-u] FILE`, `-m MODULE` or `-c CODE` with arguments, as Python does."""
    sys.stdin, sys.stdout = open(0), open(1, "w")  # noqa: SIM115
    sys.stderr = open(2, "w", errors="backslashreplace", buffering=1)  # noqa: SIM115
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    while words[0] in ("-u", "-IS"):
        del words[0]
    kind = words[0] if words[0] in ("-m", "-c") else ""
    subject = words[1 if kind else 0]
    sys.argv = ["-c", *words[2:]] if kind == "-c" else words[1 if kind else 0 :]
    paths = os.environ.get("PYTHONPATH", "").split(":")
    sys.path[0:1] = [
        str(Path.cwd()) if kind else str(Path(subject).resolve().parent),
        *filter(None, paths),
    ]
    code: object = 0
    try:
        _customize(paths)
        if kind == "-m":
            runpy.run_module(subject, run_name="__main__", alter_sys=True)
        elif kind == "-c":
            exec(subject, {"__name__": "__main__"})
        else:
            runpy.run_path(subject, run_name="__main__")
    except SystemExit as end:
        code = end.code or 0
        if not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            code = code or 120
    os._exit(int(code))  # type: ignore[call-overload]


def _customize(paths: list[str]) -> None:
    """Import the sitecustomize of PYTHONPATH, as Python does when it starts."""
    if any(path and Path(path, "sitecustomize.py").exists() for path in paths):
        sys.modules.pop("sitecustomize", None)
        importlib.import_module("sitecustomize")


if __name__ == "__main__":
    serve(Path(sys.argv[1]), sys.argv[2:])
