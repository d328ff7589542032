"""A watch whose NVML hangs or crashes continues without it. The library is a real one, compiled for
the test.
"""

import shutil
import socket
import subprocess
import sys
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from busbw.core.errors import TimedOut, UsageError
from busbw.watch.reader import LinkSelection, SampleReader

PATIENT_S = 5.0


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Installs an NVML whose start runs the C statement."""
    if not shutil.which("gcc"):
        pytest.skip("no gcc: apt-get install gcc")

    def install(statement: str) -> None:
        source = tmp_path / "nvml.c"
        source.write_text(
            "#include <stdlib.h>\n"
            "#include <unistd.h>\n"
            "int nvmlInitWithFlags(unsigned flags) {"
            f" {statement}; return 0; }}\n"
        )
        subprocess.run(
            ["gcc", "-shared", "-fPIC", "-o", tmp_path / "libnvidia-ml.so.1", source], check=True
        )
        monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))

    return install


@pytest.mark.parametrize(
    ("statement", "reason"),
    [("for (;;) pause()", "did not answer within 5 s"), ("abort()", "its process ended")],
)
def test_the_watch_continues_without_nvml(nvml, statement, reason):
    nvml(statement)
    with closing(SampleReader(LinkSelection(), start_s=PATIENT_S)) as reader:
        first, second = reader.read(), reader.read()
    assert first.links and second.at_s > first.at_s
    assert f"NVML: {reason}; it is not read any more" in first.unread


def test_a_child_that_is_killed_between_readings_is_replaced():
    with closing(SampleReader(LinkSelection(gpus=False))) as reader:
        reader.read()
        reader._child.kill()
        reader._child.wait()
        assert reader.read().links


def test_errors_of_the_child_keep_their_hint():
    with pytest.raises(UsageError, match="no such port here") as raised:
        SampleReader(LinkSelection(("nope",), gpus=False))
    assert "the ports are" in raised.value.hint and "none" not in raised.value.hint


def test_a_child_that_cannot_start_is_not_tried_for_ever(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(TimedOut, match="busbw: its process ended"):
        SampleReader(LinkSelection())


def test_a_child_whose_parent_ends_meanwhile_says_nothing():
    ours, theirs = socket.socketpair()
    with theirs:
        words = [sys.executable, "-m", "busbw.watch.reader", str(theirs.fileno())]
        child = subprocess.Popen(words, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE)
    with closing(Connection(ours.detach())) as connection:
        connection.send(LinkSelection(gpus=False))
    assert child.communicate(timeout=100)[1] == b""
