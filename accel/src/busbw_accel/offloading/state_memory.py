"""Where the optimizer's states of each parameter are, in host or GPU memory, and what they take.

A model is divided into units, whose weights are needed at the same time. A parameter is divided
into pieces, which are updated one by one.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from busbw_accel.host_adam import States
from busbw_accel.offloading import host_memory
from busbw_accel.offloading.copy_streams import Lane, StartedCopy
from busbw_accel.offloading.host_memory import Slab, padded
from busbw_accel.offloading.state_bytes import HOST_BYTES, PIECE, STAGING_BUFFERS, STATE_BYTES

__all__ = ["PIECE", "OffloadedParameter", "Unit", "divide", "local_part", "owners"]


@dataclass(slots=True, eq=False)
class Unit:
    """A module whose parameters are used only while its forward or backward runs.

    `order`: its place in the forward.
    """

    module: nn.Module
    order: int
    parameters: list["OffloadedParameter"] = field(default_factory=list)
    called: bool = False  # in some forward


@dataclass(slots=True, eq=False)
class OffloadedParameter:
    """One parameter, of which a sharded model has a part on each rank."""

    name: str
    parameter: nn.Parameter
    group: int  # index of the optimizer's parameter group
    index: int  # index of the parameter
    unit: Unit
    local: torch.Tensor  # this rank's bf16 data on the device, flat
    on_device: bool = False
    step: int = 0  # number of updates so far
    states: States | None = None  # fp32, in host memory or on the device
    # bf16 in host memory: the gradient until the update, then the new weights
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
    """The data on this rank, flat (of a DTensor: its shard). Shares memory with the tensor."""
    part = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    # Unlike that of detach(), the version counter of `data` is separate: backward accepts writes.
    return part.data.view(-1)


def divide(model: nn.Module) -> list[Unit]:
    """The units in the order of their definition, the root first.

    Units are the modules that fully_shard was called on, or else the members of the outermost
    ModuleList and Sequential modules. A parameter belongs to the innermost unit that contains it,
    or else to the root.
    """
    sharded = [
        module
        for module in model.modules()
        if isinstance(module, FSDPModule) and module is not model
    ]
    modules = sharded or list(_members(model))
    return [Unit(model, 0), *(Unit(module, order) for order, module in enumerate(modules, 1))]


def _members(module: nn.Module) -> Iterator[nn.Module]:
    if isinstance(module, nn.ModuleList | nn.Sequential):
        yield from module.children()
        return
    for child in module.children():
        yield from _members(child)


def owners(units: list[Unit]) -> dict[int, Unit]:
    """The unit of each parameter, by the id() of the parameter.

    Parameters that several units share belong to the root, since they are needed as early.
    """
    by_parameter: dict[int, Unit] = {}
    shared: set[int] = set()
    for unit in units:  # outer units come first
        for key in map(id, unit.module.parameters()):
            before = by_parameter.get(key, units[0])
            if before is not units[0] and unit.module not in set(before.module.modules()):
                shared.add(key)
            by_parameter[key] = unit
    return by_parameter | dict.fromkeys(shared, units[0])


def choose(parameters: Sequence[OffloadedParameter], gpu_share: float) -> None:
    """Mark the parameters whose states stay on the device, at most `gpu_share` of all elements.

    These are the ones that the forward needs first, since their gradients come last.
    """
    total, kept_elements = sum(offloaded.count for offloaded in parameters), 0
    in_order = sorted(parameters, key=lambda item: (item.unit.order, item.index))
    for offloaded in in_order:
        if kept_elements + offloaded.count > gpu_share * total + 0.5:
            continue
        offloaded.on_device = True
        kept_elements += offloaded.count


class Staging:
    """Pinned host memory through which new weights go to the device, a piece at a time."""

    def __init__(self, parameters: Sequence[OffloadedParameter], lane: Lane) -> None:
        self._lane, self._turn = lane, 0
        counts = [offloaded.count for offloaded in parameters if not offloaded.on_device]
        largest = min(PIECE, max(counts, default=0))  # elements of a piece
        self._slab = Slab(STAGING_BUFFERS * padded(2 * largest), pinned=lane.device.type == "cuda")
        self._buffers = [self._slab.take(largest, torch.bfloat16) for _ in range(STAGING_BUFFERS)]
        self._copies: list[StartedCopy | None] = [None] * STAGING_BUFFERS

    def take(self, count: int) -> torch.Tensor:
        """The next buffer, once its last copy has ended."""
        self._turn = (self._turn + 1) % STAGING_BUFFERS
        last = self._copies[self._turn]
        if last is not None:
            last.wait()
            self._lane.measured(last)
        return self._buffers[self._turn][:count]

    def send(self, to: torch.Tensor) -> StartedCopy:
        """Start to copy the weights in the buffer to the device."""
        copied = self._lane.copy(to, self._buffers[self._turn][: to.numel()])
        self._copies[self._turn] = copied
        return copied

    def close(self) -> None:
        """Wait for the copies, and unpin the buffers."""
        for copied in self._copies:
            if copied is not None:
                copied.wait()
        self._slab.close()


class StateMemory:
    """The memory of all states, which begin with the values of the parameters."""

    def __init__(self, parameters: Sequence[OffloadedParameter], device: torch.device) -> None:
        """Allocate the states, and fill them. `device`: of the states that are not on the host.

        Raises:
            NoMeasurement: host memory is too small or cannot be pinned. Nothing has been allocated
                or changed then.
        """
        counts = [offloaded.count for offloaded in parameters if not offloaded.on_device]
        if sum(counts):
            host_memory.require(
                sum(counts) * HOST_BYTES,
                f"the states of {sum(counts)} parameters",
                _remedy(parameters),
            )
        slot_bytes = sum(padded(2 * count) for count in counts)
        state_bytes = sum(3 * padded(4 * count) for count in counts)
        self.slots = Slab(slot_bytes, pinned=device.type == "cuda")
        self.states = Slab(state_bytes, pinned=False)
        for offloaded in parameters:
            self._fill(offloaded, device)

    def _fill(self, offloaded: OffloadedParameter, device: torch.device) -> None:
        values = offloaded.local
        if offloaded.on_device:
            weight = values.to(device, torch.float32, copy=True)
            offloaded.states = States(weight, torch.zeros_like(weight), torch.zeros_like(weight))
            return
        count = offloaded.count
        offloaded.states = States(*(self.states.take(count, torch.float32) for _ in range(3)))
        offloaded.slot = self.slots.take(offloaded.count, torch.bfloat16)
        if values.dtype == torch.bfloat16:
            offloaded.slot.copy_(values)
            offloaded.states.weight.copy_(offloaded.slot)
        else:
            offloaded.states.weight.copy_(values)
            offloaded.slot.copy_(offloaded.states.weight)

    def close(self) -> None:
        self.slots.close()


def _remedy(parameters: Sequence[OffloadedParameter]) -> str:
    """A hint: the share of the states that must stay on the GPU so that the others fit."""
    total = sum(offloaded.count for offloaded in parameters)
    affordable = host_memory.usable() / HOST_BYTES
    share = math.ceil((1 - affordable / total) * 100) / 100
    return (
        f"keep states on the GPU: gpu_share={share:.2f} needs"
        f" {share * total * STATE_BYTES / 1e9:.1f} GB there; free -g shows host memory"
    )
