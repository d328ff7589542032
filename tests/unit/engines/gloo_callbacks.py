"""A rank that leaves a process group twenty times while threads of Gloo still hold callbacks,
which hold the group.
"""

from typing import Any

import torch
import torch.distributed as dist

from busbw.engines.torch_rank import wait_for_callbacks

TIMES = 20


def left_with_callbacks() -> int:
    """The number of groups destroyed while a callback held them."""
    store, rank, size = next(dist.rendezvous("env://"))
    for number in range(TIMES):
        dist.init_process_group(
            "gloo", store=dist.PrefixStore(str(number), store), rank=rank, world_size=size
        )
        group = dist.group.WORLD
        for _ in range(3):
            _exchange().wait()
        dist.destroy_process_group()
        wait_for_callbacks(group)
        del group
    return TIMES


def _exchange() -> Any:
    group = dist.group.WORLD  # as the PowerSGD hook does
    return (
        dist.all_reduce(torch.ones(9), async_op=True)
        .get_future()
        .then(lambda future: group and future.value()[0])
    )
