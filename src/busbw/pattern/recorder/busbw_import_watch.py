"""Functions that are called with a module, once the program has imported it."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any


class ImportWatch:
    """Part of the import system: calls functions with modules, once these are imported."""

    def __init__(self, watched: dict[str, Any]) -> None:
        self._watched = watched
        sys.meta_path.insert(0, self)
        for name in [name for name in watched if name in sys.modules]:
            watched.pop(name)(sys.modules[name])

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        """The spec of a module that is watched."""
        watch = self._watched.pop(name, None)
        if watch is None:
            return None
        spec: Any = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            run(module)
            watch(module)

        spec.loader.exec_module = exec_module
        if not self._watched:
            sys.meta_path.remove(self)
        return spec
