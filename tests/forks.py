"""`pytest --forks N`: forks of the process that has collected the tests run them, N at a time.

Workers of pytest-xdist each import and collect all tests again, and send five messages for each
test: that took a twelfth of the CPU time of a run. Its marker is kept: tests of one xdist_group run
in one fork, in their order. The largest groups begin.
"""

import atexit
import os
import signal
import sys
import tempfile
import traceback
from collections import deque
from collections.abc import Iterator
from multiprocessing.connection import Connection, Pipe, wait
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

NUMBER_BYTES = 4  # of a group in the queue


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--forks", type=int, default=0, help="run the tests in so many forks")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "xdist_group(name): run in one process, one by one")
    if config.getoption("--forks") and not config.option.collectonly:
        config.pluginmanager.register(_Forks(config.getoption("--forks")))


def groups_of(items: list[pytest.Item]) -> list[list[pytest.Item]]:
    """The tests that run in one process, the largest group first."""
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        mark = item.get_closest_marker("xdist_group")
        groups.setdefault(f"@{mark.args[0]}" if mark else item.nodeid, []).append(item)
    return sorted(groups.values(), key=len, reverse=True)


class _Forks:
    """In the process that prints."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._workers: dict[Connection, _Worker] = {}
        self._numbers = iter(range(1_000_000))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.testsfailed:  # pytest's own loop refuses to run what was not all collected
            return None
        self._session, self._groups = session, groups_of(session.items)
        capture: Any = session.config.pluginmanager.getplugin("capturemanager")
        capture.stop_global_capturing()  # its files would be those of all forks
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        # Forks share the place up to which a file is read, so each number is read once.
        with tempfile.TemporaryFile() as queue:
            for number in range(len(self._groups)):
                queue.write(number.to_bytes(NUMBER_BYTES, "big"))
            queue.flush()
            queue.seek(0)
            self._queue = queue.fileno()
            try:
                for _ in range(min(self._count, len(self._groups))):
                    self._start()
                self._print_all()
            finally:
                for worker in self._workers.values():
                    os.kill(worker.pid, signal.SIGTERM)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        return True

    def _start(self) -> None:
        reports, sender = Pipe(duplex=False)
        name = f"fork-{next(self._numbers)}"
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            _run(self._session, name, _tests(self._groups, self._queue, sender), sender)
        sender.close()
        self._workers[reports] = _Worker(pid, name)

    def _print_all(self) -> None:
        while self._workers:
            for reports in wait(list(self._workers)):
                self._hear(reports)  # type: ignore[arg-type]
                if self._session.shouldfail or self._session.shouldstop:
                    os.lseek(self._queue, 0, os.SEEK_END)  # each fork ends with its group

    def _hear(self, reports: Connection) -> None:
        worker = self._workers[reports]
        try:
            message = reports.recv()
        except EOFError:
            message = None
        if message is None:
            del self._workers[reports]
            self._ended(worker, os.waitstatus_to_exitcode(os.waitpid(worker.pid, 0)[1]))
        elif isinstance(message, int):
            worker.waiting = deque(self._groups[message])
        else:
            worker.waiting.popleft()
            self._log(worker, message)

    def _ended(self, worker: "_Worker", code: int) -> None:
        """Of a fork that did not end well, its tests failed, and another takes its place."""
        if code == 0:
            return
        how = f"exit code {code}" if code > 0 else f"signal {-code}"
        for place, item in enumerate(worker.waiting):
            text = f"not run: the process ended with {how} in a test before it"
            if place == 0:
                text = f"the process that ran it ended with {how}"
            self._log(worker, [_failure(item.nodeid, item.location, text)])
        if worker.waiting:
            self._start()
        else:
            text = f"a process ended with {how} after its tests: see its message above"
            self._log(worker, [_failure(worker.name, (worker.name, None, ""), text)])

    def _log(self, worker: "_Worker", reports: list[pytest.TestReport]) -> None:
        # of which pytest prints the name, and with which no names of files between results
        node = SimpleNamespace(
            gateway=SimpleNamespace(id=worker.name), _workerinfocache=worker.name
        )
        for report in reports:
            report.node = node  # type: ignore[attr-defined]
            self._session.config.hook.pytest_runtest_logreport(report=report)


class _Worker:
    """What the process that prints knows of a fork."""

    def __init__(self, pid: int, name: str) -> None:
        self.pid, self.name = pid, name
        self.waiting: deque[pytest.Item] = deque()  # tests of its group that have not ended


def _failure(nodeid: str, location: tuple[str, int | None, str], text: str) -> pytest.TestReport:
    return pytest.TestReport(nodeid, location, {}, "failed", text, "call")


def _tests(
    groups: list[list[pytest.Item]], queue: int, sender: Connection
) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
    """In a fork: each test, and the next one of its group."""
    while data := os.read(queue, NUMBER_BYTES):
        number = int.from_bytes(data, "big")
        sender.send(number)
        yield from zip(groups[number], [*groups[number][1:], None], strict=True)


def _run(
    session: pytest.Session,
    name: str,
    tests: Iterator[tuple[pytest.Item, pytest.Item | None]],
    sender: Connection,
) -> NoReturn:
    """Run tests in this fork, and end it."""
    code = 1
    try:
        _become_worker(session.config, name)
        session.config.pluginmanager.register(_Reports(sender))
        for item, following in tests:
            # What is of the session alone stays from group to group.
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=following or session)
            if session.shouldfail or session.shouldstop:
                break
        session._setupstate.teardown_exact(None)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        sys.stderr.flush()
        os._exit(code)


def _become_worker(config: pytest.Config, name: str) -> None:
    """Print nothing, and have files of its own."""
    manager: Any = config.pluginmanager
    manager.unregister(name="terminalreporter")
    capture = manager.getplugin("capturemanager")
    capture.start_global_capturing()
    capture.suspend_global_capture()
    factory: Any = config._tmp_path_factory  # type: ignore[attr-defined]
    factory._basetemp = factory.getbasetemp() / name
    factory._basetemp.mkdir(mode=0o700)


class _Reports:
    """In a fork: one message for each test, with what is to be counted or printed."""

    def __init__(self, sender: Connection) -> None:
        self._sender = sender
        self._reports: list[pytest.TestReport] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.passed:
            report.sections = []
        if not report.passed or report.when == "call" or hasattr(report, "cpu_s"):
            self._reports.append(report)

    def pytest_runtest_logfinish(self) -> None:
        self._sender.send(self._reports)
        self._reports = []
