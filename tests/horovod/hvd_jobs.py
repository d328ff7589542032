"""Jobs of real ranks between `hvd.init` and `hvd.shutdown`: see `jobs` of the tests of accel."""

import inspect
from collections.abc import Collection
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import jobs

run = partial(jobs.run, program=Path(__file__).with_name("hvd_ranks.py"))


def contracts(module: ModuleType, besides: Collection[str]) -> list[str]:
    """Names of the functions that a module has of its own, besides some."""
    own = {
        name: one
        for name, one in vars(module).items()
        if inspect.isfunction(one) and one.__module__ == module.__name__
    }
    return [name for name in own if name not in besides]


def well(said: list[dict[str, Any]], name: str) -> list[Any]:
    """What each rank said of a contract; the first that failed fails the test with its own
    words.
    """
    for result in said:
        assert name in result, result["stderr"][-3000:]
        assert not isinstance(result[name], dict), result[name]["failed"]
    return [result[name] for result in said]
