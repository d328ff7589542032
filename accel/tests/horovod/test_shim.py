"""Scripts written for Horovod run unchanged."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from busbw.launch import hosts
from busbw_accel.horovod.shim import MODULES

HANG_S = 250  # ranks import PyTorch, for minutes where other processes use all cores
pytestmark = [
    pytest.mark.torch,
    pytest.mark.xdist_group("warm_python"),
    pytest.mark.timeout(HANG_S + 50),
]

SOURCE = str(Path(__file__).parents[2] / "src")
# Ranks import PyTorch without looking for garbage.
SCRIPT = """
import gc
gc.disable()
import multiprocessing
import sys
import horovod

def version(_):
    return horovod.__version__

def main():
    import helper
    import horovod.torch as hvd
    import torch
    from horovod.common.elastic import ObjectState, State, run_fn
    from horovod.common.exceptions import HorovodInternalError
    from horovod.common.process_sets import add_process_set, remove_process_set
    from horovod.common.util import extension_available, gloo_built, mpi_built, nccl_built
    from horovod.torch.compression import Compression
    from horovod.torch.mpi_ops import allreduce

    for name in ("horovod.tensorflow", "horovod.common.basics"):
        try:
            __import__(name + ".keras")
        except ImportError as error:
            assert str(error) == "busbw has no " + name + ": of Horovod it has the PyTorch module, horovod.torch"
        else:
            raise AssertionError(name)
    try:
        horovod.run(print, np=2)
    except NotImplementedError as error:
        assert str(error) == "horovod.run is not supported: start a script that calls the function"
    else:
        raise AssertionError("horovod.run")
    hvd.init(helper.COMM)
    torch.manual_seed(hvd.rank())
    net = torch.nn.Linear(4, 2)
    hvd.broadcast_parameters(net.state_dict(), root_rank=0)
    total = allreduce(torch.tensor([1.0]), op=hvd.Sum)
    assert extension_available("torch") and not extension_available("mxnet") and gloo_built(verbose=True) and not mpi_built()
    assert nccl_built() == hvd.nccl_built() and issubclass(hvd.elastic.TorchState, ObjectState) and issubclass(ObjectState, State)
    assert issubclass(HorovodInternalError, RuntimeError) and Compression.fp16 is hvd.Compression.fp16
    if hvd.rank() == 0:  # as a data loader does
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            assert pool.map(version, [0]) == ["0.28.1"]
    said = (hvd.rank(), hvd.size(), float(total), round(float(net.weight.sum()), 4), sys.argv[1:], helper.NAME, __name__)
    sys.stdout.write(" ".join(map(str, said)) + "\\n")  # at once: two ranks write into one pipe

if __name__ == "__main__":
    main()
    gc.freeze()
"""
SUM = """
import sys
import helper
import horovod.torch as hvd
import torch
hvd.init()
total = hvd.allreduce(torch.tensor([1.0]), op=hvd.Sum)
sys.stdout.write(f"{hvd.rank()} {hvd.size()} {float(total)} {sys.argv[1:]} {helper.NAME} {__name__}\\n")
hvd.shutdown()
"""
ENVIRONMENT = {**os.environ, "PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1"}


def run(folder, *line):
    return subprocess.run(
        line,
        cwd=folder,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )


def test_a_script_of_horovods_runs_unchanged_on_every_rank(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "helper.py").write_text(
        "from mpi4py.MPI import COMM_WORLD as COMM\nNAME = 'beside the script'\n"
    )
    (tmp_path / "run.sh").write_text(f'exec {sys.executable} train.py "$@"\n')
    words = ["horovodrun", "-np", "2", "--cycle-time-ms", "2", "sh", "run.sh", "--epochs", "1"]
    done = run(tmp_path, sys.executable, "-m", "busbw", *words)
    assert done.returncode == 0, done.stderr
    output = sorted(done.stdout.splitlines())
    assert [line.split()[:3] for line in output] == [["0", "2", "2.0"], ["1", "2", "2.0"]]
    assert output[0].split()[3] == output[1].split()[3], "the same weights"
    assert all(line.endswith("['--epochs', '1'] beside the script __main__") for line in output)


def test_python_m_runs_a_script_under_torchrun(tmp_path, warm_python, monkeypatch):
    monkeypatch.setattr(sys, "executable", warm_python)
    (tmp_path / "sum.py").write_text(SUM)
    (tmp_path / "helper.py").write_text("NAME = 'beside the script'\n")
    words = [sys.executable, "-m", "busbw_accel.horovod", "sum.py", "--epochs", "1"]
    # as the torch engine starts its ranks without MPI
    done = run(tmp_path, *hosts.command(words, 1))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "0 1 1.0 ['--epochs', '1'] beside the script __main__\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [((), "error: no script to run"), (("none.py",), "error: none.py: no such file")],
)
def test_a_missing_script_is_a_usage_error(tmp_path, words, message):
    done = run(tmp_path, sys.executable, "-m", "busbw_accel.horovod", *words)
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, message)


def test_the_shim_has_every_horovod_module():
    from importlib import import_module

    assert all(import_module(own) for own in MODULES.values())
