"""The recorder inside a rank: each of its files is written also without the other, and the training
runs as it does without it.
"""

import importlib.util
import json
import os
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from busbw.core.env import CAPTURE
from busbw.pattern import capture

RECORDER = Path(__file__).parents[3] / "src" / "busbw" / "pattern" / "recorder"
LIMIT_S = 120
TRAINING = """
import copy, gc, io, json, pathlib, sys, time, weakref
gc.disable()  # while it imports PyTorch
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
store = dist.FileStore("store", 1)
dist.init_process_group("gloo", store=store, rank=0, world_size=1)
for name in ("_dump_fr_trace", "_dump_nccl_trace"):
    if hasattr(torch._C._distributed_c10d, name):
        delattr(torch._C._distributed_c10d, name)
DistributedDataParallel(torch.nn.Linear(2, 2))  # unused
gc.collect()
model = DistributedDataParallel(torch.nn.Linear(4, 3))
x, graphs, report = torch.ones(2, 4), [], {"steps": 0}

def backend(graph, _):
    graphs.append(graph)
    return graph.forward

compiled = torch.compile(lambda: model(x).sum(), backend=backend)

def train():
    for step, _ in enumerate(torch.utils.data.DataLoader(range(9))):
        report["steps"] = step
        compiled().backward() if step < 3 else accumulate()
        if step == 2:
            breaks = torch._dynamo.utils.counters["graph_break"]
            before_forward = [text for text in breaks if "_inside_ddp_forward" not in text]
            report["compiled"] = [len(graphs), sum(breaks[text] for text in before_forward)]
        if step == 3:
            model._get_ddp_logging_data = None
        if step == 4:
            del model._get_ddp_logging_data

def accumulate():
    with model.no_sync():
        model(x).sum().backward()
    (model(x) - model(2 * x)).sum().backward()
    with torch.no_grad():
        model(x)

try:
    train()
except SystemExit as end:
    report["code"] = end.code
file = io.BytesIO()
torch.save([model, copy.deepcopy(model)], file)
report["saved"] = b"sitecustomize" in file.getvalue() or b"busbw" in file.getvalue()
file.seek(0)
for loaded in torch.load(file, weights_only=False):
    loaded.module(x).sum().backward()
del loaded
gone = weakref.ref(model)
torch._dynamo.reset()
del model, compiled
gc.collect()
report["gone"] = gone() is None
while not pathlib.Path("rank_0.ddp").exists():  # a signal may end the rank now
    time.sleep(0.01)
print(json.dumps(report))
gc.freeze()
"""


def test_a_dump_of_gloos_calls_gets_the_ranks_of_the_job(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(RECORDER))
    spec = importlib.util.spec_from_file_location("recorder", RECORDER / "sitecustomize.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.delenv("BUSBW_CAPTURE", raising=False)
    monkeypatch.setenv("WORLD_SIZE", "3")
    spec.loader.exec_module(module)
    recorder = module.Recorder("folder", 0)
    gloo = {"pg_config": {"": {"name": "", "ranks": "[0]"}}}
    module.busbw_rank_now.add_world(gloo, recorder._world())
    assert gloo["pg_config"]["0"]["ranks"] == "[0, 1, 2]"
    nccl = {"pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}}
    module.busbw_rank_now.add_world(nccl, recorder._world())
    assert nccl["pg_config"]["0"]["ranks"] == "[0, 1]"


def test_a_loader_counts_once_and_in_the_main_thread_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(RECORDER))
    phases = importlib.import_module("busbw_phases").Phases()
    seen: list[dict[str, dict[str, float]]] = []

    class Loader:
        def __next__(self) -> int:
            if not seen:  # a loader that reads from another one
                seen.append(phases.now())
                next(self, None)
                seen.append(phases.now())
            raise StopIteration

    phases._wrap(Loader, "__next__", "input")
    thread = threading.Thread(target=lambda: next(Loader(), None))
    thread.start()
    thread.join()
    assert seen.pop()["spent_us"]["input"] == seen.pop()["spent_us"]["input"] == 0.0
    with pytest.raises(StopIteration):
        next(Loader())
    first, second = seen
    assert list(first["doing_s"]) == ["input"]
    after = phases.now()
    assert after["doing_s"] == {} and after["spent_us"]["save"] == 0.0
    assert 0.0 < second["spent_us"]["input"] <= after["spent_us"]["input"]
    phases.note_forward(training=False)
    assert list(phases.now()["doing_s"]) == ["evaluation"]
    phases.note_forward(training=True)
    assert phases.now()["doing_s"] == {}


@pytest.mark.torch
@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
def test_a_training_runs_as_without_the_recorder(tmp_path: Path) -> None:
    """PyTorch has no dump of its calls here. Some steps have several forwards. What was recorded is
    in the folder before the rank ends.
    """
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import no_such_module")
    environment = {
        **os.environ,
        "PYTHONPATH": f"{RECORDER}{os.pathsep}{own}",
        "BUSBW_CAPTURE": str(tmp_path),
        "BUSBW_CAPTURE_STEPS": "6",
        "BUSBW_CAPTURE_LAUNCH": "this",
    }
    done = subprocess.run(
        [sys.executable, "-c", TRAINING],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # a graph, and a break before it as DDP itself makes it
    report = {"steps": 6, "compiled": [1, 1], "code": 0, "saved": False, "gone": True}
    assert json.loads(done.stdout) == report
    assert "no_such_module" in done.stderr
    assert "6 steps are recorded" in done.stderr
    steps = json.loads((tmp_path / "rank_0.ddp").read_text())
    assert (steps["rank"], steps["world"], len(steps["steps_us"])) == (0, 1, 6)
    assert steps["wait_steps"] == [0, 1, 2, 4, 5]
    assert steps["parameter_bytes"] == 60
    assert sorted(map(tuple, steps["shapes"][0])) == [(3,), (3, 4)]
    now = json.loads((tmp_path / ".rank_0.now").read_text())
    assert (now["rank"], now["launch"], now["ended"]) == (0, "this", True)
    assert now["steps_us"] == steps["steps_us"]
    assert [at for at, wait_us in enumerate(now["waits_us"]) if wait_us] == steps["wait_steps"]
    assert now["timed"] == 5 and all(us > 0 for us in now["computed_us"].values())
    assert all(us > 0 for us in now["spent_us"].values()) and not now["doing_s"]
    assert not (tmp_path / "rank_0.fr").exists()
    assert capture.has_rank_0(tmp_path, {CAPTURE.launch: "this"})
    assert not capture.has_rank_0(tmp_path, {CAPTURE.launch: "another"})
    assert capture.has_rank_0(tmp_path / "own", {CAPTURE.launch: "another"})


def test_a_rank_writes_its_last_calls_when_a_call_fails(monkeypatch) -> None:
    """At once, since its launcher may kill it; the error is the program's."""
    monkeypatch.syspath_prepend(str(RECORDER))
    failures = []

    def fail() -> None:
        raise RuntimeError("Connection reset by peer")

    def cannot_write() -> None:
        failures.append("noted")
        raise OSError("No space left on device")

    calls = importlib.import_module("busbw_rank_steps").CallWaits(cannot_write)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="Connection reset"):
            calls.timed(fail)()
    assert failures == ["noted"]


def test_a_training_without_ddp_has_the_steps_of_its_first_optimizer(monkeypatch) -> None:
    """And how long it was blocked in calls, unless it uses GPUs, where these do not block."""

    class Work:
        def wait(self, seconds: float) -> bool:
            time.sleep(seconds)
            return True

    class Optimizer:
        pass

    on_gpus = [False]
    torch = SimpleNamespace(
        _C=SimpleNamespace(_distributed_c10d=SimpleNamespace(Work=Work)),
        cuda=SimpleNamespace(is_initialized=lambda: on_gpus[0]),
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.syspath_prepend(str(RECORDER))
    module = importlib.import_module("busbw_rank_steps")
    calls = module.CallWaits()
    calls.start()
    calls.start()  # for each process group
    steps, first, second = module.OptimizerSteps(calls), Optimizer(), Optimizer()
    steps.note(first)
    for waited_s in (0.0, 0.02):
        assert Work().wait(waited_s)
        steps.note(second)
        steps.note(first)
    on_gpus[0] = True
    steps.note(first)
    last = steps.last()
    assert len(last["steps_us"]) == 3
    assert 0 <= time.monotonic_ns() - last["step_end_ns"] < LIMIT_S * 1e9
    none, some, on_gpu = last["waits_us"]
    assert none >= 0 and 20_000 <= some <= last["steps_us"][1]
    assert on_gpu is None


@pytest.mark.parametrize(
    ("function", "code", "out", "message"),
    [
        ("helper:start", 0, "called with torch\n", ""),
        ("no_such:start", 1, "", " cannot import no_such: No module named 'no_such'\n\nhint: "),
    ],
)
def test_a_function_is_called_once_pytorch_is_imported(
    tmp_path: Path, function: str, code: int, out: str, message: str
) -> None:
    (tmp_path / "torch.py").write_text("")
    (tmp_path / "helper.py").write_text(
        "import sys\ndef start(): print('called with', *sys.modules.keys() & {'torch'})"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": f"{RECORDER}{os.pathsep}{tmp_path}",
        CAPTURE.with_torch: function,
    }
    done = subprocess.run(
        [sys.executable, "-c", "import torch"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (code, out), done.stderr
    assert message in done.stderr
