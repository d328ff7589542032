"""A pytest plugin: the CPU seconds of each test file, of the test process, of its children, and of
processes that these waited for.

`make test-times` runs it. Processes that outlive their parent are not counted: daemons, and what a
killed launcher leaves.
"""

import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

BEFORE_TESTS = "(start and collection)"


def _used_s() -> float:
    times = os.times()
    ended_s = times.user + times.system + times.children_user + times.children_system
    return ended_s + _children_s("self")


def _children_s(pid: str) -> float:
    """Of children that have not been waited for, with theirs, and of those that they waited for."""
    lists = [_text(f"/proc/{pid}/task/{thread}/children") for thread in _threads(pid)]
    return sum(map(_child_s, " ".join(lists).split()))


def _threads(pid: str) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - see _text
    except OSError:  # it has ended
        return []


def _child_s(pid: str) -> float:
    words = _text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return sum(map(int, words[11:15])) / os.sysconf("SC_CLK_TCK") + _children_s(pid)


def _text(file: str) -> str:
    """Read thousands of times: pathlib took longer than many a test."""
    try:
        descriptor = os.open(file, os.O_RDONLY)
    except OSError:  # what it is of has ended, or the kernel has no such list
        return ""
    try:
        return os.read(descriptor, 1 << 16).decode(errors="replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)


@dataclass(eq=False)
class _Times:
    """In a process that runs tests: attach its CPU seconds to each report.

    In the one that prints: add them up.
    """

    last_s: float = 0.0
    files: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    tests: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> Iterator[None]:
        yield
        self.last_s = _used_s()
        output = getattr(session.config, "workeroutput", None)
        if output is None:
            self.files[BEFORE_TESTS] += self.last_s
        else:
            output["collection_cpu_s"] = self.last_s

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[Any]:
        """The last report of a test has the seconds of all."""
        report: Any = yield
        report.cpu_s = 0.0
        if report.when == "teardown":
            now_s = _used_s()
            report.cpu_s, self.last_s = now_s - self.last_s, now_s
        return report

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.files[report.nodeid.partition("::")[0]] += report.cpu_s
        self.tests[report.nodeid] += report.cpu_s

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.files[BEFORE_TESTS] += getattr(node, "workeroutput", {}).get("collection_cpu_s", 0.0)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        write = terminalreporter.write_line
        terminalreporter.section("CPU seconds")
        write(f"{sum(self.files.values()):8.1f}  all")
        for title, table, least_s in (("by file", self.files, 0.5), ("by test", self.tests, 1.0)):
            write(f"          {title}, from {least_s} s")
            for name, used_s in sorted(table.items(), key=lambda item: -item[1]):
                if used_s >= least_s:
                    write(f"{used_s:8.1f}  {name}")


def pytest_configure(config: pytest.Config) -> None:
    """Begin to count."""
    config.pluginmanager.register(_Times(), "cpu-times")
