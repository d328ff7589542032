"""The plugin of `make test-times`: CPU seconds are added by file and by test, and the largest
stand first.
"""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

FILE = Path(__file__).parents[2] / "tools" / "cpu_times.py"


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cpu_times", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The plugin, which sees 1.5 more CPU seconds at each look, and no children."""
    module = loaded()
    seconds = iter(range(100))

    def times() -> SimpleNamespace:
        return SimpleNamespace(
            user=next(seconds), system=0.5, children_user=0.25, children_system=0.25
        )

    monkeypatch.setattr(module, "os", SimpleNamespace(times=times))
    monkeypatch.setattr(module, "_children_s", lambda _pid: 0.0)
    return module


def ended(wrapper: Iterator[None], sent: object = None) -> object:
    """The return value of a wrapper of a hook that returned `sent`."""
    next(wrapper)
    try:
        wrapper.send(sent)  # type: ignore[attr-defined]
    except StopIteration as end:
        return end.value
    raise AssertionError("it yields twice")


@pytest.mark.skipif(
    not Path(f"/proc/self/task/{os.getpid()}/children").exists(),
    reason="this kernel does not list children",
)
def test_a_child_that_lives_is_counted() -> None:
    module = loaded()
    burn = "import time\nwhile time.process_time() < 0.5: pass\nprint(flush=True); input()"
    before_s = module._used_s()
    child = subprocess.Popen(
        [sys.executable, "-c", burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout is not None
        child.stdout.readline()
        lives_s = module._used_s()
        child.communicate("\n")
    assert lives_s - before_s >= 0.45
    assert module._used_s() >= lives_s - 0.05, "and not counted again once it has ended"


def test_a_tests_last_report_has_the_time_since_the_test_before(plugin: ModuleType) -> None:
    times, output = plugin._Times(), {}
    ended(
        times.pytest_collection_finish(SimpleNamespace(config=SimpleNamespace(workeroutput=output)))
    )
    assert (output, times.files) == ({"collection_cpu_s": 1.0}, {}), (
        "a worker's start is counted by the process that prints"
    )
    reports = [
        ended(times.pytest_runtest_makereport(), SimpleNamespace(when=when))
        for when in ("setup", "call", "teardown") * 2
    ]
    assert [report.cpu_s for report in reports] == [0.0, 0.0, 1.0] * 2  # type: ignore[attr-defined]


def test_times_are_added_and_the_largest_are_first(plugin: ModuleType) -> None:
    times, lines = plugin._Times(), []
    ended(times.pytest_collection_finish(SimpleNamespace(config=SimpleNamespace())))
    times.pytest_testnodedown(SimpleNamespace(workeroutput={"collection_cpu_s": 2.0}))
    times.pytest_testnodedown(SimpleNamespace())
    for node, cpu_s in (
        ("a.py::one", 0.25),
        ("b.py::two", 4.0),
        ("b.py::two", 1.0),
        ("a.py::three", 0.25),
        ("c.py::four", 0.49),
    ):
        times.pytest_runtest_logreport(SimpleNamespace(nodeid=node, cpu_s=cpu_s))
    times.pytest_terminal_summary(SimpleNamespace(write_line=lines.append, section=lines.append))
    assert [line.split(maxsplit=1) if line[0] == " " else line for line in lines] == [
        "CPU seconds",
        ["9.0", "all"],
        ["by", "file, from 0.5 s"],
        ["5.0", "b.py"],
        ["3.0", "(start and collection)"],
        ["0.5", "a.py"],
        ["by", "test, from 1.0 s"],
        ["5.0", "b.py::two"],
    ]
