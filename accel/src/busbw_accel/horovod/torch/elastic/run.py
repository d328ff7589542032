"""`@run`: calls a training function again, with its state as at the last `state.commit()`."""

import functools
from collections.abc import Callable
from typing import Any

from busbw_accel.horovod.elastic import processes
from busbw_accel.horovod.torch import context, world
from busbw_accel.horovod.torch.elastic.base import State
from busbw_accel.horovod.torch.errors import HorovodInternalError, HostsUpdatedInterrupt


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Make `func(state, ...)` resume from the last commit after a failed operation.

    If all ranks are alive, it is called again in this process. If a rank is lost, the remaining
    ranks of an elastic job continue, with new ranks or without. In other jobs the error is raised:
    torchrun restarts all ranks, and the last commit is read from its file.
    """
    return run_fn(func, _join_again)


def run_fn(func: Callable[..., Any], reset: Callable[[], None]) -> Callable[..., Any]:
    """As `run`. `reset` leaves the job and joins it again."""

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> Any:
        state.load_commit()
        skip_sync = False
        while True:
            try:
                if not skip_sync:
                    state.sync()
                result = func(state, *args, **kwargs)
                state.remove_commit()
                return result
            except HorovodInternalError:
                # Others may have left already, to join again, which ends the job here without a
                # failure.
                if context.current().controller.lost and not processes.is_elastic():
                    raise
                state.restore()
                skip_sync = False
            except HostsUpdatedInterrupt as interrupt:
                skip_sync = interrupt.skip_sync
            reset()
            state.on_reset()

    return wrapper


def _join_again() -> None:
    world.shutdown()
    world.init()
