"""`busbw plan --losses` with two ranks on CPUs: what a script does, and what it may lack."""

import csv
from pathlib import Path

import pytest

HANG_S = 300  # where other processes use all cores
pytestmark = [pytest.mark.torch, pytest.mark.timeout(HANG_S + 60)]

# Arguments: the folder of the run, and what is unusual.
TRAINING = """
import os, pathlib, sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

folder, kind = sys.argv[1:]
rank, ranks = int(os.environ["RANK"]), 1 if kind == "alone" else 2
if ranks == 1 and rank == 1:
    sys.exit()
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
torch.manual_seed(3)
target = torch.nn.Linear(16, 4)
net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
if kind == "resume" and pathlib.Path("model.pt").exists():
    net.load_state_dict(torch.load("model.pt"))
model = net if kind == "plain" else DistributedDataParallel(net)
if kind == "hook":
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    model.register_comm_hook(None, default_hooks.bf16_compress_hook)
optimizer = torch.optim.SGD(net.parameters(), lr=1e30 if kind == "diverge" else 0.1, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", enabled=kind == "scaled")
torch.manual_seed(10 + rank)
for step in range(5 if kind == "scaled" else 40):
    x = torch.randn(16, 16)
    loss = (model(x) - target(x)).square()
    loss = loss if kind == "vector" else loss.mean()
    if kind == "scaled":
        with model.no_sync():
            again = checkpoint(net, x.clone().requires_grad_(), use_reentrant=True) - target(x)
            again = again.square().mean()
            scaler.scale(again).backward()
        with open("own.txt", "a") as file:
            file.write(f"{rank} {loss.item() + again.item()}\\n")
    scaler.scale(loss).backward(torch.ones_like(loss))
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    if kind == "resume" and step == 3:
        torch.save(net.state_dict(), "model.pt")
    if kind == "killed" and rank == 1:
        os.kill(os.getpid(), 9)
"""
BAD = "topk+ratio=0.001+compress_least=0+feedback=0"


@pytest.fixture
def losses(run, warm_python, tmp_path: Path):
    """Compare the losses of the script above: `losses(kind, options...)`."""
    (tmp_path / "train.py").write_text(TRAINING)
    rank = f'{warm_python} train.py "$@"'
    line = f"RANK=1 {rank} & RANK=0 {rank} && wait $!"

    def compare(kind: str, *options: str, steps: int = 12):
        return run(
            *("busbw", "plan", "--losses", str(steps), *options),
            *("--", "sh", "-c", line, "sh", "{run}", kind),
            limit_s=HANG_S,
            python=warm_python,
            COLUMNS="200",
        )

    return compare


def test_each_method_is_compared_over_rounds_with_the_same_seeds(losses, tmp_path: Path) -> None:
    done = losses(
        "",
        *(
            "--compare",
            f"none,bf16,{BAD}",
            "--rounds",
            "3",
            "--tolerance",
            "20%",
            "--output",
            "kept",
        ),
        steps=16,
    )
    assert done.code == 1, done.err
    rows = {line.split()[0]: line for line in done.out.splitlines()[4:8] if line}
    assert "  PASS     " in rows["bf16"]
    assert "  FAIL     worse by more than 20 % (" in rows[BAD]
    assert "busbw_accel.attach(model, busbw_accel.Settings(wire='bf16'))" in done.out
    assert "DistributedDataParallel on 2 ranks, 3 rounds, each with other seeds" in done.out
    assert "note:" not in done.out
    with (tmp_path / "kept" / "losses.csv").open() as file:
        table = list(csv.DictReader(file))
    assert len(table) == 16 * 3 * 3
    firsts = [row["loss"] for row in table if row["step"] == "1"]
    assert [len(set(firsts[at : at + 3])) for at in (0, 3, 6)] == [1, 1, 1]
    assert len(set(firsts)) == 3


def test_accumulated_and_scaled_losses_are_those_of_the_script_as_far_as_it_goes(
    losses, tmp_path: Path
) -> None:
    done = losses("scaled", "--compare", "int8", "--rounds", "1", "--output", "kept")
    assert done.code == 0, done.err
    assert "the same in every step: it loses nothing, or no bucket has " in done.out
    assert "note: the training ended by itself after 5 of 12 steps" in done.out
    with (tmp_path / "kept" / "losses.csv").open() as file:
        recorded = [float(row["loss"]) for row in csv.DictReader(file)][:5]
    own = [line.split() for line in (tmp_path / "own.txt").read_text().splitlines()]
    of_ranks = [[float(loss) for rank, loss in own if rank == name][:5] for name in "01"]
    means = [sum(values) / 2 for values in zip(*of_ranks, strict=True)]
    assert recorded == pytest.approx(means)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("plain", " ended without a DistributedDataParallel model"),
        ("alone", " has one rank, which exchanges no gradients"),
        ("hook", " registers a communication hook itself, and a model has only one"),
        ("vector", " calls backward on a tensor of shape [16, 4]: it has no loss of one number"),
        ("diverge", " by plain DistributedDataParallel is not finite from step "),
        ("resume", " continues from model.pt, which an earlier of these runs has saved"),
    ],
)
def test_a_script_without_comparable_losses_is_named(losses, kind: str, message: str) -> None:
    done = losses(kind, "--compare", "int8", "--rounds", "1")
    assert (done.code, done.out) == (3, "")
    assert message in done.err


def test_a_killed_rank_ends_the_comparison(losses) -> None:
    done = losses("killed", "--compare", "int8", "--capture-limit", "10")
    assert (done.code, done.out) == (3, "")
    assert " ended with 1\n" in done.err or "the command had not ended after 10 s" in done.err
