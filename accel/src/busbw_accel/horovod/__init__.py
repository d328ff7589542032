"""Horovod's API in pure Python over torch.distributed, without Horovod."""

from typing import Any, NoReturn

__version__ = "0.28.1"  # the release of Horovod whose API this is: scripts compare it


def run(*args: Any, **kwargs: Any) -> NoReturn:
    """Horovod starts ranks that call a function. busbw starts ranks that run a script.

    Raises:
        Unsupported: always.
    """
    from busbw_accel.horovod.torch.errors import Unsupported  # imports torch

    raise Unsupported(
        "horovod.run is not supported: start a script that calls the function",
        "busbw horovodrun -np 2 python train.py",
    )
