"""Reads NCCL's log, because only the log says which network NCCL uses and how it connects ranks.

The lines of the network are those of NCCL 2.4 to 2.32: `Using network Socket`, from 2.28 on also
`Assigned NET plugin Socket to comm`.
"""

import contextlib
import os
import platform
import re
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from busbw.core.env import temporarily

LEVEL, SUBSYSTEMS, FILE = "NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"
NEEDED = {LEVEL: "INFO", SUBSYSTEMS: "INIT,NET"}
CHOICES = "INIT,NET,TUNING"  # with a line of what each call runs
CHATTY = ("INFO", "TRACE")  # the levels at which NCCL names its network
# Subsystems without lines of every call.
QUIET = {"INIT", "NET", "GRAPH", "ENV", "BOOTSTRAP", "P2P", "SHM", "NVLS", "RAS"}
FILE_BYTES = 64 << 20  # of a user's log: what NCCL writes at its start comes first
TEE_LIMIT_S = 5.0
_NAMED = re.compile(r"NCCL INFO (?:Using network (.+)|Assigned NET plugin (.+) to comm)")
_DESCRIPTORS = Path("/proc/self/fd")


class Log:
    """What NCCL has written since its start, up to now or up to `close`.

    `read` gives it. `end` gives it for the last time, and lets NCCL log as it would without this.
    """

    def __init__(self, read: Callable[[], str], end: Callable[[], str] | None = None) -> None:
        self._read, self._end = read, end or read
        self._last: str | None = None

    @property
    def text(self) -> str:
        """The lines so far."""
        return self._read() if self._last is None else self._last

    @property
    def networks(self) -> tuple[str, ...]:
        """The networks that the log names, each once, as NCCL spells them."""
        names = (match.group(1) or match.group(2) for match in _NAMED.finditer(self.text))
        return tuple(dict.fromkeys(name.strip() for name in names))

    @property
    def has_choices(self) -> bool:
        """Whether `with_choices` lets NCCL log what calls run."""
        return False

    @contextlib.contextmanager
    def with_choices(self, read_again: Callable[[], None]) -> Iterator[None]:
        """In this context NCCL also logs what each call runs. `read_again` lets NCCL read the
        variables of its log again. Does nothing unless `has_choices`.
        """
        yield

    def close(self) -> None:
        """Capture no more."""
        if self._last is None:
            self._last = self._end()


class MemoryLog(Log):
    """A log in memory, for a user without NCCL_DEBUG; it goes to /dev/null after the end."""

    def __init__(self) -> None:
        self._memory = os.memfd_create("nccl-log")
        self._before = ""  # what NCCL has written until it opened the file for the last time
        super().__init__(lambda: self._before + _contents(self._memory), self._to_null)

    @property
    def variables(self) -> dict[str, str]:
        """With these NCCL writes to it."""
        return {**NEEDED, FILE: f"{_DESCRIPTORS}/{self._memory}"}

    @property
    def has_choices(self) -> bool:
        return self._last is None

    @contextlib.contextmanager
    def with_choices(self, read_again: Callable[[], None]) -> Iterator[None]:
        if not self.has_choices:
            yield
            return
        self._restart(CHOICES, read_again)
        try:
            yield
        finally:
            self._restart(NEEDED[SUBSYSTEMS], read_again)

    def _restart(self, subsystems: str, read_again: Callable[[], None]) -> None:
        """NCCL closes the file, opens it again, which empties it, and logs these subsystems."""
        self._before = self._read()
        with temporarily({**self.variables, SUBSYSTEMS: subsystems}):
            read_again()

    def _to_null(self) -> str:
        text = self._read()
        null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        _redirect(self._memory, null)
        os.close(null)
        os.close(self._memory)
        return text


def empty_log() -> Log:
    """The log of a process whose NCCL writes none."""
    return Log(lambda: "")


@contextlib.contextmanager
def listening(*, stay: bool = False) -> Iterator[Log]:
    """Captures NCCL's log from this context on.

    It must be entered before this process first calls NCCL, which reads its variables once. With
    NCCL_DEBUG set, the log still goes where the user asked: to stdout, or to a file, which is read.
    Levels below INFO do not name the network, and nothing is captured. After the context the
    variables are as before, and the log is closed. With `stay` the caller closes it, as NCCL
    connects some ranks only when they first exchange data; a log with lines of every call is closed
    all the same.
    """
    level = os.environ.get(LEVEL, "").upper()
    subsystems = os.environ.get(SUBSYSTEMS, "").upper() if level else NEEDED[SUBSYSTEMS]
    stay = stay and QUIET.issuperset(filter(None, subsystems.split(","))) and level != "TRACE"
    log, variables = empty_log(), dict[str, str]()
    if not level:
        log = in_memory = MemoryLog()
        variables = in_memory.variables
    elif level in CHATTY:
        file = os.environ.get(FILE)
        log, variables = (_user_file(file), {}) if file else _copy_of_stdout()
    try:
        with temporarily(variables):  # not part of the run's environment
            yield log
    except BaseException:
        log.close()
        raise
    if not stay:
        log.close()


def expanded(file: str) -> str:
    """NCCL_DEBUG_FILE as NCCL reads it.

    %h is the host's short name, %p the process, and %% a percent sign.
    """
    host = platform.node().partition(".")[0].replace("%", "-").replace("/", "-")
    values = {"h": host, "p": str(os.getpid()), "%": "%"}
    return re.sub("%(.)", lambda match: values.get(match.group(1), match.group(0)), file)


def _user_file(file: str) -> Log:
    """The log in the file that the user gave.

    Empty for a terminal or pipe, like /dev/stderr: reading it would take lines from the user, and
    never end.
    """
    path = Path(expanded(file))

    def read() -> str:
        with contextlib.suppress(OSError):
            if path.is_file():
                with path.open("rb") as opened:
                    return opened.read(FILE_BYTES).decode(errors="replace")
        return ""

    return Log(read)


def _copy_of_stdout() -> tuple[Log, dict[str, str]]:
    """A copy of the log on its way to stdout, and its variables.

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
        return empty_log(), {}
    os.close(read_end)

    def end() -> str:
        _redirect(write_end, 1)  # NCCL's stdout
        os.close(write_end)
        with contextlib.suppress(subprocess.TimeoutExpired):
            tee.wait(TEE_LIMIT_S)
        text = _contents(memory)
        os.close(memory)
        return text

    return Log(partial(_contents, memory), end), {FILE: f"{_DESCRIPTORS}/{write_end}"}


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
