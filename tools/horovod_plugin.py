"""A pytest plugin under which `import horovod.torch` finds busbw's, for tools/horovod_suite.py."""

import inspect
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from busbw_accel.horovod import shim

THREADS = "horovod.runner.util.threads"


def in_thread(
    target: Callable[..., Any],
    args: tuple[Any, ...] = (),
    name: str | None = None,
    daemon: bool = True,
) -> threading.Thread:
    """Horovod's helper of that name, which its tests' own helpers import."""
    thread = threading.Thread(target=target, args=args, name=name, daemon=daemon)
    thread.start()
    return thread


def pytest_configure() -> None:
    """Before the tests are imported."""
    shim.install()
    parts = THREADS.split(".")
    for depth in range(2, len(parts) + 1):
        sys.modules.setdefault(".".join(parts[:depth]), ModuleType(".".join(parts[:depth])))
    sys.modules[THREADS].in_thread = in_thread  # type: ignore[attr-defined]
    if not hasattr(inspect, "getargspec"):  # files of 2022 and before ask for it
        inspect.getargspec = inspect.getfullargspec  # type: ignore[attr-defined]
    # The tests take every optimizer of torch.optim; this one, which came later, is for matrices
    # alone.
    if hasattr(torch.optim, "Muon"):
        torch.optim.Muon.__module__ = "torch.later"
