"""Scenarios of local steps that are refused, or fail, on every rank of a job."""

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from local_models import EVERY, attached_to, flat, sgd, start
from sharded_models import attached, sharded
from torch import nn
from torch.distributed import DeviceMesh
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from trainings import model, settings, step_of, wrapped

import busbw_accel
from busbw.core.errors import BusbwError
from busbw_accel import heartbeat

LIMIT = timedelta(seconds=2)  # of an exchange


def error_of(act: Callable[[], object]) -> str:
    try:
        act()
    except BusbwError as error:
        return error.render()
    return "nothing happened"


def refused() -> dict[str, str]:
    """What attach and the first steps say of optimizers whose steps are not those of each rank."""
    net = wrapped(model())
    few, rest = (torch.optim.SGD(part, lr=0.1) for part in _halves(net))

    class Wrapper:
        def __init__(self) -> None:
            self.param_groups = few.param_groups

    said = {}
    for name, optimizer in {
        "two optimizers": [few, rest],
        "wrapper": Wrapper(),
        "zero": ZeroRedundancyOptimizer(net.parameters(), torch.optim.SGD, lr=0.1),
    }.items():
        said[name] = error_of(
            lambda optimizer=optimizer: busbw_accel.attach(
                net, settings(every=2), optimizer=optimizer
            )
        )
    attached = attached_to(net, few)
    said["twice"] = error_of(lambda: attached_to(net, few))
    with Join([net]):
        said["Join"] = error_of(lambda: step_of(net, few, 0))
    step_of(net, rest, 0)
    before = flat(net)
    said["no step"] = error_of(attached.exchange_now)
    assert torch.equal(flat(net), before), "what another optimizer has trained stays"
    gradients = busbw_accel.attach(wrapped(model()), settings(method="int8"))
    one, other = attached.state_dict(), gradients.state_dict()
    said["state of gradients"] = error_of(lambda: attached.load_or_receive(other))
    said["state of local steps"] = error_of(lambda: gradients.load_state_dict(one))
    for both in (attached, gradients):
        both.close()
    said["closed"] = error_of(lambda: step_of(net, few, 1))
    return said


def _halves(net: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    parts = list(net.parameters())
    return parts[::2], parts[1::2]


def absent() -> str:
    """The last rank lives, and does not come to the second exchange of parameters."""
    return _without_last(every=EVERY)


def absent_from_gradients() -> str:
    """As `absent`, of the gradients of a step."""
    return _without_last(method="int8")


def absent_from_shards() -> str:
    """As `absent`, of shards, in a process group with a limit of its own."""
    mesh = DeviceMesh.from_group(dist.new_group(timeout=LIMIT), "cpu")
    net = sharded(model(), mesh=mesh)
    attached(net, method="int8", gather="int8")
    return _steps_without_last(net, torch.optim.SGD(net.parameters(), lr=0.1))


def _without_last(**words: Any) -> str:
    net = wrapped(model())
    optimizer = sgd(net)
    busbw_accel.attach(net, settings(**words), optimizer=optimizer, timeout=LIMIT)
    return _steps_without_last(net, optimizer)


def _steps_without_last(net: torch.nn.Module, optimizer: torch.optim.Optimizer) -> str:
    last = dist.get_rank() == dist.get_world_size() - 1
    for number in range(2 * EVERY - last):
        try:
            step_of(net, optimizer, number)
        except RuntimeError as error:
            print(json.dumps({"absent": str(error)}), flush=True)
            os._exit(0)
    with contextlib.suppress(RuntimeError):
        dist.barrier()  # until the others have ended
    return "nothing happened"


def store_stopped() -> str:
    """The process with the rendezvous store stops, as behind a broken link, and the last rank does
    not come to the exchange: the others say what does not answer.
    """
    heartbeat.BEAT_S, heartbeat.PATIENCE_S = 0.2, 0.8
    net = wrapped(model())
    optimizer = sgd(net)
    busbw_accel.attach(net, settings(every=EVERY), optimizer=optimizer, timeout=LIMIT)
    last = dist.get_rank() == dist.get_world_size() - 1
    ranks = [0] * dist.get_world_size()
    dist.all_gather_object(ranks, os.getpid())
    parent = os.getppid()
    started = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    (store,) = set(map(int, started)) - set(ranks)
    for number in range(EVERY - last):
        if number == EVERY - 1 and dist.get_rank() == 0:
            os.kill(store, signal.SIGSTOP)
        try:
            step_of(net, optimizer, number)
        except RuntimeError as error:
            print(json.dumps({"stopped": str(error)}), flush=True)
            time.sleep(4)  # the other rank has found the same by then
            os.kill(store, signal.SIGCONT)
            os._exit(0)
    with contextlib.suppress(RuntimeError):
        dist.barrier()  # until the others have ended
    return "nothing happened"


def failed_after_destroy() -> None:
    """An exchange fails after the training has destroyed its process groups: close() returns."""
    net, optimizer, attached = start(delay=1)
    destroyed = threading.Event()

    def fail(*_: object) -> torch.Tensor:
        destroyed.wait()
        raise RuntimeError("the link is down")

    attached._average_all = fail  # type: ignore[method-assign]
    for number in range(EVERY):
        step_of(net, optimizer, number)
    dist.barrier()
    dist.destroy_process_group()
    destroyed.set()
    attached.close()
    print(json.dumps({"closed": attached.worker.closed}), flush=True)
    os._exit(0)


def lost() -> str:
    """The last rank goes away before an exchange; the others say who it was."""
    net, optimizer, _ = start(method="int8", fragments=2, delay=1)
    for number in range(3 * EVERY):
        if number == 2 * EVERY and dist.get_rank() == dist.get_world_size() - 1:
            os._exit(7)
        try:
            step_of(net, optimizer, number)
        except RuntimeError as error:
            print(f'{{"lost": "{str(error).splitlines()[0][:200]}"}}', flush=True)
            os._exit(0)
    return "nothing happened"
