"""Makes `import horovod.torch as hvd` import busbw's module.

This is opt-in. `busbw horovodrun` and `python -m busbw_accel.horovod SCRIPT ...` do it for a
program and the processes that it starts. A program may also call `shim.install()` before its
imports.
"""

import os
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

OWN = "busbw_accel.horovod"
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
    """Variables with which the `import horovod` of a program finds busbw's modules.

    They also work in processes that the program starts, such as data loaders.
    """
    folder, inherited = str(Path(__file__).with_name("path")), os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": f"{folder}{os.pathsep}{inherited}" if inherited else folder}


class _OtherModules:
    """Raises for Horovod's other modules.

    Without it, `horovod.torch.x` could import a module of busbw a second time.
    """

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Python's import calls it for modules that are not loaded."""
        if name.startswith("horovod."):
            raise ModuleNotFoundError(
                f"busbw has no {name}: of Horovod it has the PyTorch module, horovod.torch",
                name=name,
            )


def install() -> None:
    """Make `import horovod...` find busbw's modules here, even if Horovod is installed."""
    if _OtherModules not in sys.meta_path:
        sys.meta_path.insert(0, _OtherModules)
    for name, module in MODULES.items():
        sys.modules[name] = import_module(module)
    common = sys.modules.setdefault(_COMMON, ModuleType(_COMMON))
    common.__path__ = []  # a package, so that Python asks `_OtherModules` about other modules in it
    for name in MODULES:
        if name.startswith(f"{_COMMON}."):
            setattr(common, name.rpartition(".")[2], sys.modules[name])
    sys.modules["horovod"].common = common  # type: ignore[attr-defined]
    operations = sys.modules["horovod.torch.mpi_ops"]
    sys.modules["horovod.torch"].mpi_ops = operations  # type: ignore[attr-defined]
