"""Scenarios of exchanges through the host's memory, on every rank of a job."""

import contextlib
import gc
import json
import os
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from exchanges import LANES, average, digest, exchanged, gradient, lane_of, settings
from trainings import FEW, model, wrapped

from busbw import accel
from busbw.accel import route
from busbw.accel.methods import CODECS
from busbw.core.errors import UsageError

METHODS = tuple(codec.name for codec in CODECS if codec.staged)
LOST, GOES_S = 3, 0.5  # the exchange in which a rank goes, the others being under way


def same_bits() -> dict[str, Any]:
    """Three steps of each method by both routes, in chunks so small that there are several; buckets of other lengths between them."""
    route.LEAST, route.MOST = 1 << 10, 1 << 12
    found = {}
    for method in METHODS:
        lanes = [lane_of(settings(method=method, ratio=0.3, route=name)) for name in ("backend", "host")]
        digests = []
        for lane in lanes:
            came = [exchanged(lane, gradient(step)) for step in range(3)]
            came += [exchanged(lane, gradient(step)[:17], ("d",), (17,)) for step in range(2)]
            digests.append([digest(one) for one in came])
        error = float((came[0].double() - average(0)).norm() / average(0).norm())
        found[method] = {"backend": digests[0], "host": digests[1], "error": error}
        sent = [[lane.traffic.inside, lane.traffic.across] for lane in lanes]
        found[method] |= {"same traffic": sent[0] == sent[1]}
    return found


def again() -> bool:
    """A lane that is closed leaves no thread, and another can be made."""
    LANES.clear()
    before = _threads()
    for _ in range(3):
        lane = lane_of(settings(method="int8", route="host"))
        exchanged(lane, gradient(0))
        during = _threads()
        lane.close()
    dist.barrier()
    LANES.clear()
    return during > before and _threads() <= before


def _threads() -> int:
    """Of exchanges."""
    found = 0
    for task in Path("/proc/self/task").glob("*/comm"):
        with contextlib.suppress(OSError):  # another thread may end meanwhile
            found += task.read_text().startswith("busbw-exchange")
    return found


def closed() -> str:
    """An exchange after the end, past the lane's own check too."""
    lane = lane_of(settings(method="int8", route="host"))
    exchanged(lane, gradient(0))
    route = (lane.mesh.across or lane.mesh.world).route
    lane.close()
    said = []
    for call in (lambda: lane.exchange(gradient(0), ("a",), ((1,),)), lambda: route.check()):
        try:
            call()
        except (UsageError, RuntimeError) as error:
            said.append(str(error))
    return "; ".join(said)


def dropped() -> bool:
    """A lane that nobody has closed leaves no thread either, once it is gone."""
    LANES.clear()
    gc.collect()
    before = _threads()
    exchanged(lane_of(settings(method="int8", route="host")), gradient(0))
    during = _threads()
    LANES.clear()
    end = time.monotonic() + 10
    while _threads() > before and time.monotonic() < end:
        gc.collect()  # its own thread may have held it till now
        time.sleep(0.01)
    return during > before and _threads() <= before


def refused() -> str:
    """One rank has no library."""
    if dist.get_rank() == 1:
        os.environ["BUSBW_PLUGIN"] = "/none.so"
    try:
        accel.attach(wrapped(model()), settings(method="int8", route="host"))
    except UsageError as error:
        return error.message
    return ""


def lost() -> str:
    """The last rank goes away in the middle; the others say who. On a GPU, where nobody waits, what was under way is no number first."""
    lane, finite, begun = lane_of(settings(method="int8", route="host")), [], time.monotonic()
    for number in range(FEW):
        if number == LOST and dist.get_rank() == dist.get_world_size() - 1:
            time.sleep(GOES_S)
            os._exit(7)
        try:
            finite.append(bool(torch.isfinite(exchanged(lane, gradient(number))).all()))
        except RuntimeError as error:
            after_s = time.monotonic() - begun
            lane.close()  # which has nothing to say that was not said
            print(json.dumps({"lost": str(error).splitlines()[0], "finite": finite, "after_s": after_s}), flush=True)
            os._exit(0)
    return "nothing happened"
