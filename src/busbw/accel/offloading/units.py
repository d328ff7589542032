"""Divides a model into units, whose weights are needed at the same time, and its parameters into
pieces, which are updated one by one.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from busbw.accel.host_adam import States
from busbw.core.offloading import PIECE

__all__ = ["PIECE", "Offloaded", "Unit", "divide", "local_part", "owners"]


@dataclass(slots=True, eq=False)
class Unit:
    """A module whose parameters are used only while its forward or backward runs.

    `order`: its place in the forward.
    """

    module: nn.Module
    order: int
    parameters: list["Offloaded"] = field(default_factory=list)
    called: bool = False  # in some forward


@dataclass(slots=True, eq=False)
class Offloaded:
    """One parameter.

    `local` is its bf16 data on the device, flat; of a sharded one this rank's part.

    `states` are fp32: in host memory, or on the device if `on_device`. `slot` is bf16 in host
    memory: the gradient until the update, and then the new weights. `step` counts updates.
    """

    name: str
    parameter: nn.Parameter
    group: int
    index: int
    unit: Unit
    local: torch.Tensor
    on_device: bool = False
    step: int = 0
    states: States | None = None
    slot: torch.Tensor | None = None

    @property
    def count(self) -> int:
        """Elements on this rank."""
        return int(self.local.numel())

    def pieces(self) -> Iterator[slice]:
        """Ranges of elements, each at most PIECE."""
        return (
            slice(first, min(first + PIECE, self.count)) for first in range(0, self.count, PIECE)
        )


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """The data on this rank, flat: of a DTensor its shard. Shares memory with the tensor."""
    part = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    # unlike detach, data has a version counter of its own: backward accepts writes to it
    return part.data.view(-1)


def divide(model: nn.Module) -> list[Unit]:
    """The units in the order of their definition, the root first.

    A parameter belongs to the innermost unit that contains it.

    Units are the modules that fully_shard was called on, or else the members of the outermost
    ModuleList and Sequential modules. The root is what is left.
    """
    sharded = [
        module
        for module in model.modules()
        if isinstance(module, FSDPModule) and module is not model
    ]
    found = sharded or list(_members(model))
    return [Unit(model, 0), *(Unit(module, order) for order, module in enumerate(found, 1))]


def _members(module: nn.Module) -> Iterator[nn.Module]:
    if isinstance(module, nn.ModuleList | nn.Sequential):
        yield from module.children()
        return
    for child in module.children():
        yield from _members(child)


def owners(units: list[Unit]) -> dict[int, Unit]:
    """The unit of each parameter, by its id.

    What several units share is needed as early as the root's.
    """
    found: dict[int, Unit] = {}
    shared: set[int] = set()
    for unit in units:  # outer units come first
        for key in map(id, unit.module.parameters()):
            before = found.get(key, units[0])
            if before is not units[0] and unit.module not in set(before.module.modules()):
                shared.add(key)
            found[key] = unit
    return found | dict.fromkeys(shared, units[0])
