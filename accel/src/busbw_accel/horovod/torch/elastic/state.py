"""The state of a training, which continues from the last commit.

It continues on all ranks, or in restarted processes.
"""

import copy
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from busbw_accel.horovod.torch import context, ops
from busbw_accel.horovod.torch.elastic.base import State
from busbw_accel.horovod.torch.elastic.sampler import ElasticSampler
from busbw_accel.horovod.torch.errors import Refused
from busbw_accel.horovod.torch.functions import allgather_object, broadcast_object

# torchrun sets _RUN. _FOLDER names the folder of commits; if it is shared, any host can resume.
_RUN, _FOLDER = "TORCHELASTIC_RUN_ID", "BUSBW_ELASTIC_DIR"


class ObjectState(State):
    """Values, each an attribute. Those with a `state_dict`, such as models, are copied by it.

    `commit` saves them in memory and, under torchrun, in a file on this host. `restore` returns to
    the last commit. `sync` copies the state of the rank with the latest commit to all ranks.
    """

    def __init__(
        self, bcast_object: Callable[..., Any], get_rank: Callable[[], int], **kwargs: Any
    ) -> None:
        super().__init__(bcast_object, get_rank)
        self._stateful = [name for name, value in kwargs.items() if hasattr(value, "state_dict")]
        self._plain = [name for name in kwargs if name not in self._stateful]
        for name, value in kwargs.items():
            setattr(self, name, value)
        self._commits = 0
        self._kept: dict[str, Any] = {}
        self.save()

    def reset(self) -> None:
        """Distribute samples over the new ranks."""
        for name in self._stateful:
            value = getattr(self, name)
            if isinstance(value, ElasticSampler):
                value.reset()

    def commit(self) -> None:
        """Save the current state, then `check_host_updates`."""
        self._commits += 1
        self.save()
        path = self.path()
        if path is not None and context.local_rank() == 0:
            part = path.with_name(f"{path.name}.part")
            torch.save({"commits": self._commits, "kept": self._kept}, part)
            part.replace(path)  # atomic
        self.check_host_updates()

    def save(self) -> None:
        """Like `commit`, but in memory only."""
        self._kept = copy.deepcopy(self._collect())

    def restore(self) -> None:
        self._load(copy.deepcopy(self._kept))

    def load_commit(self) -> bool:
        """Load the last commit of an earlier process of this run on this host.

        Returns whether there is one.
        """
        path = self.path()
        if path is None or not path.exists():
            return False
        saved = torch.load(path, weights_only=False)
        self._commits, self._kept = saved["commits"], saved["kept"]
        self.restore()
        return True

    def remove_commit(self) -> None:
        """Remove the file of commits once all ranks have done their work, so that a later run
        with the same id begins anew.
        """
        path = self.path()
        if path is not None:
            ops.barrier()
            if context.local_rank() == 0:
                path.unlink(missing_ok=True)

    def sync(self) -> None:
        """Copy the state of the (first) rank with the latest commit to all ranks."""
        commits = allgather_object(self._commits)
        root = commits.index(max(commits))
        is_root = self._rank() == root
        sent = (self._commits, self._collect() if is_root else None)
        # Horovod passes only the object, so a script's own function may not take a root.
        received = self._bcast_object(sent, root) if root else self._bcast_object(sent)
        if not is_root:
            self._commits = received[0]
            self._load(received[1])
        self.save()

    def path(self) -> Path | None:
        """The file of commits; None if no launcher would restart this process."""
        run, folder = os.environ.get(_RUN), os.environ.get(_FOLDER)
        if not run:
            return None
        parent = Path(folder) if folder else _own_folder()
        return parent / f"busbw-elastic-{os.getuid()}-{run}.pt"

    def _collect(self) -> dict[str, Any]:
        states = {name: getattr(self, name).state_dict() for name in self._stateful}
        return {"states": states, "values": {name: getattr(self, name) for name in self._plain}}

    def _load(self, saved: dict[str, Any]) -> None:
        for name, state in saved["states"].items():
            getattr(self, name).load_state_dict(state)
        for name, value in saved["values"].items():
            setattr(self, name, value)


class TorchState(ObjectState):
    """The state of a training with PyTorch: a model, an optimizer, and other values.

    See ObjectState.
    """

    def __init__(
        self,
        model: torch.nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        **kwargs: Any,
    ) -> None:
        self.model, self.optimizer = model, optimizer
        parts: dict[str, Any] = {}
        if model is not None:
            parts["model"] = model
        if optimizer is not None:
            parts["optimizer"] = optimizer
        super().__init__(broadcast_object, context.rank, **parts, **kwargs)


def _own_folder() -> Path:
    """A folder for commits that only this user can open.

    A commit is a pickle, which runs code when it is loaded.

    Raises:
        Refused: another user made it, or others can write to it.
    """
    folder = Path(tempfile.gettempdir()) / f"busbw-elastic-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise Refused(
            f"{folder} is not a folder that only this user can open",
            f"remove it, or set {_FOLDER} to a folder of your own",
        )
    return folder
