"""Scenarios of sparse gradients, on every rank of a job."""

import contextlib
import io
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
from exchanges import DEVICE, digest, two_d, worker_of
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

import busbw_accel
from busbw.core.errors import UsageError
from busbw_accel import communicator, sparse

ROWS, STEPS = 200, 5
# The share of the rows that each rank draws, with repeats. Over two hosts of two ranks, each way is
# the least for one of them.
SHARES = {"few": 0.1, "half": 0.5, "most": 4.0}


def own_gradient(
    share: float,
    shape: tuple[int, ...] = (ROWS, 8),
    dtype: torch.dtype = torch.float32,
    rank: int = -1,
) -> torch.Tensor:
    """The gradient of a rank, by default of this one. Some rows are zero on all ranks."""
    rank = dist.get_rank() if rank < 0 else rank
    generator = torch.Generator().manual_seed(rank)
    ids = torch.randint(shape[0], (1, int(share * shape[0])), generator=generator)
    values = torch.randn(ids.shape[1], *shape[1:], generator=generator).to(dtype)
    values[ids[0] % 7 == 0] = 0
    return torch.sparse_coo_tensor(ids, values, shape, check_invariants=True)


@cache
def worker(wire: str = "same") -> busbw_accel.CommWorker:
    return worker_of(busbw_accel.Settings(wire=wire))


def report(own: torch.Tensor, wire: str = "same") -> dict[str, Any]:
    """What an exchange of this rank's gradient gives, compared with the average in fp64."""
    before = worker(wire).traffic.across
    result = worker(wire).average_sparse(own.to(DEVICE)).wait().cpu()
    return compared(own, result) | {"across": worker(wire).traffic.across - before}


def compared(own: torch.Tensor, result: torch.Tensor) -> dict[str, Any]:
    pickles: list[Any] = [None] * dist.get_world_size()
    written = io.BytesIO()
    torch.save((own._indices(), own._values()), written)
    dist.all_gather_object(pickles, written.getvalue())
    parts = [torch.load(io.BytesIO(pickled)) for pickled in pickles]
    total = sum(
        torch.sparse_coo_tensor(ids, values.double(), own.shape, check_invariants=True).to_dense()
        for ids, values in parts
    )
    expected = total / len(pickles)
    union = torch.cat([ids[0] for ids, _ in parts]).unique()
    finite = torch.isfinite(expected)
    dense = result.to_dense().double()
    scale = float(expected[finite].abs().max()) if expected.numel() and finite.any() else 0.0
    return {
        "rows": result.is_coalesced() and torch.equal(result.indices()[0], union),
        "same": (
            (result.shape, result.dtype) == (own.shape, own.dtype)
            and torch.equal(torch.isfinite(dense), finite)
        ),
        "error": (
            float((dense - expected)[finite].abs().max()) / scale
            if scale
            else float(dense[finite].abs().sum())
        ),
        "owned": torch.bincount(union % len(pickles)).tolist(),
        "digest": digest(result.indices().double()) + digest(result.values().double()),
    }


def ways() -> dict[str, Any]:
    """Each way, in the settings' formats. A way is what all ranks compute from their counts."""
    reports, ranks = {}, dist.get_world_size()
    for name, share in SHARES.items():
        counts = [
            len(own_gradient(share, rank=rank)._indices()[0].unique()) for rank in range(ranks)
        ]
        way = sparse.fewest_bytes(counts, ROWS, 36, 36, 2 if two_d() else ranks)
        sent = int((own_gradient(share)._indices()[0].unique() % ranks != dist.get_rank()).sum())
        reports[name] = report(own_gradient(share)) | {"way": way, "counts": counts, "sent": sent}
        reports[f"{name} over bf16"] = report(own_gradient(share), wire="bf16")
    piece, communicator.PIECE = communicator.PIECE, 1 << 12
    reports["in pieces"] = report(own_gradient(0.5, (3_000, 8)))
    communicator.PIECE = piece
    return reports


def gradients() -> dict[str, Any]:
    """Kinds of gradients, each with few and with most rows."""
    reports, rank = {}, dist.get_rank()
    for name, share in SHARES.items():
        for dtype in (torch.bfloat16, torch.float16, torch.float64):
            reports[f"{name} {dtype}"] = report(own_gradient(share, dtype=dtype))
        reports[f"{name} vector"] = report(own_gradient(share, (ROWS,)))
        reports[f"{name} cubes"] = report(own_gradient(share, (ROWS, 2, 3)))
        reports[f"{name} on one rank"] = report(own_gradient(share if rank == 1 else 0.0))
        invalid = own_gradient(share)
        invalid._values()[-1] = torch.nan if rank == 1 else torch.inf if rank == 0 else 1.0
        reports[f"{name} not finite"] = report(invalid)
    reports["no rows"] = report(own_gradient(0.0))
    return reports


def sums_of_halves() -> bool:
    """One term is large and some are small, so that a sum in bf16 would lose the small ones."""
    ids, term = torch.arange(ROWS)[None], (256.0, 1.0, 1.0, 0.0)
    own = torch.sparse_coo_tensor(
        ids,
        torch.full((ROWS, 8), term[dist.get_rank()], dtype=torch.bfloat16),
        check_invariants=True,
    )
    average = torch.tensor(
        sum(term[: dist.get_world_size()]) / dist.get_world_size(), dtype=torch.bfloat16
    )
    return bool((worker().average_sparse(own.to(DEVICE)).wait().cpu().to_dense() == average).all())


def refused() -> list[str]:
    """Gradients that cannot be exchanged as rows."""
    errors = []
    for tensor in (torch.eye(3).to_sparse(), torch.ones(3, 2, dtype=torch.int32).to_sparse(1)):
        try:
            worker_of(busbw_accel.Settings()).average_sparse(tensor.to(DEVICE)).wait()
        except (UsageError, RuntimeError) as error:
            errors.append(str(error))
    return errors


def alone() -> float:
    """Without a network, each rank gets its own gradient back."""
    own = own_gradient(0.5)
    with worker().silent():
        result = worker().average_sparse(own.to(DEVICE)).wait().cpu()
    return float((result.to_dense() - own.to_dense()).abs().max())


class Net(nn.Module):
    """Two tables, one of them in bags, and dense layers."""

    def __init__(self, *, sparse: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words = nn.Embedding(ROWS, 8, sparse=sparse)
        self.bags = nn.EmbeddingBag(50, 8, sparse=sparse, mode="sum")
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 3))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.layers(torch.cat([self.words(ids).sum(1), self.bags(ids % 50)], 1))


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """This rank's own; half of the ids are in every rank's, and rank 1 has no samples in step 2."""
    generator = torch.Generator().manual_seed(100 * step + dist.get_rank())
    ids = torch.cat(
        [
            torch.randint(10, (16, 4), generator=generator),
            torch.randint(ROWS, (16, 4), generator=generator),
        ],
        1,
    )
    ids = ids[:0] if (step, dist.get_rank()) == (2, 1) else ids
    return ids.to(DEVICE), (ids.sum(1) % 3).to(DEVICE)


def trained(
    settings: busbw_accel.Settings | None,
    *,
    sparse: bool = True,
    adam: bool = False,
    halves: int = 1,
    uneven: bool = False,
    **words: Any,
) -> tuple[torch.Tensor, Any]:
    """All parameters after some steps, and the attached exchange.

    Without `settings`: DDP's own exchange.
    """
    net = DistributedDataParallel(Net(sparse=sparse).to(DEVICE), bucket_cap_mb=0.001, **words)
    attached = busbw_accel.attach(net, settings) if settings else None
    tables = [net.module.words.weight, net.module.bags.weight]
    layers = torch.optim.SGD(net.module.layers.parameters(), lr=0.1)
    optimizers = [
        layers,
        torch.optim.SparseAdam(tables, lr=0.01) if adam else torch.optim.SGD(tables, lr=0.1),
    ]
    with Join([net], enable=uneven):
        for step in range(STEPS + uneven * dist.get_rank()):
            for optimizer in optimizers:
                optimizer.zero_grad()
            for half in range(halves):
                ids, labels = batch(halves * step + half)
                with net.no_sync() if half + 1 < halves else contextlib.nullcontext():
                    nn.functional.cross_entropy(net(ids), labels, reduction="sum").mul(
                        1 / 16
                    ).backward()
            for optimizer in optimizers:
                optimizer.step()
    return (
        torch.cat([parameter.detach().flatten() for parameter in net.parameters()]).cpu(),
        attached,
    )


def trainings() -> dict[str, Any]:
    """Trainings by attach with sparse gradients, compared with DDP's own: of dense gradients
    where the optimizer takes them.
    """
    dense, plain = trained(None, sparse=False)[0], busbw_accel.Settings()
    results = {"sgd": (trained(plain)[0], dense)}
    if two_d():
        results["2D"] = (trained(busbw_accel.Settings(two_d=True))[0], dense)
        return {"apart": _apart(results)}
    results["bucket views"] = (trained(plain, gradient_as_bucket_view=True)[0], dense)
    results["static graph"] = (trained(plain, static_graph=True)[0], dense)
    results["accumulated"] = (trained(plain, halves=2)[0], trained(None, sparse=False, halves=2)[0])
    results["uneven inputs"] = (
        trained(plain, uneven=True)[0],
        trained(None, sparse=False, uneven=True)[0],
    )
    by_int8, attached = trained(
        busbw_accel.Settings(method="int8", compress_least=0, dense_below_2d=False)
    )
    results["int8"] = (by_int8, dense)
    # DDP's own exchange of sparse gradients, which the reference needs, is Gloo's alone
    if DEVICE.type == "cpu":
        results["sparse adam"] = (trained(plain, adam=True)[0], trained(None, adam=True)[0])
    state_names = sorted(attached.state_dict()["kept"]) if attached else []
    return {"apart": _apart(results), "kept": state_names}


def _apart(results: dict[str, tuple[torch.Tensor, torch.Tensor]]) -> dict[str, list[Any]]:
    """The bits of each result, and how far it is from what is expected."""
    return {
        name: [digest(weights), float((weights - expected).abs().max())]
        for name, (weights, expected) in results.items()
    }
