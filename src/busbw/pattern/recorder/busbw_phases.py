"""How long the main thread of a rank was in its DataLoader and in torch.save, and if it is now.

A wrapped call costs about 1 us. What other threads load ahead delays nothing and is left out.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import Any

INPUT, SAVE, EVALUATION = "input", "save", "evaluation"
LOADER_MODULE, SAVE_MODULE = "torch.utils.data.dataloader", "torch.serialization"


class Phases:
    """The sums so far, and what the rank is in."""

    def __init__(self) -> None:
        self._spent_ns = {INPUT: 0, SAVE: 0}
        self._since_ns: dict[str, int] = {}  # by what the rank is in
        self.watched: dict[str, Callable[[Any], None]] = {
            LOADER_MODULE: self._watch_loaders,
            SAVE_MODULE: lambda module: self._wrap(module, "save", SAVE),
        }

    def _watch_loaders(self, module: Any) -> None:
        self._wrap(module._BaseDataLoaderIter, "__next__", INPUT)
        self._wrap(module.DataLoader, "__iter__", INPUT)  # starts workers

    def _wrap(self, owner: Any, name: str, phase: str) -> None:
        original: Callable[..., Any] = getattr(owner, name)
        main, since_ns, spent_ns = threading.main_thread().ident, self._since_ns, self._spent_ns

        @functools.wraps(original)
        def call(*args: Any, **options: Any) -> Any:
            if phase in since_ns or threading.get_ident() != main:
                return original(*args, **options)
            since_ns[phase] = start_ns = time.perf_counter_ns()
            try:
                return original(*args, **options)
            finally:
                spent_ns[phase] += time.perf_counter_ns() - start_ns
                since_ns.pop(phase, None)

        setattr(owner, name, call)

    def note_forward(self, *, training: bool) -> None:
        """An evaluation lasts from a forward that does not train to the next one that does."""
        if training:
            self._since_ns.pop(EVALUATION, None)
        else:
            self._since_ns.setdefault(EVALUATION, time.perf_counter_ns())

    def now(self) -> dict[str, dict[str, float]]:
        """In the form of `.rank_N.now`; a call that has not ended counts up to now."""
        now_ns = time.perf_counter_ns()
        in_ns = {phase: now_ns - since_ns for phase, since_ns in list(self._since_ns.items())}
        return {
            "spent_us": {
                phase: round((ns + in_ns.get(phase, 0)) / 1e3, 1)
                for phase, ns in self._spent_ns.items()
            },
            "doing_s": {phase: round(ns / 1e9, 3) for phase, ns in in_ns.items()},
        }
