"""Scenarios of embeddings that ranks share, on every rank of a job."""

import json
import os
import re
import resource
import signal
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from embedding_oracle import Oracle
from exchanges import scenario
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from busbw.core.errors import BusbwError
from busbw_accel import heartbeat
from busbw_accel.embedding import DynamicEmbedding, TableSettings, saving
from busbw_accel.embedding.exchange import owners
from busbw_accel.embedding.optimizers import mix

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "large-embeddings.md"
DIM = 6
STEPS = 12
BATCH = 96  # of all ranks
DEVICE = os.environ.get("ACCEL_DEVICE", "cpu")


def settings(optimizer: str = "adam", **words: Any) -> TableSettings:
    return TableSettings(capacity=4096, optimizer=optimizer, lr=0.05, **words)


def batch(step: int) -> torch.Tensor:
    """Ids of a Zipf law over all 64 bits, of all ranks."""
    generator = torch.Generator().manual_seed(step)
    return mix(torch.rand(BATCH, generator=generator, dtype=torch.float64).pow(-1.5).long())


def share(tensor: torch.Tensor, rank: int | None = None, ranks: int | None = None) -> torch.Tensor:
    """A rank's part of a batch; this rank's, among all."""
    return tensor.chunk(ranks or dist.get_world_size())[dist.get_rank() if rank is None else rank]


def alone() -> dist.ProcessGroup:
    """A process group of this rank alone."""
    return [dist.new_group([rank]) for rank in range(dist.get_world_size())][dist.get_rank()]


def initial_of(chosen: TableSettings) -> Callable[[torch.Tensor], torch.Tensor]:
    """The rows that a table begins with, from a table that stays empty."""
    empty = DynamicEmbedding(DIM, chosen, group=alone(), device=DEVICE).eval()
    return lambda ids: empty(ids).detach().cpu()


def gradient(step: int) -> torch.Tensor:
    """The gradient of the whole batch."""
    return torch.randn(BATCH, DIM, generator=torch.Generator().manual_seed(7000 + step))


def step_of(embedding: DynamicEmbedding, step: int, **who: int) -> torch.Tensor:
    """One step of a loss whose gradient is known; returns the output of forward."""
    rows = embedding(share(batch(step), **who))
    (rows.cpu() * share(gradient(step), **who)).sum().backward()
    return rows.detach().cpu()


def rows_of(embedding: DynamicEmbedding) -> dict[int, torch.Tensor]:
    """The rows and optimizer states of this rank by id, in one tensor each."""
    rows = {}
    for chunk in embedding.table.export(100):
        names = sorted(name for name in chunk if name not in ("ids", "score"))
        values = torch.cat([chunk[name].double().view(len(chunk["ids"]), -1) for name in names], 1)
        rows |= dict(zip(chunk["ids"].tolist(), values, strict=True))
    return rows


def values_of(embedding: DynamicEmbedding) -> dict[int, torch.Tensor]:
    """The rows alone."""
    return {
        identity: row
        for chunk in embedding.table.export(100)
        for identity, row in zip(chunk["ids"].tolist(), chunk["rows"].double(), strict=True)
    }


def all_of(
    own: dict[int, torch.Tensor], group: dist.ProcessGroup | None = None
) -> dict[int, torch.Tensor]:
    """The rows of all ranks; no id may be on two."""
    rows_of_ranks: list[dict[int, torch.Tensor]] = [{}] * dist.get_world_size(group)
    dist.all_gather_object(rows_of_ranks, own, group=group)
    joined = {identity: row for rows in rows_of_ranks for identity, row in rows.items()}
    assert len(joined) == sum(map(len, rows_of_ranks))
    return joined


def apart(rows: dict[int, torch.Tensor], expected: dict[int, torch.Tensor]) -> float:
    """The largest difference of an element, where both have the same ids."""
    assert rows.keys() == expected.keys(), (len(rows), len(expected))
    return max(float((rows[identity] - expected[identity]).abs().max()) for identity in rows)


def against_the_dictionary(
    chosen: TableSettings, steps: int = STEPS, **words: Any
) -> dict[str, Any]:
    """Compare each row of forward, and each row kept, with the dictionary's."""
    embedding = DynamicEmbedding(DIM, chosen, device=DEVICE, **words)
    oracle = Oracle(DIM, chosen, initial_of(chosen))
    divisor = dist.get_world_size() if words.get("average", True) else 1
    forward = 0.0
    for step in range(steps):
        expected, handle = oracle.lookup(batch(step))
        forward = max(
            forward, float((step_of(embedding, step).double() - share(expected)).abs().max())
        )
        oracle.apply(handle, gradient(step) / divisor)
    rows = all_of(values_of(embedding))
    assert all(
        owners(torch.tensor(list(values_of(embedding))), dist.get_world_size()) == dist.get_rank()
    )
    return {
        "forward": forward,
        "kept": apart(rows, {identity: state["rows"] for identity, state in oracle.kept.items()}),
        "rows": len(rows),
    }


sgd = scenario(against_the_dictionary, settings("sgd"))
adam = scenario(against_the_dictionary, settings("adam", weight_decay=0.01))
admitted_at_the_second_sight = scenario(against_the_dictionary, settings("sgd", admission=2))
summed = scenario(against_the_dictionary, settings("sgd"), average=False)
bf16 = scenario(against_the_dictionary, settings("sgd"), wire="bf16", steps=4)


class Model(nn.Module):
    """An embedding and a dense layer."""

    def __init__(self, embedding: DynamicEmbedding) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.dense = embedding, nn.Linear(DIM, 1)

    def forward(self, *bags: torch.Tensor) -> torch.Tensor:
        return self.dense(torch.tanh(20 * self.embedding(*bags))).squeeze(-1)


def trained(optimizer: str, pooling: str, **words: Any) -> dict[str, Any]:
    """Train under DistributedDataParallel, and on one rank with the whole batch."""
    chosen = settings(optimizer, **words)
    distributed, single = (
        Model(DynamicEmbedding(DIM, chosen, pooling=pooling, group=group, device=DEVICE)).to(DEVICE)
        for group in (None, alone())
    )
    wrapped = DistributedDataParallel(distributed)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (distributed, single)]
    losses = []
    for step in range(STEPS):
        ids = batch(step) if pooling == "none" else batch(step).view(-1, 3)
        labels = (ids.view(len(ids), -1)[:, 0] % 2).float().to(DEVICE)
        for model in (distributed, single):
            model.embedding.lr = 0.05 / (1 + step // 10)
        for model, part, target, sgd_optimizer in zip(
            (wrapped, single), (share(ids), ids), (share(labels), labels), optimizers, strict=True
        ):
            sgd_optimizer.zero_grad()
            bags = (
                (part,) if pooling != "sum" else (part.flatten(), torch.arange(0, part.numel(), 3))
            )
            loss = nn.functional.binary_cross_entropy_with_logits(model(*bags), target)
            loss.backward()
            sgd_optimizer.step()
        losses.append(float(loss.detach()))
    dense = max(
        float((parameter - expected).abs().max())
        for parameter, expected in zip(distributed.parameters(), single.parameters(), strict=True)
    )
    rows = apart(all_of(values_of(distributed.embedding)), values_of(single.embedding))
    return {
        "dense": dense,
        "rows": rows,
        "losses": losses,
        "parameters": len(list(distributed.embedding.parameters())),
    }


trained_adam = scenario(trained, "adam", "none")
trained_mean_of_bags = scenario(trained, "adam", "mean")
trained_sum_of_bags = scenario(trained, "sgd", "sum", admission=2)


@scenario
def not_finite() -> dict[str, Any]:
    """The last rank's gradient of one id is nan: every rank skips the step and continues."""
    embedding = DynamicEmbedding(DIM, settings(), device=DEVICE)
    step_of(embedding, 0)
    ids = share(batch(1))
    rows = embedding(ids)
    before, factor = rows_of(embedding), torch.ones(len(ids), 1, device=DEVICE)
    if dist.get_rank() == dist.get_world_size() - 1:
        factor[3] = float("nan")
    try:
        (rows * factor).sum().backward()
        output = ""
    except BusbwError as error:
        output = error.message
    changed = apart(before, rows_of(embedding))
    step_of(embedding, 2)
    return {
        "said": output,
        "id": int(batch(1).chunk(dist.get_world_size())[-1][3]),
        "changed": changed,
    }


@scenario
def without_data() -> int:
    """Ranks without ids take part; evaluation adds nothing."""
    embedding = DynamicEmbedding(DIM, settings(), device=DEVICE)
    ids = torch.arange(10) if dist.get_rank() == 0 else torch.zeros(0, dtype=torch.int64)
    assert embedding(ids).shape == (len(ids), DIM)
    embedding(ids).sum().backward()
    assert torch.equal(
        embedding.eval()(torch.arange(1000, 1010)), embedding(torch.arange(1000, 1010))
    )
    embedding.train()
    with torch.no_grad():
        embedding(torch.arange(2000, 2010))
    return len(all_of(rows_of(embedding)))


@scenario
def evicting() -> dict[str, Any]:
    """The rows least used by steps are evicted, and every id is counted."""
    embedding = DynamicEmbedding(
        DIM, TableSettings(capacity=12, eviction="lfu", optimizer="sgd"), device=DEVICE
    )
    often = torch.arange(8).repeat(2)  # the same on every rank
    for step in range(6):
        embedding(torch.cat([often, 1000 * (1 + step) + torch.arange(10)])).sum().backward()
    counts = embedding.table.counters
    rows = all_of(values_of(embedding))
    return {
        "often": all(identity in rows for identity in range(8)),
        "stored": counts.stored,
        "moved": counts.inserted - counts.evicted,
    }


@scenario
def differing() -> list[str]:
    """Ranks with other settings, and one that is not in the group."""
    group = dist.new_group([0])
    return [
        error_of(lambda: DynamicEmbedding(DIM + dist.get_rank(), settings(), device=DEVICE)),
        error_of(lambda: DynamicEmbedding(DIM, settings(), group=group, device=DEVICE)),
    ]


def error_of(action: Callable[[], Any]) -> str:
    """The message of the error that a call raises."""
    try:
        action()
    except BusbwError as error:
        return error.message
    return ""


@scenario
def resharded() -> dict[str, Any]:
    """Saved by some ranks and loaded by others, an embedding trains on as one that was never
    saved.
    """
    saving.PART_BYTES = 2000  # several parts
    folder, chosen, rank = Path(sys.argv[1]) / "saved", settings("adam"), dist.get_rank()
    order = [ranks for ranks in (2, 4, 1, 4, 2) if ranks <= dist.get_world_size()]
    groups = {ranks: dist.new_group(list(range(ranks))) for ranks in sorted(set(order))}
    reference = DynamicEmbedding(DIM, chosen, group=alone(), device=DEVICE)
    saved, loaded, continued, parts = {}, [], [], 0
    for number, ranks in enumerate(order):
        steps = range(4 * number, 4 * number + 4)
        for step in steps:
            step_of(reference, step, rank=0, ranks=1)
        if rank < ranks:
            embedding = DynamicEmbedding(
                DIM, chosen, group=groups[ranks], device=DEVICE, average=False
            )
            if number:
                embedding.load(folder)
                loaded_rows = all_of(rows_of(embedding), groups[ranks])
                loaded += [apart(saved, loaded_rows)] if saved else []
            for step in steps:
                step_of(embedding, step, rank=rank, ranks=ranks)
            embedding.save(folder)
            saved = all_of(rows_of(embedding), groups[ranks])
            continued.append(apart(saved, rows_of(reference)))
            parts = len(list(folder.rglob("*part*")))
        else:
            saved = {}
        dist.barrier()
    return {
        "loaded": loaded,
        "continued": continued,
        "rows": len(saved),
        "parts": parts,
        "saves": len(list(folder.glob("save-*"))),
    }


@scenario
def refused() -> dict[str, Any]:
    """A full disk on one rank keeps the previous checkpoint; a checkpoint that is incomplete or
    of another table is refused on every rank.
    """
    folder, rank = Path(sys.argv[1]) / "refused", dist.get_rank()
    embedding = DynamicEmbedding(DIM, settings(), device=DEVICE)
    step_of(embedding, 0)
    embedding.save(folder)
    before = rows_of(embedding)
    step_of(embedding, 1)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    if rank == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, limits[1]))
    output = {"full": error_of(lambda: embedding.save(folder))}
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    output["left"] = sorted(entry.name for entry in folder.iterdir())
    dist.barrier()
    if rank == 0:
        (folder / "save-000041").mkdir()  # of a job that was killed while it saved
    again = DynamicEmbedding(DIM, settings(), device=DEVICE)
    again.load(folder)
    again.save(folder)
    output["killed"] = sorted(entry.name for entry in folder.iterdir())
    output["same"] = apart(before, rows_of(again)) == 0
    output["twice"] = error_of(lambda: again.load(folder))
    output["optimizer"] = error_of(
        lambda: DynamicEmbedding(DIM, settings("sgd"), device=DEVICE).load(folder)
    )
    output["dim"] = error_of(
        lambda: DynamicEmbedding(DIM + 1, settings(), device=DEVICE).load(folder)
    )
    output["capacity"] = error_of(
        lambda: DynamicEmbedding(DIM, TableSettings(capacity=2), device=DEVICE).load(folder)
    )
    for name, damage in (
        ("cut", lambda path: path.write_bytes(path.read_bytes()[:-90])),
        ("missing", Path.unlink),
    ):
        dist.barrier()
        if rank == 0:
            damage(next(folder.glob("save-*/shard-00001-of-*")))
        dist.barrier()
        output[name] = error_of(
            lambda: DynamicEmbedding(DIM, settings(), device=DEVICE).load(folder)
        )
    output["absent"] = error_of(
        lambda: DynamicEmbedding(DIM, settings(), device=DEVICE).load(folder / "other")
    )
    return output


@scenario
def documented() -> dict[str, Any]:
    """The training of docs/how-to/large-embeddings.md."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    os.chdir(sys.argv[1])
    namespace: dict[str, Any] = {"print": lambda _: None}
    exec(code.replace("dist.init_process_group()", ""), namespace)
    return {
        "loss": float(namespace["loss"].detach()),
        "same": apart(rows_of(namespace["model"].rows), rows_of(namespace["again"])) == 0,
    }


def lost() -> dict[str, Any]:
    """A rank that skips its backward, and then a rank that exits."""
    heartbeat.BEAT_S, heartbeat.PATIENCE_S = 0.2, 0.8
    last = dist.get_rank() == dist.get_world_size() - 1
    embedding = DynamicEmbedding(DIM, settings(), device=DEVICE, timeout=timedelta(seconds=1))
    rows = embedding(share(batch(0)))
    before = rows_of(embedding)
    output = {"absent": "" if last else error_of(lambda: rows.sum().backward())}
    assert apart(before, rows_of(embedding)) == 0
    embedding = DynamicEmbedding(DIM, settings(), device=DEVICE)
    embedding(share(batch(0)))
    if last:
        os._exit(7)
    output["lost"] = error_of(lambda: embedding(share(batch(1))))
    print(json.dumps(output), flush=True)
    os._exit(0)  # no barrier can follow
