"""A training continues from its last commit when ranks are killed, with new ranks that get
the state of the others.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from busbw.core.errors import UsageError
from busbw_accel.horovod.torch.elastic import TorchState

pytestmark = [pytest.mark.torch, pytest.mark.xdist_group("warm_python"), pytest.mark.timeout(300)]

SOURCE = str(Path(__file__).parents[2] / "src")
# Ranks look for garbage only where the script says so.
SCRIPT = """
import gc, os, pathlib, sys, time
gc.disable()
from busbw_accel.horovod.elastic import processes as worker

if os.path.exists("killed") and not os.path.exists("lost"):
    pathlib.Path("lost").touch()
    worker.join_world()
    os.kill(os.getpid(), 9)  # while a world forms

import torch
import horovod.torch as hvd
from busbw_accel.horovod.torch import context, rendezvous, world as forming

def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\\n")
    sys.stdout.flush()

opened = rendezvous.connect_store

def store(info, timeout, world=None):
    say("limit", world.number, timeout.total_seconds())
    return opened(info, timeout, world)

rendezvous.connect_store, forming.FORM_S = store, 6.0
hvd.init()
torch.manual_seed(hvd.rank())
model = torch.nn.Linear(4, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5), named_parameters=model.named_parameters())
sampler = hvd.elastic.ElasticSampler(range(4000))
state = hvd.elastic.TorchState(model, optimizer, batch=0, sampler=sampler)
state.register_reset_callbacks([lambda: say("reset", hvd.rank())])

@hvd.elastic.run
def train(state):
    say("world", hvd.rank(), hvd.size(), hvd.local_rank(), os.getpid(), state.batch, sampler.processed_num)
    while hvd.size() == 2 and state.batch < 60:
        optimizer.zero_grad()
        model(torch.full((1, 4), hvd.rank() + 1.0)).sum().backward()
        optimizer.step()
        sampler.record_batch(state.batch, 1)
        state.batch += 1
        state.commit()
        if state.batch == 20 and not os.path.exists("killed"):
            state.batch = 999  # not committed
            say("kill")
            while True:
                hvd.allreduce(torch.ones(1), name="until one is lost")

train(state)
def limits():
    for group in (torch.distributed.group.WORLD, context.current().controller._mesh.world.group):
        yield group._get_backend(torch.device("cpu")).options._timeout.total_seconds()

assert list(limits()) == [120, 120], "not the limit of forming"
for _ in range(3):
    hvd.shutdown()
    hvd.init()
    gc.collect()  # of earlier worlds, whose stores then write to their files
say("end", hvd.rank(), state.batch, sampler.processed_num, hvd.allgather(model.weight.detach()).unique(dim=0).shape[0])
hvd.shutdown()
time.sleep(0.2)  # the kernel removes ended threads
assert "torch.distributed.nn" in sys.modules
say("threads of groups", sum(task.joinpath("comm").read_text().startswith("pt_gloo") for task in pathlib.Path("/proc/self/task").iterdir()))
"""


def test_commits_are_kept_where_no_other_user_can_write(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    state = TorchState(step=0)
    folder = state.path().parent
    assert folder.parent == tmp_path and folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o770)
    with pytest.raises(UsageError, match="is not a folder that only this user can open"):
        state.path()
    folder.rmdir()
    folder.symlink_to(tmp_path)
    with pytest.raises(UsageError, match="is not a folder that only this user can open"):
        state.path()


def test_killed_ranks_are_replaced_and_the_training_goes_on(tmp_path, warm_python):
    (tmp_path / "train.py").write_text(SCRIPT)
    words = [
        *shlex.split("horovodrun -np 2 --min-np 1 --max-np 2 -H localhost:4"),
        warm_python,
        "train.py",
    ]
    environment = {**os.environ, "PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1"}
    output = []
    with subprocess.Popen(
        [sys.executable, "-m", "busbw", *words],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as job:
        for line in job.stdout:
            output.append(line.split())
            if line == "kill\n" and not (tmp_path / "killed").exists():
                (tmp_path / "killed").touch()
                pid = next(int(words[4]) for words in output if words[:2] == ["world", "0"])
                os.kill(pid, signal.SIGKILL)
        errors = job.stderr.read()
    assert job.returncode == 0, (output, errors)
    assert re.search(
        r"the worker on slot 0 \(rank 0\) was killed by signal 9\n.*world 2: 2 ranks on slots"
        r" 1, 2\n",
        errors,
    )
    assert "a world of the elastic job could not be formed (" in errors
    assert re.search(
        r"the worker on slot 2 \(rank 1\) was killed by signal 9\n(.*\n)*.*world 3: 2 ranks on"
        r" slots 1, 3\n",
        errors,
    )
    limits = sorted(words[1:] for words in output if words[0] == "limit" and int(words[1]) < 4)
    # A rank lost while a world forms costs the others this, not HOROVOD_GLOO_TIMEOUT_SECONDS, and
    # the next attempt has twice as long.
    assert limits == [["1", "6.0"], ["1", "6.0"], ["2", "6.0"], ["3", "12.0"], ["3", "6.0"]]
    worlds = [words[1:] for words in output if words[0] == "world"]
    first, second = sorted(worlds[:2]), sorted(worlds[2:])
    assert [words[:3] for words in second] == [["0", "2", "1"], ["1", "2", "3"]], (
        "the survivor is rank 0 now, on its own slot"
    )
    assert second[0][3] == first[1][3]
    assert [words[4:] for words in second] == [["20", "40"]] * 2, (
        "both continue from the last commit"
    )
    assert [words for words in output if words[0] == "reset"] == [["reset", "0"]], (
        "once, at the survivor"
    )
    assert sorted(words for words in output if words[0] == "end") == [
        ["end", "0", "60", "120", "1"],
        ["end", "1", "60", "120", "1"],
    ]
    assert [words for words in output if words[0] == "threads"] == [
        ["threads", "of", "groups", "0"]
    ] * 2, "one would abort the process"
