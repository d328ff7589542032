"""Reads with a limit, on trees whose files never answer: opening a FIFO without a writer waits
for ever, as a driver that hangs.
"""

import faulthandler
import os
import select
import signal
import time
import traceback
from collections.abc import Callable
from multiprocessing import Pipe
from pathlib import Path
from threading import Lock

import pytest

from busbw.core.errors import NoMeasurement, UsageError
from busbw.host.limited import (
    GIVEN_UP,
    GivenUp,
    _ReportingSource,
    _State,
    _would_hang_too,
    given_up,
    within,
)
from busbw.host.source import LiveMachine, Reading, Source, Unavailable

PATIENT_S = 3.0  # for one read: a busy machine answers within this time
PORT = "/sys/class/infiniband/mlx5_0/ports/1"


class Machine(LiveMachine):
    """A tree whose FIFOs are opened, as special files of this machine are."""

    def read(self, path: str) -> Reading:
        file = self.at(path)
        return Reading(file.read_bytes()) if file.is_fifo() else super().read(path)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A machine whose port's state hangs; the rate, in the same folder, and the kernel's release
    can be read.
    """
    port = tmp_path / PORT.lstrip("/")
    port.mkdir(parents=True)
    os.mkfifo(port / "state")
    (port / "rate").write_text("400 Gb/sec\n")
    (tmp_path / "osrelease").write_text("6.8.0\n")
    return tmp_path


def texts(source: Source) -> tuple[str | None, Reading, Reading, str | None, GivenUp | None]:
    before = source.read("/osrelease").text
    stuck, neighbour = source.read(f"{PORT}/state"), source.read(f"{PORT}/rate")
    return before, stuck, neighbour, source.read("/osrelease").text, given_up(source)


def test_a_file_that_hangs_is_abandoned_and_the_others_are_read(tree: Path) -> None:
    before, stuck, neighbour, after, lost = within(
        texts, Machine(tree), limit_s=60, file_s=PATIENT_S
    )
    assert (before, after) == ("6.8.0", "6.8.0")
    assert stuck == Reading(None, f"{PORT}/state: did not answer within 3 s")
    assert neighbour == Reading(None, f"{PORT}/rate: not read, since {stuck.reason}")
    assert lost == GivenUp([stuck.reason])


def test_nothing_is_read_after_the_limit_of_all(tree: Path) -> None:
    def work(source: Source) -> tuple[str | None, Reading, str, GivenUp | None]:
        os_release = source.read("/osrelease").text
        source.read(f"{PORT}/state")
        source.read("/second")
        return (
            os_release,
            source.read("/other"),
            source.call("uname", os.uname().sysname.lower).reason,
            given_up(source),
        )

    os.mkfifo(tree / "second")
    queries, other, call, lost = within(work, Machine(tree), limit_s=PATIENT_S)
    over = "not read: the limit of 3 s was reached while /second was read"
    first = f"{PORT}/state: did not answer within 1.5 s"
    assert (queries, other, call, lost) == (
        "6.8.0",
        Reading(None, over),
        over,
        GivenUp([first], over),
    )


def test_a_library_that_crashes_or_hangs_is_not_asked_again() -> None:
    calls = []

    def work(source: Source) -> list[str]:
        calls.append("in the child alone")
        crash = source.call(
            "nvml", lambda: str((faulthandler.disable(), os.kill(os.getpid(), signal.SIGSEGV)))
        )
        same_call, other = (
            source.call("nvml_health", lambda: "{}"),
            source.call("ethtool -i eth0", lambda: "mlx5_core"),
        )
        return [crash.reason, same_call.reason, other.text or ""]

    crash = "nvml: the process that read it ended with SIGSEGV"
    assert within(work, LiveMachine(), limit_s=60) == [
        crash,
        f"nvml_health: not read, since {crash}",
        "mlx5_core",
    ]
    assert not calls


def test_processes_of_the_child_end_with_it(tree: Path, tmp_path: Path) -> None:
    note = tmp_path / "pid"

    def hang() -> str:
        grandchild = os.fork()
        if grandchild == 0:
            signal.pause()
        note.write_text(str(grandchild))
        signal.pause()
        return ""

    assert (
        "did not answer"
        in within(
            lambda source: source.call("hang", hang), Machine(tree), limit_s=60, call_s=PATIENT_S
        ).reason
    )
    stat = Path(f"/proc/{note.read_text()}/stat")
    deadline = time.monotonic() + PATIENT_S
    while _runs(stat) and time.monotonic() < deadline:  # it was killed, and may not know it yet
        time.sleep(0.01)
    assert not _runs(stat)


def _runs(stat: Path) -> bool:
    """Whether the process with this file has not ended."""
    try:
        return stat.read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_the_child_ends_with_its_parent() -> None:
    alive, write_end = os.pipe()

    def hang() -> str:
        os.write(write_end, b"reading")
        signal.pause()
        return ""

    parent = os.fork()
    if parent == 0:
        within(lambda source: source.call("hang", hang), LiveMachine(), limit_s=600, call_s=600)
    os.close(write_end)
    assert os.read(alive, 7) == b"reading"
    os.kill(parent, signal.SIGTERM)
    os.waitpid(parent, 0)
    assert select.select([alive], [], [], 30)[0], "the child still holds the pipe"
    assert os.read(alive, 1) == b""
    os.close(alive)


def test_errors_of_the_work_are_raised_with_their_hint() -> None:
    def work(_source: Source) -> None:
        raise UsageError("no such check", "busbw check --list")

    with pytest.raises(UsageError, match="no such check") as raised:
        within(work, LiveMachine(), limit_s=60)
    assert raised.value.hint == "busbw check --list"


class Odd(Exception):
    """An exception that is pickled, but not read again: it wants two arguments."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} and {second}")


def broken(_source: Source) -> None:
    raise Odd("this", "that")


def keeps(_source: Source) -> object:
    return {"lock": Lock()}


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (
            lambda source: source.nothing,
            "AttributeError: '_ReportingSource' object has no attribute 'nothing'",
        ),
        (broken, "Odd: this and that"),
        (keeps, "TypeError: cannot pickle '_thread.lock' object"),
    ],
)
def test_a_bug_in_the_work_is_named_with_its_traceback(
    work: Callable[[Source], object], message: str
) -> None:
    with pytest.raises(Exception) as raised:
        within(work, LiveMachine(), limit_s=60)
    text = "".join(traceback.format_exception(raised.value))
    assert message in text
    assert "in the process that read this machine:\nTraceback (most recent call last):" in text


def test_a_child_that_is_killed_between_reads_is_reported() -> None:
    with pytest.raises(NoMeasurement, match="ended with SIGKILL"):
        within(lambda _source: os.kill(os.getpid(), signal.SIGKILL), LiveMachine(), limit_s=60)


def test_calls_answer_as_without_a_limit() -> None:
    def refuse() -> str:
        raise Unavailable("no such library")

    answer = within(
        lambda source: (source.names("/"), source.link("/proc/self/exe"), source.call("x", refuse)),
        LiveMachine(),
        limit_s=60,
    )
    assert "proc" in answer[0]
    assert answer[1]
    assert answer[2] == Reading(None, "no such library")
    assert given_up(LiveMachine()) is None


def test_each_read_is_reported_once_and_hung_ones_are_refused(tree: Path) -> None:
    receiver, sender = Pipe(duplex=False)
    state = _State(silent={("read", f"{PORT}/state"): "state: no answer"})
    followed = _ReportingSource(Machine(tree), state, sender)
    assert followed.read("/osrelease") == followed.read("/osrelease") == Reading(b"6.8.0\n")
    assert (
        followed.names("/sys/class"),
        followed.link("/sys/class"),
        followed.call("id", lambda: "7").text,
    ) == (("infiniband",), None, "7")
    keys = [("read", "/osrelease"), ("names", "/sys/class"), ("link", "/sys/class"), ("call", "id")]
    assert [receiver.recv().key for _ in range(8)] == [key for key in keys for _ in range(2)], (
        "before and after it"
    )
    assert followed.read(f"{PORT}/state") == Reading(None, "state: no answer")
    assert followed.read(f"{PORT}/rate") == Reading(
        None, f"{PORT}/rate: not read, since state: no answer"
    )
    assert (followed.names(f"{PORT}/gids"), followed.link(f"{PORT}/device")) == ((), None)
    state.over = "time is up"
    assert (
        followed.read("/osrelease").text,
        followed.read("/new").reason,
        followed.call("new", str).reason,
    ) == ("6.8.0", *[state.over] * 2)
    assert (
        followed.call(GIVEN_UP, str).text == '{"silent":["state: no answer"],"over":"time is up"}'
    )
    assert not receiver.poll()


@pytest.mark.parametrize(
    ("key", "silent", "too"),
    [
        (("read", "/sys/a/x"), ("read", "/sys/a/y"), True),
        (("names", "/sys/a/x"), ("link", "/sys/a/y"), True),
        (("read", "/sys/b/x"), ("read", "/sys/a/y"), False),
        (("read", "/sys/a/y/x"), ("read", "/sys/a/y"), False),
        (("read", "/proc/a/x"), ("read", "/proc/a/y"), False),
        (("call", "nvml_health"), ("call", "nvml"), True),
        (("call", "nvml"), ("call", "dcb eth0"), False),
        (("call", "dcb eth0"), ("call", "nvml"), False),
        (("read", "nvml"), ("call", "nvml"), False),
        (("call", "/sys/a/x"), ("read", "/sys/a/y"), False),
    ],
)
def test_reads_that_hang_with_another_read(
    key: tuple[str, str], silent: tuple[str, str], too: bool
) -> None:
    assert _would_hang_too(key, silent) is too
