"""Shifts the seeds of a script, so that the runs of a round have the same, and rounds others."""

import functools
import multiprocessing
import os
import random
from typing import Any

import torch
from torch.utils.data import DistributedSampler

NUMPY_SEEDS = 2**32


def shift(by: int) -> None:
    """Add `by` to each seed that the script sets; what it does not seed begins alike."""
    own = by + _process_number()
    random.seed(own)
    torch.manual_seed(own)
    _add(random, "seed", by)
    # torch.manual_seed calls that of CUDA.
    _add(torch.random, "manual_seed", by)
    torch.manual_seed = torch.random.manual_seed
    try:
        import numpy
    except ImportError:
        pass
    else:
        numpy.random.seed(own % NUMPY_SEEDS)
        _add(numpy.random, "seed", by, NUMPY_SEEDS)
    _add_to_samplers(by)


def _process_number() -> int:
    """The rank from its launcher, or the number of a process that multiprocessing started."""
    numbers = getattr(multiprocessing.current_process(), "_identity", ())
    return int(os.environ.get("RANK") or (numbers[0] if numbers else 0))


def _add(owner: Any, name: str, by: int, end: int = 0) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def seed(*arguments: Any, **options: Any) -> Any:
        if arguments and isinstance(arguments[0], int):
            shifted = arguments[0] + by
            arguments = (shifted % end if end else shifted, *arguments[1:])
        for key, value in options.items():
            if isinstance(value, int) and key in {"seed", "a"}:
                options[key] = (value + by) % end if end else value + by
        return original(*arguments, **options)

    setattr(owner, name, seed)


def _add_to_samplers(by: int) -> None:
    original = DistributedSampler.__init__

    @functools.wraps(original)
    def make(sampler: Any, *arguments: Any, **options: Any) -> None:
        original(sampler, *arguments, **options)
        sampler.seed += by

    DistributedSampler.__init__ = make
