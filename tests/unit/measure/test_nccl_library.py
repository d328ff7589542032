"""Each rank loads the NCCL that was chosen, and nccl4py and PyTorch both call that one."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import fake_nccl
import pytest

from busbw.cli.main import guarded
from busbw.core.errors import NoMeasurement, UsageError
from busbw.core.nccl_library import NcclLibrary
from busbw.core.result import EngineLibrary
from busbw.core.sweep import SweepSpec
from busbw.engines import registry
from busbw.measure import nccl_library
from busbw.measure.job import SweepJob, decode_job, encode

CHOSEN = NcclLibrary("/nowhere/libnccl-2.32.3.so", 23203, "0123456789abcdef" * 4)
# PyTorch loads its own library too: what counts is the one that its calls go to.
ASK = """
import sys
from busbw.core.nccl_library import NcclLibrary
from busbw.measure import nccl_library
nccl_library.load(NcclLibrary(sys.argv[1], 99901, ""))
from busbw.engines import torch_nccl
from busbw.engines.nccl_comms import library
print(library().get_version(), torch_nccl.version())
"""


@pytest.mark.torch
@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
def test_nccl4py_and_pytorch_call_the_chosen_library(library):
    functions = fake_nccl.called_by(Path(find_spec("torch").origin).parent)
    source = fake_nccl.source("9.99.1", functions)
    built = library(source, "libfake.so", "-Wl,-soname,libnccl.so.2")
    done = subprocess.run(
        [sys.executable, "-c", ASK, str(built)], capture_output=True, text=True, check=False
    )
    assert done.stdout == "99901 99901\n", done.stderr


def test_a_library_that_nobody_would_get_is_refused(library):
    nameless = library(fake_nccl.source("9.99.1"), "libnameless.so")
    chosen = NcclLibrary(str(nameless), 99901, "")
    # Another one is there if a test before this one loaded it.
    gets = r"a program that asks for libnccl\.so\.2 (does not get it|gets another file)"
    with pytest.raises(NoMeasurement, match=gets):
        nccl_library.load(chosen)
    with pytest.raises(
        NoMeasurement, match=r"NCCL 2\.32\.3 cannot be loaded on .*: /nowhere"
    ) as lost:
        nccl_library.load(CHOSEN)
    assert "all hosts need the file at the same path" in lost.value.hint


def test_what_ran_must_be_what_was_chosen():
    used = EngineLibrary("nccl", 23203)
    nccl_library.confirm(CHOSEN, used)
    assert used.versions == {"libnccl": "sha256 0123456789abcdef"}
    with pytest.raises(NoMeasurement, match=r"--nccl 2\.32\.3: 2\.28\.9 ran on "):
        nccl_library.confirm(CHOSEN, EngineLibrary("nccl", 22809))
    with pytest.raises(UsageError, match="PyTorch found no GPU and does not use NCCL"):
        nccl_library.confirm(CHOSEN, EngineLibrary("torch"))
    nccl_library.confirm(None, EngineLibrary("torch"))


def test_ranks_get_the_library_with_their_job():
    job = SweepJob(sweep=SweepSpec(collective="all_reduce"), nccl=CHOSEN)
    assert decode_job(encode(job)).nccl == CHOSEN


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--nccl", "2.32.3", "--engine", "sim"], "engine sim moves no data through NCCL"),
        (["--nccl", "2.32.3", "--engine", "mpi"], "engine mpi moves no data through NCCL"),
        (["--wheels", "/tmp"], "--wheels /tmp without --nccl"),
        (["--nccl", "2.32", "--hosts", "h1"], "--nccl 2.32: a release has three numbers"),
        (["--nccl", "./none.so", "--hosts", "h1"], "--nccl none.so: there is no such file"),
        (["--nccl", ""], "--nccl"),
    ],
)
def test_options_that_cannot_hold_are_refused_before_ranks_start(options, message, capsys):
    assert guarded(["run", "all_reduce", *options]) == 2
    assert message in capsys.readouterr().err


def test_without_a_gpu_no_release_is_looked_for(monkeypatch, capsys):
    monkeypatch.setattr(registry, "GPU_DEVICES", ())
    assert guarded(["run", "all_reduce", "--nccl", "2.99.9"]) == 3
    assert "--nccl 2.99.9: no NVIDIA GPU on this machine" in capsys.readouterr().err
