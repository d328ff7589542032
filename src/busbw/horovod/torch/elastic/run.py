"""`@run`: a training function that is called again from the last commit."""

import functools
from collections.abc import Callable
from typing import Any

from busbw.horovod.torch import context, world
from busbw.horovod.torch.elastic.state import TorchState
from busbw.horovod.torch.errors import HorovodInternalError, HostsUpdatedInterrupt


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Have `func(state, ...)` go on from the last commit after an operation that failed.

    Where all ranks are alive, it is called again in this process. Where one is lost, the error is raised: torchrun starts all ranks again,
    and the last commit is read from its file.
    """

    @functools.wraps(func)
    def wrapper(state: TorchState, *args: Any, **kwargs: Any) -> Any:
        state.load_commit()
        skip_sync = False
        while True:
            if not skip_sync:
                state.sync()
            try:
                return func(state, *args, **kwargs)
            except HorovodInternalError:
                if context.current().controller.failed:
                    raise
                state.restore()
                skip_sync = False
            except HostsUpdatedInterrupt as interrupt:
                skip_sync = interrupt.skip_sync
            world.shutdown()
            world.init()
            state.on_reset()

    return wrapper
