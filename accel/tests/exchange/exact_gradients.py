"""Scenarios of coded gradients, whose averages are compared with those of plain ones bit for bit,
on every rank of a job.
"""

import json
import os
from collections.abc import Callable
from random import Random
from typing import Any

import torch
import torch.distributed as dist
from exchanges import DEVICE, digest, settings, worker_of
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import busbw_accel
from busbw_accel import staging
from busbw_accel.codecs import coder, exact

LENGTH = 10_007
FORMATS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
SPECIAL = [0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1e-40, -6e-8, 1.0, -1.0]
CONTENTS = ("gradient", "narrow", "special", "noise", "zeros")
MIXED = 60
STEPS = 500
MORE_RANKS = 5  # times fewer steps: each step is an exchange with each rank
LOST = 2  # the exchange in which a rank goes


def row(kind: str, name: str, rank: int) -> torch.Tensor:
    """A rank's gradient: like those of a training, special values, random bits, or zeros."""
    generator = torch.Generator().manual_seed(rank)
    if name == "noise":
        size = FORMATS[kind].itemsize
        noise = torch.randint(256, (LENGTH * size,), generator=generator, dtype=torch.uint8)
        return noise.view(FORMATS[kind])
    values = torch.randn(LENGTH, generator=generator) ** 3 * 1e-4
    if name == "special":
        payloads = torch.tensor([0x7FC1_2345, -0x3E_0001], dtype=torch.int32).view(torch.float32)
        some = torch.cat([torch.tensor(SPECIAL), payloads])
        values = some[torch.randint(len(some), (LENGTH,), generator=generator)]
    if name == "narrow":
        values = values.bfloat16()
    if name == "zeros":
        values = torch.zeros(LENGTH)
    return values.to(FORMATS[kind])


def average(kind: str, name: str) -> torch.Tensor:
    """The average of the rows of all ranks."""
    return average_of([row(kind, name, rank) for rank in range(dist.get_world_size())])


def average_of(rows: list[torch.Tensor]) -> torch.Tensor:
    """The average in fp32 in the order of ranks, in the gradient's format.

    A GPU, which computes it if ranks use one, divides by 3 as it multiplies by 1/3.
    """
    total = rows[0].to(DEVICE).float() / len(rows)
    for each in rows[1:]:
        total = total + each.to(DEVICE).float() / len(rows)
    return total.to(rows[0].dtype).cpu()


def halves() -> dict[str, Any]:
    """A reduce-scatter and an all-gather: are the bits right, and how many bytes were sent, coded
    and uncoded.
    """
    comm, coded_share = worker_of(settings(method="exact")).mesh.world, coder.MOST_SHARE
    codec, reports = exact.Exact(settings(method="exact")), {}
    length = LENGTH // comm.size  # rows begin anywhere
    for kind in FORMATS:
        for name in CONTENTS[:4]:
            rows = row(kind, name, comm.rank)[: comm.size * length].view(comm.size, length)
            expected = average(kind, name)[comm.rank * length :][:length]
            own = row(kind, name, comm.rank)[:length]
            every = torch.cat([row(kind, name, rank)[:length] for rank in range(comm.size)])
            report: dict[str, Any] = {"right": True, "kept": True}
            for coded in ("coded", "plain"):
                coder.MOST_SHARE = coded_share if coded == "coded" else 0.0
                shard, gathered = (torch.empty_like(each).to(DEVICE) for each in (own, every))
                summed = codec.reduce_scatter(rows.to(DEVICE), shard, comm, {}, 0)
                sent = codec.all_gather(own.to(DEVICE), gathered, comm)
                report["right"] &= _alike(shard.cpu(), expected)
                report["kept"] &= torch.equal(words(gathered), words(every))
                report[coded] = [int(summed), int(sent)]
            coder.MOST_SHARE = coded_share
            reports[f"{kind} {name}"] = report
    return reports


def _alike(some: torch.Tensor, others: torch.Tensor) -> bool:
    """Whether all bits are equal, but for those of a NaN: they depend on whether a loop is
    vectorized there.
    """
    return bool(((words(some) == words(others)) | (some.isnan() & others.isnan())).all())


def words(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.cpu().view(torch.int16 if tensor.element_size() == 2 else torch.int32)


def averages() -> dict[str, Any]:
    """Averages, coded and uncoded; whether rows were coded, and the bytes that were sent."""
    reports, coded_share = {}, coder.MOST_SHARE
    for kind in FORMATS:
        for name in CONTENTS[:4]:
            report: dict[str, Any] = {}
            results = []
            for coded in (True, False):
                coder.MOST_SHARE = coded_share if coded else 0.0
                worker = worker_of(settings(method="exact"))
                flat = row(kind, name, dist.get_rank()).to(DEVICE)
                results.append(worker.average(flat, ["a"], [(LENGTH,)]).wait())
                report["coded" if coded else "plain"] = worker.traffic.across
            coder.MOST_SHARE = coded_share
            report["right"] = _alike(results[0].cpu(), average(kind, name))
            report["same"] = torch.equal(words(results[0]), words(results[1]))
            report["digest"] = digest(results[0].cpu().view(torch.uint8))
            reports[f"{kind} {name}"] = report
    return reports


def mixed() -> dict[str, Any]:
    """Gradients of any length, whose content differs from rank to rank, over the backend and in
    small chunks over host staging: how many averages are wrong, and the bytes that were sent.
    """
    staging.MIN_CHUNK_BYTES, staging.MAX_CHUNK_BYTES = 1 << 6, 1 << 12
    reports = {}
    for name in ("backend", "host"):
        worker, drawn = worker_of(settings(method="exact", staging=name)), Random(7)
        wrong = []
        for _ in range(MIXED):
            kind, length = drawn.choice(list(FORMATS)), drawn.randint(1, LENGTH)
            names = drawn.choices(CONTENTS, k=dist.get_world_size())
            rows = [row(kind, name, rank)[:length] for rank, name in enumerate(names)]
            flat = rows[dist.get_rank()].to(DEVICE, copy=True)
            result = worker.average(flat, ["a"], [(length,)]).wait().cpu()
            if not _alike(result, average_of(rows)):
                wrong.append((kind, length, names))
        reports[name] = {"wrong": wrong, "sent": worker.traffic.across}
    return reports


def _trained(**words: Any) -> tuple[str, int]:
    """The weights after many steps of a small model in bf16 autocast, and the bytes sent."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(20, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 3)
    )
    replicas = DistributedDataParallel(net.to(DEVICE), bucket_cap_mb=0.01)
    attached = None
    if words:
        attached = busbw_accel.attach(replicas, busbw_accel.Settings(compress_least=0, **words))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(STEPS if dist.get_world_size() == 2 else STEPS // MORE_RANKS):
        inputs = torch.randn(16, 20, generator=generator).to(DEVICE)
        optimizer.zero_grad()
        with torch.autocast(DEVICE.type, torch.bfloat16):
            loss = nn.functional.cross_entropy(replicas(inputs), inputs[:, :3].argmax(1))
        loss.backward()
        optimizer.step()
    sent = attached.traffic.across if attached else 0
    return digest(torch.cat([weight.detach().flatten() for weight in net.parameters()]).cpu()), sent


def trainings() -> dict[str, Any]:
    """The same training with coded gradients, with the same exchange uncoded, and with DDP's own."""
    coded, share = _trained(method="exact"), coder.MOST_SHARE
    coder.MOST_SHARE = 0.0
    plain = _trained(method="exact")
    coder.MOST_SHARE = share
    return {"coded": coded, "plain": plain, "ddp": _trained()}


def damaged() -> str:
    """Bytes that are no coded row end the training with an error on the rank that gets them."""
    return _damaged("backend", lambda message: message[coder.PROLOGUE :].fill_(255))


def too_short() -> str:
    """So does a message that ends before its row does."""
    return _damaged("host", lambda message: message.view(torch.int64)[:1].fill_(coder.PROLOGUE))


def _damaged(where: str, damage: Callable[[torch.Tensor], object]) -> str:
    worker = worker_of(settings(method="exact", staging=where))
    write = coder.write

    def damaged_write(row: torch.Tensor, message: torch.Tensor) -> None:
        write(row, message)
        damage(message)

    coder.write = damaged_write
    try:
        worker.average(row("bf16", "gradient", 0).to(DEVICE), ["a"], [(LENGTH,)]).wait()
        if DEVICE.type == "cuda":
            torch.cuda.synchronize()
        worker.check()
    except RuntimeError as error:
        return str(error)
    finally:
        coder.write = write
    return ""


def lost() -> str:
    """The last rank ends without a word, after some exchanges."""
    worker = worker_of(settings(method="exact"))
    for step in range(2 * LOST):
        if step == LOST and dist.get_rank() == dist.get_world_size() - 1:
            os._exit(7)
        try:
            worker.average(row("bf16", "gradient", 0).to(DEVICE), ["a"], [(LENGTH,)]).wait()
        except RuntimeError as error:
            print(json.dumps({"lost": str(error)}), flush=True)
            os._exit(0)  # no barrier can follow
    return ""
