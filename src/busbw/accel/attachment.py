"""What the DDP and FSDP frontends share: a communication worker and its state in a checkpoint."""

from collections.abc import Mapping
from typing import Any

import torch

from busbw.accel.comm_worker import CommWorker, Traffic
from busbw.accel.settings import Settings
from busbw.core.errors import UsageError


class Attachment:
    """A model whose gradients are exchanged by a communication worker."""

    def __init__(self, worker: CommWorker, lengths: Mapping[str, int] | None = None) -> None:
        """`worker` belongs to this model.

        `lengths`: elements of each parameter by name, if known.
        """
        self.worker = worker
        self._lengths = lengths
        self.steps = 0
        self._scale: torch.Tensor | float | None = None

    @property
    def settings(self) -> Settings:
        """The settings of the worker."""
        return self.worker.settings

    @property
    def traffic(self) -> Traffic:
        """Bytes that this rank has sent so far."""
        return self.worker.traffic

    def follow(self, scaler: Any) -> None:
        """Rescale the kept state when the GradScaler changes its scale.

        None: the loss is not scaled.
        """
        if scaler is None or not scaler.is_enabled():
            return
        # a tensor on the device: get_scale() would wait for it
        scale = getattr(scaler, "_scale", None)
        scale = scaler.get_scale() if scale is None else scale
        if self._scale is not None:
            before = (
                self._scale.to(scale.device)
                if isinstance(scale, torch.Tensor) and isinstance(self._scale, torch.Tensor)
                else self._scale
            )
            self.worker.memory.scale(scale / before)
        self._scale = scale.clone() if isinstance(scale, torch.Tensor) else scale

    def reset_residual(self) -> None:
        """Discard the residuals, for example after a jump of the learning rate or after loading
        parameters.
        """
        with self.worker.at_rest():
            self.worker.memory.clear()

    def close(self) -> None:
        """Stop the worker and its communicators.

        Every rank must call it after the last backward.
        """
        self.worker.close()

    def state_dict(self) -> dict[str, Any]:
        """The kept state by parameter, on the CPU.

        Every rank must call it and save its own: residuals differ between ranks.
        """
        kept: dict[str, dict[str, torch.Tensor]] = {}
        with self.worker.at_rest():
            for one, name, tensor in self.worker.memory.single():
                kept.setdefault(one, {})[name] = tensor.to("cpu", copy=True)
        self.worker.check()
        world = self.worker.mesh.world
        scale = (
            self._scale.to("cpu", copy=True)
            if isinstance(self._scale, torch.Tensor)
            else self._scale
        )
        return {
            "ranks": world.size,
            "rank": world.rank,
            "steps": self.steps,
            "scale": scale,
            "kept": kept,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state that this rank has saved.

        Raises:
            UsageError: the state is from another rank, another number of ranks, or another model.
        """
        world = self.worker.mesh.world
        if (state["ranks"], state["rank"]) != (world.size, world.rank):
            raise UsageError(
                f"the state is of rank {state['rank']} of {state['ranks']}, and this is rank"
                f" {world.rank} of {world.size}",
                "save and load it on every rank; with another number of ranks leave it out: the"
                " residuals are then lost once",
            )
        for one, found in state["kept"].items():
            for tensor in found.values():
                if self._lengths is not None and self._lengths.get(one) != tensor.numel():
                    here = (
                        f"has {self._lengths[one]} elements here"
                        if one in self._lengths
                        else "is not a parameter here"
                    )
                    raise UsageError(
                        f"the state has {tensor.numel()} values for '{one}', which {here}",
                        "load the state of the same model",
                    )
        with self.worker.at_rest():
            self.worker.memory.clear()
            self.steps, self._scale = state["steps"], state["scale"]
            for one, found in state["kept"].items():
                for name, tensor in found.items():
                    self.worker.memory.put_single(one, name, tensor)
