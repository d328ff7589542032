"""Scenarios of exchanges through the host's memory, on every rank of a job."""

import contextlib
import gc
import itertools
import json
import os
import time
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from exchanges import DEVICE, WORKERS, average, digest, exchanged, gradient, settings, worker_of
from trainings import FEW, model, parameters, step_of, wrapped

import busbw_accel
from busbw.core.errors import UsageError
from busbw_accel import staging, worker_streams
from busbw_accel.comm_worker import CommWorker
from busbw_accel.methods import CODECS

METHODS = tuple(codec.name for codec in CODECS if codec.staged)
LOST, GOES_S = 3, 0.5  # the exchange in which a rank goes, the others being under way


def same_bits() -> dict[str, Any]:
    """Three steps of each method with and without host staging, in several chunks, between
    buckets of other lengths.
    """
    staging.MIN_CHUNK_BYTES, staging.MAX_CHUNK_BYTES = 1 << 10, 1 << 12
    reports = {}
    for method in METHODS:
        workers = [
            worker_of(settings(method=method, ratio=0.3, staging=name))
            for name in ("backend", "host")
        ]
        digests = []
        for worker in workers:
            averages = [exchanged(worker, gradient(step)) for step in range(3)]
            averages += [exchanged(worker, gradient(step)[:17], ("d",), (17,)) for step in range(2)]
            digests.append([digest(tensor) for tensor in averages])
        error = float((averages[0].double() - average(0)).norm() / average(0).norm())
        reports[method] = {"backend": digests[0], "host": digests[1], "error": error}
        sent = [[worker.traffic.inside, worker.traffic.across] for worker in workers]
        reports[method] |= {"backend sent": sent[0], "host sent": sent[1]}
    return reports


def streams() -> dict[str, dict[str, list[str]]]:
    """The averages of several buckets per step, with their exchanges on one stream and on several,
    by each method with and without host staging.
    """
    lengths = [each << 9 for each in (7001, 300, 5003, 4001)]
    gradients = [
        [gradient(step * len(lengths) + at, total=length) for at, length in enumerate(lengths)]
        for step in range(4)
    ]
    digests: dict[str, dict[str, list[str]]] = {}
    for method, name in itertools.product(METHODS, ("backend", "host")):
        by_lanes = digests[f"{method} {name}"] = {}
        for lanes in (1, worker_streams.LANES):
            with mock.patch.object(worker_streams, "LANES", lanes):
                worker = worker_of(settings(method=method, ratio=0.3, staging=name))
                by_lanes[str(lanes)] = _averages_at_once(worker, gradients)
                worker.close()
    return digests


def _averages_at_once(worker: CommWorker, gradients: list[list[torch.Tensor]]) -> list[str]:
    """The digests of all averages. Nobody waits for a bucket before the end of its step."""
    averages = []
    for buckets in gradients:
        flats = [bucket.to(DEVICE, copy=True) for bucket in buckets]
        futures = [
            worker.run(flat, partial(worker.exchange, flat, [f"b{at}"], [flat.shape]), at)
            for at, flat in enumerate(flats)
        ]
        averages += [digest(future.wait().cpu()) for future in futures]
    return averages


def local_steps() -> dict[str, str]:
    """The parameters after exchanges of changes, with and without host staging."""
    digests = {}
    for name in ("backend", "host"):
        net = wrapped(model())
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
        chosen = settings(method="int8", staging=name, every=4, fragments=2, delay=1)
        attached = busbw_accel.attach(net, chosen, optimizer=optimizer)
        for number in range(9):
            step_of(net, optimizer, number)
        attached.exchange_now()
        digests[name] = parameters(net)
        attached.close()
    return digests


def again() -> bool:
    """A worker that is closed leaves no thread, and another can be made."""
    WORKERS.clear()
    if not _threads_end():  # those of the checks before
        return False
    for _ in range(3):
        worker = worker_of(settings(method="int8", staging="host"))
        exchanged(worker, gradient(0))
        during = _threads()
        worker.close()
    dist.barrier()
    WORKERS.clear()
    return during > 0 and _threads_end()


def _threads_end() -> bool:
    """Whether all threads of exchanges end: the kernel lists one for a moment after it was
    joined.
    """
    end = time.monotonic() + 10
    while _threads() and time.monotonic() < end:
        gc.collect()  # a worker's own thread may have held it till now
        time.sleep(0.01)
    return not _threads()


def _threads() -> int:
    """The number of threads of exchanges."""
    count = 0
    for task in Path("/proc/self/task").glob("*/comm"):
        with contextlib.suppress(OSError):  # another thread may end meanwhile
            count += task.read_text().startswith("busbw-exchange")
    return count


def closed() -> str:
    """An exchange after close(), also one that bypasses the worker's check."""
    worker = worker_of(settings(method="int8", staging="host"))
    exchanged(worker, gradient(0))
    staging = (worker.mesh.across or worker.mesh.world).staging
    worker.close()
    output = []
    for call in (lambda: worker.exchange(gradient(0), ("a",), ((1,),)), lambda: staging.check()):
        try:
            call()
        except (UsageError, RuntimeError) as error:
            output.append(str(error))
    return "; ".join(output)


def dropped() -> bool:
    """A worker that nobody has closed leaves no thread either, once it is gone."""
    WORKERS.clear()
    if not _threads_end():
        return False
    exchanged(worker_of(settings(method="int8", staging="host")), gradient(0))
    during = _threads()
    WORKERS.clear()
    return during > 0 and _threads_end()


def refused() -> str:
    """One rank has no library."""
    if dist.get_rank() == 1:
        os.environ["BUSBW_PLUGIN"] = "/none.so"
    try:
        busbw_accel.attach(wrapped(model()), settings(method="int8", staging="host"))
    except UsageError as error:
        return error.message
    return ""


def lost() -> str:
    """The last rank goes away in the middle; the others say who.

    On a GPU, where nobody waits, what was under way is not a number first.
    """
    worker, finite, begun = worker_of(settings(method="int8", staging="host")), [], time.monotonic()
    for number in range(FEW):
        if number == LOST and dist.get_rank() == dist.get_world_size() - 1:
            time.sleep(GOES_S)
            os._exit(7)
        try:
            finite.append(bool(torch.isfinite(exchanged(worker, gradient(number))).all()))
        except RuntimeError as error:
            after_s = time.monotonic() - begun
            worker.close()  # which has nothing to say that was not said
            print(
                json.dumps(
                    {"lost": str(error).splitlines()[0], "finite": finite, "after_s": after_s}
                ),
                flush=True,
            )
            os._exit(0)
    return "nothing happened"
