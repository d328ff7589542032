"""The interface that `run` expects of a state, and what all states have in common."""

from collections.abc import Callable
from typing import Any

import torch

from busbw_accel.horovod.elastic import processes
from busbw_accel.horovod.torch import calls, context
from busbw_accel.horovod.torch.calls import Call
from busbw_accel.horovod.torch.errors import HostsUpdatedInterrupt
from busbw_accel.horovod.torch.requests import OperationKind


class State:
    """The state of a training.

    Subclasses define `save`, `restore` and `sync`, and may define `reset`. It is no ABC, as
    Horovod's is none: a state may lack a method that its training never calls.
    """

    def __init__(self, bcast_object: Callable[..., Any], get_rank: Callable[[], int]) -> None:
        """`bcast_object`: hvd.broadcast_object, or a function that broadcasts an object from rank
        0.

        `get_rank`: hvd.rank.
        """
        self._bcast_object, self._rank = bcast_object, get_rank
        self._callbacks: list[Callable[[], None]] = []

    def save(self) -> None:
        """Keep a copy of the state in memory."""
        raise NotImplementedError

    def restore(self) -> None:
        """Return to the state that `save` has kept."""
        raise NotImplementedError

    def sync(self) -> None:
        """Make the state equal on all ranks. All ranks call it."""
        raise NotImplementedError

    def reset(self) -> None:
        """Adapt to new ranks, before the state is synchronized."""

    def register_reset_callbacks(self, callbacks: list[Callable[[], None]]) -> None:
        """Register functions to call after the ranks have changed."""
        self._callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Called after the ranks have changed."""
        self.reset()
        for callback in self._callbacks:
            callback()

    def commit(self) -> None:
        """Save the current state, then `check_host_updates`."""
        self.save()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """In an elastic job, ask rank 0 whether workers wait to join or have to leave.

        All ranks must call it.

        Raises:
            HostsUpdatedInterrupt: some do. Raised on all ranks; `run` handles it.
        """
        if not processes.is_elastic():
            return
        flag = torch.tensor([int(processes.has_new_world())])
        call = Call(OperationKind.BROADCAST, in_place=True, name="elastic.changed", root=0)
        context.handles.synchronize(calls.begin(call, [flag]))
        if flag.item():
            raise HostsUpdatedInterrupt

    def load_commit(self) -> bool:
        """Load the last commit of an earlier process of this run. Returns whether there is one."""
        return False

    def remove_commit(self) -> None:
        """Remove the commit that `load_commit` would load, once all ranks have done their work."""
