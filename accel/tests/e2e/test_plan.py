"""`busbw plan` with real ranks on CPUs."""

import json
import shlex

import pytest

from busbw.cli.main import guarded
from busbw.pattern.registry import load

HANG_S = 300  # where other processes use all cores
pytestmark = [pytest.mark.torch, pytest.mark.timeout(HANG_S + 60)]

SMALL = ("--batch-size", "2", "--warmup", "1", "--steps", "3", "--iters", "1", "--rounds", "1")


def test_plan_times_all_methods_and_checks_the_recommended(run, warm_python, tmp_path, capsys):
    # Every exchange reaches 0.01 %, also on a busy machine, so that the only one of the least loss
    # is recommended, and checked. Plain DDP would be checked with up to four sizes of buckets.
    words = shlex.split(
        "-np 2 --compare torch-fp16,int8+host,int8,topk --try as-is,busbw "
        "--bucket-mb 2 --target 0.01%"
    )
    done = run(
        "busbw",
        "plan",
        "mlp-small",
        *SMALL,
        *words,
        "--json",
        "p.json",
        limit_s=HANG_S,
        python=warm_python,
        BUSBW_PLUGIN="/none.so",
    )
    lines = done.out.splitlines()
    # ranks compete for processors with whatever else runs
    contradicting = "no recommendation: figures contradict each other:" in lines
    assert done.code == (3 if contradicting else 0), done.err
    assert lines[0] == "# mlp-small: 1,300,456 parameters, 5.2 MB of gradients a step"
    assert " buckets, the last of " in lines[3]
    assert [line.split()[1] for line in lines if line.startswith("as-is ")] == [
        "torch-fp16",
        "int8",
        "topk",
    ]
    plan = json.loads((tmp_path / "p.json").read_text())["plan"]
    assert sum(bucket["nbytes"] for bucket in plan["buckets"]) == 4 * 1_300_456
    ready = [bucket["ready_s"] for bucket in plan["buckets"]]
    assert len(ready) > 1
    assert ready == sorted(ready)
    assert ready[-1] < plan["still_s"]
    assert all(
        len(exchange["rounds"]) == 1 and min(exchange["bucket_s"]) > 0
        for exchange in plan["exchanges"]
    )
    checked = [exchange["method"] for exchange in plan["exchanges"] if exchange["checked_s"]]
    assert checked == ["torch-fp16"] or (contradicting and not checked)
    assert [line.split()[1].strip(",") for line in lines if line.startswith("checked: ")] == checked
    # What a rank or the machine lacks is named, and the rest stands.
    assert (
        "busbw plan: int8+host is skipped: host staging is not possible: rank 0:"
        " BUSBW_PLUGIN=/none.so: no such file" in done.err
    )
    assert "note: busbw could not be measured: " in done.err
    assert guarded(["show", str(tmp_path / "p.json"), "--wide"]) == 0
    assert capsys.readouterr().out == done.out


TRAINING = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.set_num_threads(1)
parts = [torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256)]
model = DistributedDataParallel(torch.nn.Sequential(*parts), bucket_cap_mb=0.5)
for step in range(1000):
    model(torch.randn(8, 256)).square().mean().backward()
    model.zero_grad()
    print(f"training, step {step}")  # in one piece: two ranks write into one pipe
"""


def test_a_training_of_the_user_is_recorded_and_planned_for(run, warm_python, tmp_path, capsys):
    """Two Gloo ranks, ended after 8 steps; the folder of the capture gives the same plan again."""
    (tmp_path / "train.py").write_text(TRAINING)
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py")
    done = run(
        "busbw",
        "plan",
        *("--compare", "bf16", "--rounds", "1", "--iters", "1", "--target", "0.01%"),
        *("--capture-steps", "8", "--output", "run1", "--json", "p.json", "--"),
        *(warm_python, *torchrun),
        limit_s=HANG_S,
        python=warm_python,
        COLUMNS="80",
    )
    assert done.code == 0, done.err
    assert "busbw: 8 steps are recorded; the training ends here" in done.err
    assert "training, step 7" in done.err
    assert "training, step 8" not in done.err
    lines = done.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert "DistributedDataParallel on 2 ranks, 2 buckets, 1.1 MB of gradients" in done.out
    assert "(as DDP timed it)" in done.out
    assert "\nnothing lossy is needed: none" in done.out
    assert "\ncompared: with the exchanges measured here, a step by none takes " in done.out
    result = json.loads((tmp_path / "p.json").read_text())
    recorded = result["recorded"]
    assert [bucket["shapes"] for bucket in recorded["buckets"]] == [
        [[256], [256, 512]],
        [[512], [512, 256]],
    ]
    assert recorded["buckets"][0]["ready_s"] < recorded["buckets"][1]["ready_s"]
    assert 0 <= recorded["waited_s"] < recorded["step_s"]
    exchanges = result["plan"]["exchanges"]
    assert [exchange["method"] for exchange in exchanges] == ["none", "none", "bf16"]
    assert guarded(["show", str(tmp_path / "p.json")]) == 0
    assert capsys.readouterr().out == done.out
    assert load([str(tmp_path / "run1")]).header.training.shapes == [
        bucket["shapes"] for bucket in recorded["buckets"]
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "error: a plan is for one of: a model, --pattern FILE, or -- COMMAND"),
        (
            ("vgg16", "--", "true"),
            "error: a plan is for one of: a model, --pattern FILE, or -- COMMAND",
        ),
        (("--pattern", "none.jsonl"), "error: none.jsonl: No such file or directory"),
        (
            ("--batch-size", "2", "--", "true"),
            "error: --batch-size: for busbw's own models, not for a training of yours",
        ),
        (("--try", "udp", "--", "true"), "error: 'udp' in 'udp' is not a transport"),
        (("vgg",), "error: unknown model 'vgg'"),
        (("mlp", "--try", "udp"), "error: 'udp' in 'udp' is not a transport"),
        (("mlp", "--compare", "zip"), "error: 'zip' of 'zip' is not a method"),
        (
            ("mlp", "--json", "no/where.json"),
            "error: --json no/where.json: No such file or directory",
        ),
    ],
)
def test_invalid_arguments_are_refused_before_the_start(words, message, capsys):
    assert (guarded(["plan", *words]), capsys.readouterr().err.splitlines()[0]) == (2, message)
