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
    """Names of the functions that a module defines, without those in `besides`."""
    own = {
        name: function
        for name, function in vars(module).items()
        if inspect.isfunction(function) and function.__module__ == module.__name__
    }
    return [name for name in own if name not in besides]


def results_of(results: list[dict[str, Any]], name: str) -> list[Any]:
    """Each rank's result of a contract; the test fails with the error of the first rank that
    failed.
    """
    for result in results:
        assert name in result, result["stderr"][-3000:]
        assert not isinstance(result[name], dict), result[name]["failed"]
    return [result[name] for result in results]
