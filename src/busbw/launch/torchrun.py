"""Builds torchrun's command line for local ranks without MPI: `python -m torch.distributed.run`."""

import sys
from collections.abc import Sequence
from importlib.util import find_spec

from busbw.core.errors import NoMeasurement


def command(program: Sequence[str], ranks: int) -> list[str]:
    """The command line that runs `program` on `ranks` local ranks, on a free port.

    Raises NoMeasurement without PyTorch.
    """
    if not find_spec("torch"):
        raise NoMeasurement(
            f"PyTorch is not installed for {sys.executable}",
            f"{sys.executable} -m pip install 'busbw[torch]'",
        )
    torchrun = [sys.executable, "-m", "torch.distributed.run"]
    return [*torchrun, "--standalone", f"--nproc-per-node={ranks}", "--no-python", *program]
