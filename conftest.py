"""For the tests of both distributions, busbw's in tests/ and those of busbw-accel in accel/tests/.

Golden files: expected texts in their folder golden/, rewritten by `pytest --update-golden`.
Recorded data is under tests/recorded.

What mpirun keeps of a job is in a folder of this run's own: beside files of an mpirun that was
killed, a later one with its process number does not start ("the PMIx server's listener thread
failed to start").
"""

import atexit
import contextlib
import fcntl
import fnmatch
import gc
import importlib.util
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

if shutil.which("ssh"):  # else Open MPI 4 needs it
    # some images set it to isolated: mpirun then starts no rank on emulated hosts
    os.environ.pop("OMPI_MCA_plm", None)
os.environ.pop("COLUMNS", None)  # the output of commands does not depend on the terminal
os.environ.pop("BUSBW_REFERENCE", None)
# Some images switch it off: hundreds of processes would compile the same modules.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
os.environ["XDG_CONFIG_HOME"] = os.devnull  # not the settings of whoever runs the tests
# jsonschema imports it, for three seconds, and uses it to check formats, which no test does
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]
ROOT = Path(__file__).parent
HERE = ROOT / "tests"
ACCEL = ROOT / "accel" / "tests"
NATIVE = ROOT / "native"
MPI_FOLDER = "busbw-mpi-"
sys.path.insert(0, str(ROOT))  # the tests of busbw-accel import tests.*.conftest
warm = importlib.import_module("tests.warm_python")
DATA_HOMES = itertools.count()
DAEMON_FOLDER = "prted."  # of Open MPI on emulated hosts: what a test kills leaves it


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--only-allowed-skips",
        action="store_true",
        help="fail if a test is skipped for a reason not in tests/allowed_skips.txt",
    )
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite the files under tests/golden with what the code makes now",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share a fixture of their module run in one process: another one would make it
    again. So do unit tests of a file: to hand out thousands one by one takes as long as many run.
    """
    of_units = cache(lambda path: "unit" in path.relative_to(ROOT).parts)
    for item in items:
        fixtures = (
            item._fixtureinfo.name2fixturedefs.values() if hasattr(item, "_fixtureinfo") else ()
        )
        shared = any(
            fixture.scope == "module" for item_fixtures in fixtures for fixture in item_fixtures
        )
        together = shared or of_units(item.path)
        if "warm_python" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("warm_python"))
        elif together and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Thousands of tests and PyTorch's modules stay to the end: to look for garbage among them
    took a tenth of the CPU time of a run.
    """
    gc.freeze()
    atexit.register(gc.unfreeze)  # some libraries report at exit what was not collected
    gc.enable()


class _AllowedSkips:
    """Fails a run in which a test was skipped for a reason that tests/allowed_skips.txt does not
    have.
    """

    def __init__(self) -> None:
        lines = (HERE / "allowed_skips.txt").read_text(encoding="utf-8").splitlines()
        self._allowed = [line for line in lines if not line.startswith("#")]
        self._unexpected: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if (
            not report.skipped
            or hasattr(report, "wasxfail")
            or not isinstance(report.longrepr, tuple)
        ):
            return
        reason = str(report.longrepr[2]).removeprefix("Skipped: ")
        if not any(fnmatch.fnmatchcase(reason, pattern) for pattern in self._allowed):
            self._unexpected.append(f"{report.nodeid}: {reason}")

    pytest_collectreport = pytest_runtest_logreport

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._unexpected and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._unexpected:
            terminalreporter.section(
                "skipped for reasons that tests/allowed_skips.txt does not have", red=True
            )
            for line in self._unexpected:
                terminalreporter.write_line(line)


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # until the tests are collected
    # longer turns: to change between processes took another tenth
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    if config.getoption("--only-allowed-skips") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_AllowedSkips())
    # PyTorch's store asks DNS for the name of each client, and serves nobody meanwhile. A server
    # that does not answer costs 5 s each time.
    os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")
    # Tests run side by side. Threads of PyTorch and numpy that wait for each other would take the
    # processors of other tests.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    _remove_of_dead(MPI_FOLDER)  # of runs that were killed
    daemons = set(Path(tempfile.gettempdir()).glob(f"{DAEMON_FOLDER}*"))
    folder = tempfile.mkdtemp(prefix=f"{MPI_FOLDER}{os.getpid()}-")
    os.environ["PRTE_MCA_prte_local_tmpdir_base"] = folder  # noqa: SIM112 - PRRTE's spelling
    os.environ["XDG_DATA_HOME"] = folder  # the history of whoever runs the tests is none of theirs
    if not hasattr(config, "workerinput"):
        _let_waiting_ranks_sleep(Path(folder))
    if importlib.util.find_spec("triton") is not None and not Path("/dev/nvidiactl").exists():
        # Without a GPU kernels run in Triton's interpreter. Whether they do is settled where
        # Triton, and then where a kernel, is imported.
        os.environ["TRITON_INTERPRET"] = "1"
        # it may be about to be installed, and this run without tests of it
        with contextlib.suppress(Exception):
            importlib.import_module("triton.language")
        del os.environ["TRITON_INTERPRET"]
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        # Started in the background by a shell. What tests interrupt would inherit it, and not hear
        # of the interrupt.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    config.add_cleanup(lambda: _remove_of_dead(DAEMON_FOLDER, daemons))


def _let_waiting_ranks_sleep(folder: Path) -> None:
    """Ranks of MPI that wait sleep in place of yielding, which leaves a third more of the
    processors to other tests.
    """
    os.environ.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")
    library = folder / "sleeping_yield.so"
    compiler = shutil.which("cc")
    if compiler is not None and "LD_PRELOAD" not in os.environ:
        subprocess.run(
            [compiler, "-O2", "-shared", "-fPIC", "-o", library, HERE / "sleeping_yield.c"],
            check=True,
        )
        os.environ["LD_PRELOAD"] = str(library)


def _remove_of_dead(name: str, keep: Collection[Path] = ()) -> None:
    """Remove the temporary folders called `name`, a process number and more, whose process has
    ended.
    """
    for folder in Path(tempfile.gettempdir()).glob(f"{name}*"):
        pid = folder.name.removeprefix(name).partition("-")[0]
        if folder not in keep and pid.isdigit() and not Path("/proc", pid).exists():
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def data_home() -> Iterator[Path]:
    """Each test has a history of its own, which exists once a run is kept in it. A run of another
    test would change what comparisons say.
    """
    shared = os.environ["XDG_DATA_HOME"]
    own = Path(shared, f"data-{next(DATA_HOMES)}")
    os.environ["XDG_DATA_HOME"] = str(own)
    yield own
    os.environ["XDG_DATA_HOME"] = shared


@pytest.fixture(autouse=True)
def no_log() -> Iterator[None]:
    """A log that a test switches on, as every rank does by a variable, ends with the test."""
    yield
    os.environ.pop("BUSBW_LOG", None)
    log = sys.modules.get("busbw.core.log")
    if log is not None:
        log.switch_off()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """A check that `text` is the golden file `name`, byte for byte."""

    def check(name: str, text: str) -> None:
        folder = ACCEL if request.path.is_relative_to(ACCEL) else HERE
        path = folder / "golden" / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
        assert path.exists(), (
            f"no golden file {name}: run pytest --update-golden and read what it wrote"
        )
        assert text == path.read_bytes().decode()

    return check


@pytest.fixture
def cpu_s() -> Callable[[], float]:
    """The CPU seconds that this process and its ended children have used so far: what a test
    judges by instead of the time of day.
    """
    return lambda: sum(os.times()[:4])


@pytest.fixture(scope="session")
def warm_python() -> str:
    """A Python for tests of what ranks with PyTorch do, not of how they start: warm_python.py."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    return warm.started(warm.TORCH)


@pytest.fixture(scope="session")
def warm_busbw() -> str:
    """A Python for tests of what busbw and its ranks do, not of how they start."""
    return warm.started(warm.BUSBW)


@pytest.fixture
def ranks_are_forks(monkeypatch: pytest.MonkeyPatch, warm_busbw: str) -> None:
    """What a test starts, not how it starts, is what it is about: warm_python.py."""
    monkeypatch.setattr(sys, "executable", warm_busbw)


@pytest.fixture
def recorded() -> Path:
    """The folder of recorded data."""
    return HERE / "recorded"


@pytest.fixture(scope="session")
def alone_in_native() -> Callable[[], contextlib.AbstractContextManager[None]]:
    """A context in which no other test builds in native/target. Cargo links the library anew, and
    maturin moves it away: a copy that is taken meanwhile would not find it.
    """

    @contextlib.contextmanager
    def alone() -> Iterator[None]:
        with (Path(tempfile.gettempdir()) / "busbw-native-build.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    return alone


@pytest.fixture(scope="session")
def plugin_library(
    tmp_path_factory: pytest.TempPathFactory,
    alone_in_native: Callable[[], contextlib.AbstractContextManager[None]],
) -> Path:
    """The shared library, BUSBW_PLUGIN's or built as it is shipped; skips where there is no
    cargo, or only rustup's proxy without a toolchain.
    """
    if library_path := os.environ.get("BUSBW_PLUGIN"):
        return Path(library_path).absolute()
    cargo = shutil.which("cargo")
    if (
        cargo is None
        or subprocess.run([cargo, "--version"], capture_output=True, check=False).returncode
    ):
        pytest.skip("no cargo: install Rust 1.85 or newer (https://rustup.rs)")
    command = [
        cargo,
        "build",
        "--release",
        "--manifest-path",
        str(NATIVE / "Cargo.toml"),
        "-p",
        "busbw-plugin",
    ]
    # One worker builds, the others find it built. Each takes a copy.
    with alone_in_native():
        result = subprocess.run(
            [*command, "--message-format=json-render-diagnostics"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stderr
        messages = map(json.loads, result.stdout.splitlines())
        (library,) = (
            Path(file)
            for message in messages
            if message["reason"] == "compiler-artifact" and "cdylib" in message["target"]["kind"]
            for file in message["filenames"]
            if file.endswith(".so")
        )
        return Path(shutil.copy(library, tmp_path_factory.mktemp("plugin")))
