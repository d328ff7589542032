"""Makes `import horovod.torch as hvd` import busbw's module.

Opt-in, for one process or for a program and those that it starts.

`busbw horovodrun` and `python -m busbw.horovod SCRIPT ...` do it for a program. A program itself
calls `shim.install()` before its imports.
"""

import os
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

OWN = "busbw.horovod"
# Horovod's modules that scripts import, and busbw's module for each.
MODULES = {
    "horovod": OWN,
    "horovod.torch": f"{OWN}.torch",
    "horovod.torch.mpi_ops": f"{OWN}.torch",
    "horovod.torch.compression": f"{OWN}.torch.compression",
    "horovod.torch.functions": f"{OWN}.torch.functions",
    "horovod.torch.optimizer": f"{OWN}.torch.optimizer",
    "horovod.torch.sync_batch_norm": f"{OWN}.torch.sync_batch_norm",
    "horovod.torch.elastic": f"{OWN}.torch.elastic",
    "horovod.torch.elastic.sampler": f"{OWN}.torch.elastic.sampler",
    "horovod.torch.elastic.state": f"{OWN}.torch.elastic.state",
    "horovod.common.elastic": f"{OWN}.torch.elastic",
    "horovod.common.exceptions": f"{OWN}.torch.errors",
    "horovod.common.util": f"{OWN}.torch.util",
    "horovod.common.process_sets": f"{OWN}.torch",
}
_COMMON = "horovod.common"


def environ() -> dict[str, str]:
    """Variables for a program whose `import horovod` is to find busbw's modules, also in
    processes that it starts, such as data loaders.
    """
    folder, own = str(Path(__file__).with_name("path")), os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": f"{folder}{os.pathsep}{own}" if own else folder}


class _Rest:
    """Raises for Horovod's other modules.

    Without it, `horovod.torch.x` could import a module of busbw a second time.
    """

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Python's import asks this about modules that are not loaded."""
        if name.startswith("horovod."):
            raise ModuleNotFoundError(
                f"busbw has no {name}: of Horovod it has the PyTorch module, horovod.torch",
                name=name,
            )


def install() -> None:
    """Make `import horovod...` find busbw's modules in this process, even if Horovod is
    installed.
    """
    if _Rest not in sys.meta_path:
        sys.meta_path.insert(0, _Rest)
    for name, own in MODULES.items():
        sys.modules[name] = import_module(own)
    common = sys.modules.setdefault(_COMMON, ModuleType(_COMMON))
    common.__path__ = []  # a package, so that Python asks `_Rest` about its other modules
    for name in MODULES:
        if name.startswith(f"{_COMMON}."):
            setattr(common, name.rpartition(".")[2], sys.modules[name])
    sys.modules["horovod"].common = common  # type: ignore[attr-defined]
    operations = sys.modules["horovod.torch.mpi_ops"]
    sys.modules["horovod.torch"].mpi_ops = operations  # type: ignore[attr-defined]
