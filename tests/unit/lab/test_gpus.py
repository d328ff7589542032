"""How GPUs are divided among hosts, and that the MPS which a lab started is stopped with it."""

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.core.errors import UsageError
from busbw.host import process
from busbw.lab import gpus
from busbw.lab.gpus import Share, divide

HOSTS, FOUND = st.integers(2, 8), st.integers(0, 16)


def test_two_hosts_have_half_of_one_gpu_each():
    assert divide(2, 1, None) == [Share((0,), 50), Share((0,), 50)]


def test_two_hosts_have_one_of_two_gpus_each():
    assert divide(2, 2, None) == [Share((0,)), Share((1,))]


def test_only_hosts_that_share_a_gpu_have_a_part_of_it():
    assert divide(3, 2, None) == [Share((0,), 50), Share((1,)), Share((0,), 50)]


def test_hosts_have_as_many_gpus_as_asked_for():
    assert divide(2, 8, 4) == [Share((0, 1, 2, 3)), Share((4, 5, 6, 7))]
    assert divide(2, 8, 0) == [Share(), Share()]


@given(HOSTS, FOUND, st.integers(1, 8))
def test_more_gpus_than_there_are_is_an_error(hosts, found, each):
    if each * hosts <= found:
        assert sorted(gpu for share in divide(hosts, found, each) for gpu in share.gpus) == list(range(hosts * each))
    else:
        with pytest.raises(UsageError, match=f"need {each * hosts} GPUs, and this machine has {found}"):
            divide(hosts, found, each)


@given(HOSTS, FOUND)
def test_no_gpu_is_given_away_more_than_once(hosts, found):
    shares = divide(hosts, found, None)
    assert len(shares) == hosts
    for gpu in range(found):
        assert sum(share.percent or 100 for share in shares if gpu in share.gpus) <= 100
    assert all(share.gpus for share in shares) == (found > 0)


def test_only_mps_that_was_started_here_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A daemon in place of NVIDIA's, which needs a GPU: it ignores `quit`, as one with clients does."""
    control = tmp_path / gpus.CONTROL
    control.write_text('#!/bin/sh\n[ "$1" = -d ] || exit 0\nsetsid sleep 600 >/dev/null 2>&1 & echo $! > "$0.pid"\n')
    control.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with subprocess.Popen([str(control), "-d"], env={"PATH": os.environ["PATH"]}) as other:
        other.wait(5)
    foreign = int(control.with_suffix(".pid").read_text())
    try:
        assert gpus.start_mps() == ""
        own = int(control.with_suffix(".pid").read_text())
        gpus.stop_mps()
        assert process.state(own) in process.ENDED
        assert process.state(foreign) not in process.ENDED
        gpus.stop_mps()  # nothing is left to stop
    finally:
        os.kill(foreign, 9)


def test_a_missing_mps_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpus.start_mps().startswith(f"no {gpus.CONTROL} here: ")
