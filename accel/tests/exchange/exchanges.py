"""Scenarios of single exchanges, on every rank of a job."""

import dataclasses
import hashlib
import math
import os
from collections.abc import Callable
from functools import cache, partial
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist

from busbw_accel.codecs.base import SUM_RESIDUAL
from busbw_accel.comm_worker import CommWorker
from busbw_accel.mesh import make
from busbw_accel.methods import BY_NAME
from busbw_accel.settings import Settings

LENGTHS = (70_001, 3_000, 17)  # more than one block of positions, none a multiple of anything
NAMES = ("a", "b", "c")
# a matrix that is worth two factors, and as many elements otherwise
SHAPES = ((250, 4, 70), (3_000,), (6, 3))
STEPS = 6
ZEROS = 12  # a step of `room` whose gradient is 0
DEVICE = torch.device(os.environ.get("ACCEL_DEVICE", "cpu"))

WORKERS: list[CommWorker] = []


def scenario(function: Callable[..., Any], *arguments: Any, **words: Any) -> Callable[[], Any]:
    """A scenario, which every rank runs: a function, with these arguments."""
    marked = partial(function, *arguments, **words)
    marked.scenario = True
    return marked


def scenarios_of(module: ModuleType) -> list[str]:
    """The names of a module's scenarios."""
    return [name for name, value in vars(module).items() if getattr(value, "scenario", False)]


def flat_scenario(function: Callable[..., Any], *arguments: Any, **words: Any) -> Callable[[], Any]:
    """A scenario that would say the same over rows of ranks."""
    marked = scenario(function, *arguments, **words)
    marked.flat = True
    return marked


def gradient(step: int, rank: int | None = None, total: int = sum(LENGTHS)) -> torch.Tensor:
    """A rank's gradient, with heavy tails."""
    return _drawn(1000 * step + (dist.get_rank() if rank is None else rank), total).clone()


@cache  # most scenarios begin with the same steps
def _drawn(seed: int, total: int) -> torch.Tensor:
    return (
        torch.randn(total, generator=torch.Generator().manual_seed(seed), dtype=torch.float32) ** 3
    )


@cache
def average(step: int) -> torch.Tensor:
    """What all ranks should get, in fp64. Nobody changes it."""
    ranks = dist.get_world_size()
    return torch.stack([gradient(step, rank).double() for rank in range(ranks)]).sum(0) / ranks


def digest(tensor: torch.Tensor) -> str:
    """A hash of the tensor's bits."""
    return hashlib.sha256(tensor.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()


def two_d() -> bool:
    """Whether this job emulates several hosts."""
    return "ACCEL_2D" in os.environ


def settings(**words: Any) -> Settings:
    """Settings that compress every size, with pieces so small that there are several."""
    return Settings(
        compress_least=0,
        two_d=two_d() and not BY_NAME[words.get("method", "dense")].needs_matrices,
        chunk=1 << 17,
        **words,
    )


def worker_of(chosen: Settings) -> CommWorker:
    """Over all ranks; it stays till the process ends, as gloo may wait five seconds where ranks
    drop their ends at times of their own.
    """
    WORKERS.append(CommWorker(chosen, make(chosen)))
    return WORKERS[-1]


def exchanged(
    worker: CommWorker,
    flat: torch.Tensor,
    names: tuple[str, ...] = NAMES,
    lengths: tuple[int, ...] = LENGTHS,
) -> torch.Tensor:
    """The average of a gradient over the ranks, computed by the worker's thread."""
    has_matrices = BY_NAME[worker.settings.method].needs_matrices and names == NAMES
    shapes = SHAPES if has_matrices else [(length,) for length in lengths]
    return worker.average(flat.to(DEVICE), names, shapes).wait().cpu()


def exchange_once(**words: Any) -> dict[str, Any]:
    """One exchange: how far it is from the average, and its bits."""
    worker = worker_of(settings(**words))
    result, expected = exchanged(worker, gradient(0)), average(0)
    return {
        "error": float((result.double() - expected).norm() / expected.norm()),
        "largest": float((result.double() - expected).abs().max()),
        "digest": digest(result),
        "traffic": [worker.traffic.inside, worker.traffic.across],
        "two_d": worker.mesh.two_d,
    }


def residual_of(worker: CommWorker) -> torch.Tensor:
    """The residual of this rank over all parameters; in two dimensions, its share of the
    residual of its row.
    """
    worker.memory.take_apart()
    residuals = {
        index: tensor for index, name, tensor in worker.memory.single() if name == "residual"
    }
    lengths = (
        [math.prod(shape) for shape in SHAPES]
        if BY_NAME[worker.settings.method].needs_matrices
        else LENGTHS
    )
    return torch.cat(
        [
            residuals[name].cpu() if name in residuals else torch.zeros(length)
            for name, length in zip(NAMES, lengths, strict=True)
        ]
    )


def conserved(changing: bool = False, crosses: bool = False, **words: Any) -> dict[str, Any]:
    """Steps with feedback: nothing is lost.

    What came out of all of them and what is left are the sum of what went in. Where the exchange
    `crosses`, it goes from two dimensions to a flat one and back.
    """
    chosen = settings(**words)
    worker = worker_of(chosen)
    received = torch.zeros(sum(LENGTHS), dtype=torch.float64)
    expected = torch.zeros_like(received)
    for step in range(STEPS):
        worker.step = step
        if crosses and step % 2 == 0:
            worker.settings = dataclasses.replace(chosen, two_d=chosen.two_d and step % 4 == 0)
        flat = gradient(step)
        if changing and step % 3 == 2:  # other buckets from time to time
            first = LENGTHS[0]
            received[:first] += exchanged(
                worker, flat[:first].clone(), NAMES[:1], LENGTHS[:1]
            ).double()
            received[first:] += exchanged(
                worker, flat[first:].clone(), NAMES[1:], LENGTHS[1:]
            ).double()
        else:
            received += exchanged(worker, flat).double()
        expected += average(step)
    unsent = residual_of(worker).double()
    dist.all_reduce(unsent)
    missing = (expected - received - unsent).norm() / expected.norm()
    return {
        "missing": float(missing),
        "unsent": float(unsent.norm() / expected.norm()),
        "digest": digest(received),
    }


dense = scenario(exchange_once)
dense_bf16 = scenario(exchange_once, wire="bf16")
exact = scenario(exchange_once, method="exact")
int8 = scenario(exchange_once, method="int8")
int4 = scenario(exchange_once, method="int4")
topk = scenario(exchange_once, method="topk", ratio=0.05)
topk_half = scenario(exchange_once, method="topk", ratio=0.05, values="fp16")
int8_conserves = flat_scenario(conserved, method="int8")
int4_conserves = scenario(conserved, method="int4")
topk_conserves = flat_scenario(conserved, method="topk", ratio=0.02)
topk_half_conserves = scenario(
    conserved, method="topk", ratio=0.02, values="fp16", warmup_steps=STEPS // 2
)
topk_conserves_over_other_buckets = scenario(conserved, method="topk", ratio=0.02, changing=True)
int8_conserves_over_other_buckets = scenario(conserved, method="int8", changing=True)
crossing = scenario(conserved, method="topk", ratio=0.02, crosses=True)
topk_without_feedback = flat_scenario(conserved, method="topk", ratio=0.02, feedback=False)
powersgd_conserves = flat_scenario(conserved, method="powersgd", matrix_rank=3)
powersgd_rough_conserves = flat_scenario(
    conserved, method="powersgd", matrix_rank=3, factors="bf16"
)


@scenario
def topk_all() -> dict[str, Any]:
    reduced = gradient(0).div_(dist.get_world_size())
    dist.all_reduce(reduced)
    return exchange_once(method="topk", ratio=1.0) | {"plain": digest(reduced)}


def _low_rank(factors: str) -> dict[str, Any]:
    """A matrix whose rank is below the one sent, and tensors that are no matrices, arrive
    exactly in one step; a step of zeros between them changes nothing.
    """
    columns, errors = 2 * dist.get_world_size() + 2, []
    worker = worker_of(settings(method="powersgd", matrix_rank=columns, factors=factors))
    for step in range(3):
        gradients = [_of_rank_two(step, rank) for rank in range(dist.get_world_size())]
        expected = torch.stack(gradients).double().mean(0)
        own_gradient = gradients[dist.get_rank()]
        if step == 1:
            expected, own_gradient = torch.zeros_like(expected), torch.zeros_like(own_gradient)
        result = exchanged(worker, own_gradient)
        errors.append(float((result.double() - expected).norm() / torch.stack(gradients).norm()))
    return {
        "errors": errors,
        "digest": digest(result),
        "traffic": [worker.traffic.inside, worker.traffic.across],
    }


def _of_rank_two(step: int, rank: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(77 * step + rank)
    rows, columns = SHAPES[0][0], math.prod(SHAPES[0][1:])
    matrix = torch.randn(rows, 2, generator=generator) @ torch.randn(
        2, columns, generator=generator
    )
    return torch.cat(
        [matrix.flatten(), torch.randn(sum(LENGTHS) - matrix.numel(), generator=generator)]
    )


powersgd = scenario(_low_rank, "fp32")
powersgd_rough = scenario(_low_rank, "bf16")


@flat_scenario
def powersgd_without_a_matrix() -> dict[str, Any]:
    """Nothing is compressed."""
    worker = worker_of(settings(method="powersgd"))
    result = exchanged(worker, gradient(0)[:3_017], NAMES[1:], LENGTHS[1:])
    expected = average(0)[:3_017]
    return {
        "error": float((result.double() - expected).norm() / expected.norm()),
        "digest": digest(result),
    }


@flat_scenario
def powersgd_warms_up() -> dict[str, Any]:
    """The first steps are dense."""
    worker, errors = worker_of(settings(method="powersgd", warmup_steps=2)), []
    for step in range(3):
        worker.step = step
        errors.append(
            float(
                (exchanged(worker, gradient(step)).double() - average(step)).norm()
                / average(step).norm()
            )
        )
    return {"errors": errors}


@scenario
def room() -> dict[str, Any]:
    """How much of its room top-k uses, step by step, while gradients grow and shrink by far."""
    worker, sent = worker_of(settings(method="topk", ratio=0.01, feedback=False)), []
    for step in range(15):
        flat = gradient(step) * {5: 1e-6, 9: 1e6, ZEROS: 0.0}.get(step, 1.0)
        result = exchanged(worker, flat)
        sent.append(int(torch.count_nonzero(result)))
    return {"sent": sent, "room": -(-sum(LENGTHS) // 100)}


@scenario
def momentum() -> dict[str, Any]:
    """With momentum correction and everything sent, the output is the gradient: the velocity
    starts anew where it was sent.
    """
    worker = worker_of(settings(method="topk", ratio=1.0, momentum=0.9, dense_below_2d=False))
    errors = [
        float((exchanged(worker, gradient(step)).double() - average(step)).abs().max())
        for step in range(4)
    ]
    worker = worker_of(settings(method="topk", ratio=0.05, momentum=0.9, dense_below_2d=False))
    digests = [digest(exchanged(worker, gradient(step))) for step in range(4)]
    return {"errors": errors, "digest": digests[-1]}


@scenario
def not_finite() -> dict[str, Any]:
    """A nan or inf in one rank's gradient reaches all ranks, and is gone in the next step."""
    finite = {}
    for method in [name for name in BY_NAME if name != "dense"]:
        worker = worker_of(settings(method=method))
        for value in (float("nan"), float("-inf")):
            flat = gradient(0)
            if dist.get_rank() == 0:
                flat[12_345] = value
            result = exchanged(worker, flat)
            after = exchanged(worker, gradient(1))
            finite[f"{method} {value}"] = [
                bool(torch.isfinite(result).all()),
                bool(torch.isfinite(after).all()),
            ]
    return finite


@scenario
def large_values() -> dict[str, Any]:
    """Values beyond the range of fp16."""
    worker = worker_of(settings(method="topk", ratio=1.0, values="fp16"))
    result, expected = exchanged(worker, gradient(0) * 1e6), average(0) * 1e6
    return {
        "error": float((result.double() - expected).norm() / expected.norm()),
        "finite": bool(torch.isfinite(result).all()),
    }


@scenario
def other_default_types() -> dict[str, list[float]]:
    """What goes over the wire does not depend on the program's default type."""
    norms: dict[str, list[float]] = {"topk": [], "powersgd": [], "int8": []}
    for method, method_norms in norms.items():
        for kind in (torch.float64, torch.bfloat16, torch.float32):
            torch.set_default_dtype(kind)
            worker = worker_of(settings(method=method, ratio=0.05, values="fp16"))
            for step in range(2):
                result = exchanged(worker, gradient(step).float())
            method_norms.append(float(result.norm()))
            residual_of(worker)
    return norms


@scenario
def half_overflows() -> dict[str, bool]:
    """What is kept makes a sum that fp16 cannot have: the step does not count, so it stays kept."""
    worker = worker_of(settings(method="topk", ratio=0.02))
    exchanged(worker, torch.full((sum(LENGTHS),), 3e4, dtype=torch.float16))
    before = residual_of(worker)
    result = exchanged(worker, torch.full((sum(LENGTHS),), 6e4, dtype=torch.float16))
    return {
        "finite": bool(torch.isfinite(result).all()),
        "same": torch.equal(residual_of(worker), before),
        "kept": bool(before.any()),
    }


@scenario
def half_gradients() -> dict[str, Any]:
    """Gradients in bf16: residuals in fp32, averages in bf16."""
    worker = worker_of(settings(method="topk", ratio=0.02))
    for step in range(3):
        result = exchanged(worker, gradient(step).bfloat16())
    return {
        "dtype": str(result.dtype),
        "kept": str(residual_of(worker).dtype),
        "digest": digest(result),
    }


@scenario
def doubles() -> float:
    """Gradients in fp64 lose nothing: they are sent dense."""
    worker = worker_of(settings(method="topk", ratio=0.02))
    flat = gradient(0).double() + 1e-12
    result = exchanged(worker, flat)
    return float((result - average(0) - 1e-12).abs().max() / average(0).abs().max())


@flat_scenario  # a row's own sum is in the gradient's format, as DDP's is
def smallest_halves() -> dict[str, int]:
    """The smallest values of fp16 are not lost by the division before their sum."""
    counts = {}
    for method in ("topk", "int8", "int4"):
        worker = worker_of(settings(method=method, ratio=1.0))
        flat = torch.full((sum(LENGTHS),), 6e-8, dtype=torch.float16)
        counts[method] = int(torch.count_nonzero(exchanged(worker, flat)))
    return counts


@scenario
def sums_are_kept() -> bool:
    """int8 keeps both roundings; between two ranks there is one."""
    worker = worker_of(settings(method="int8"))
    exchanged(worker, gradient(0))
    return all(
        (SUM_RESIDUAL in state) == (kept.across.size > 2)
        for kept in worker.memory.lists()
        for state in kept.states
    )
