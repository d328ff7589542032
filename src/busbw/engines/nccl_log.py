"""Reads NCCL's log while it starts, because only the log says which network NCCL uses.

The lines are those of NCCL 2.4 to 2.32: `Using network Socket`, from 2.28 on also `Assigned NET
plugin Socket to comm`.
"""

import contextlib
import os
import platform
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

LEVEL, SUBSYSTEMS, FILE = "NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"
NEEDED = {LEVEL: "INFO", SUBSYSTEMS: "INIT,NET"}
CHATTY = ("INFO", "TRACE")  # the levels at which NCCL names its network
TEE_LIMIT_S = 5.0
_NAMED = re.compile(r"NCCL INFO (?:Using network (.+)|Assigned NET plugin (.+) to comm)")
_DESCRIPTORS = Path("/proc/self/fd")


class Log:
    """What NCCL wrote between two moments; empty until the second."""

    def __init__(self) -> None:
        self.text = ""

    @property
    def networks(self) -> tuple[str, ...]:
        """The networks that the log names, each once, as NCCL spells them."""
        names = (match.group(1) or match.group(2) for match in _NAMED.finditer(self.text))
        return tuple(dict.fromkeys(name.strip() for name in names))


@contextlib.contextmanager
def listening() -> Iterator[Log]:
    """Captures NCCL's log in this context.

    It must be entered before this process first calls NCCL, which reads its variables once. With
    NCCL_DEBUG set, the log still goes where the user asked: to stdout, or to a file, which is read.
    Levels below INFO do not name the network, and nothing is captured. Afterwards NCCL logs as it
    would have without this.
    """
    log = Log()
    level = os.environ.get(LEVEL, "").upper()
    with contextlib.ExitStack() as stack:
        if not level:
            stack.enter_context(_capture(log))
        elif level in CHATTY:
            file = os.environ.get(FILE)
            stack.enter_context(_read(log, Path(expanded(file))) if file else _copy_stdout(log))
        yield log


def expanded(file: str) -> str:
    """NCCL_DEBUG_FILE as NCCL reads it.

    %h is the host's short name, %p the process, and %% a percent sign.
    """
    host = platform.node().partition(".")[0].replace("%", "-").replace("/", "-")
    values = {"h": host, "p": str(os.getpid()), "%": "%"}
    return re.sub("%(.)", lambda match: values.get(match.group(1), match.group(0)), file)


@contextlib.contextmanager
def _read(log: Log, file: Path) -> Iterator[None]:
    """Read the file that the user gave."""
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            log.text = file.read_text(errors="replace")


@contextlib.contextmanager
def _capture(log: Log) -> Iterator[None]:
    """Without NCCL_DEBUG, send the log to memory, and later to /dev/null."""
    memory = os.memfd_create("nccl-log")
    try:
        with _environment({**NEEDED, FILE: f"{_DESCRIPTORS}/{memory}"}):
            yield
    finally:
        log.text = _contents(memory)
        null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        _redirect(memory, null)
        os.close(null)
        os.close(memory)


@contextlib.contextmanager
def _copy_stdout(log: Log) -> Iterator[None]:
    """Copy the log on its way to stdout.

    It goes through `tee`, so that lines appear at once even if NCCL hangs or dies.
    """
    memory = os.memfd_create("nccl-log")
    read_end, write_end = os.pipe()
    try:
        tee = subprocess.Popen(
            ["tee", f"/dev/fd/{memory}"], stdin=read_end, pass_fds=(memory,), start_new_session=True
        )
    except OSError:  # without tee the log is not captured
        for descriptor in (memory, read_end, write_end):
            os.close(descriptor)
        yield
        return
    os.close(read_end)
    try:
        with _environment({FILE: f"{_DESCRIPTORS}/{write_end}"}):
            yield
    finally:
        _redirect(write_end, 1)  # NCCL's stdout
        os.close(write_end)
        with contextlib.suppress(subprocess.TimeoutExpired):
            tee.wait(TEE_LIMIT_S)
        log.text = _contents(memory)
        os.close(memory)


def _contents(memory: int) -> str:
    return os.pread(memory, os.fstat(memory).st_size, 0).decode(errors="replace")


def _redirect(opened: int, target: int) -> None:
    """Make every other descriptor of the file behind `opened` write to `target`.

    These are NCCL's, which never closes its own.
    """
    file = os.fstat(opened)
    # os.listdir has closed its own descriptor when the names are used; an iterator has not.
    for name in os.listdir(_DESCRIPTORS):  # noqa: PTH208
        with contextlib.suppress(OSError):
            if int(name) != opened and os.path.samestat(os.fstat(int(name)), file):
                os.dup2(target, int(name), inheritable=False)


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Set these variables in this context; they are not part of the run's environment."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
