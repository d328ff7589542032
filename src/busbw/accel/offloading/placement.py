"""Where the states of each parameter live, and what memory they need."""

import math
from collections.abc import Sequence

import torch

from busbw.accel.host_adam import States
from busbw.accel.offloading import host_memory
from busbw.accel.offloading.copy_streams import Copied, Lane
from busbw.accel.offloading.host_memory import Slab, padded
from busbw.accel.offloading.units import Offloaded
from busbw.core.offloading import HOST_BYTES, STAGING_BUFFERS, STATE_BYTES


def choose(parameters: Sequence[Offloaded], gpu_share: float) -> None:
    """Mark the parameters whose states stay on the device: those that the forward needs first,
    since their gradients come last.
    """
    total, kept = sum(one.count for one in parameters), 0
    for one in sorted(parameters, key=lambda one: (one.unit.order, one.index)):
        if kept + one.count > gpu_share * total + 0.5:
            continue
        one.on_device = True
        kept += one.count


class Staging:
    """Pinned host memory through which new weights go to the device, a piece at a time."""

    def __init__(self, parameters: Sequence[Offloaded], lane: Lane) -> None:
        self._lane, self._turn = lane, 0
        largest = max(
            (
                part.stop - part.start
                for one in parameters
                if not one.on_device
                for part in one.pieces()
            ),
            default=0,
        )
        self._slab = Slab(STAGING_BUFFERS * padded(2 * largest), pinned=lane.device.type == "cuda")
        self._buffers = [self._slab.take(largest, torch.bfloat16) for _ in range(STAGING_BUFFERS)]
        self._copies: list[Copied | None] = [None] * STAGING_BUFFERS

    def take(self, count: int) -> torch.Tensor:
        """The next buffer, once its last copy has ended."""
        self._turn = (self._turn + 1) % STAGING_BUFFERS
        last = self._copies[self._turn]
        if last is not None:
            last.wait()
            self._lane.measured(last)
        return self._buffers[self._turn][:count]

    def send(self, to: torch.Tensor) -> Copied:
        """Start to copy what was put into the buffer to the device."""
        copied = self._lane.copy(to, self._buffers[self._turn][: to.numel()])
        self._copies[self._turn] = copied
        return copied

    def close(self) -> None:
        """Wait for the copies, and unpin the buffers."""
        for copied in self._copies:
            if copied is not None:
                copied.wait()
        self._slab.close()


class Placement:
    """The memory of all states, with the values that the parameters have."""

    def __init__(self, parameters: Sequence[Offloaded], device: torch.device) -> None:
        """Allocate and fill it; parameters become bf16 on `device`.

        Raises:
            NoMeasurement: host memory is too small or cannot be pinned. Nothing has been allocated
                or changed then.
        """
        down = [one for one in parameters if not one.on_device]
        count = sum(one.count for one in down)
        if count:
            host_memory.require(
                count * HOST_BYTES, f"the states of {count} parameters", _remedy(parameters)
            )
        self.slots = Slab(sum(padded(2 * one.count) for one in down), pinned=device.type == "cuda")
        self.states = Slab(sum(3 * padded(4 * one.count) for one in down), pinned=False)
        for one in parameters:
            self._fill(one, device)

    def _fill(self, one: Offloaded, device: torch.device) -> None:
        whole = one.local
        if one.on_device:
            weight = whole.to(device, torch.float32, copy=True)
            one.states = States(weight, torch.zeros_like(weight), torch.zeros_like(weight))
            return
        one.states = States(*(self.states.take(one.count, torch.float32) for _ in range(3)))
        one.slot = self.slots.take(one.count, torch.bfloat16)
        if whole.dtype == torch.bfloat16:
            one.slot.copy_(whole)
            one.states.weight.copy_(one.slot)
        else:
            one.states.weight.copy_(whole)
            one.slot.copy_(one.states.weight)

    def close(self) -> None:
        """Unpin the slots."""
        self.slots.close()


def _remedy(parameters: Sequence[Offloaded]) -> str:
    """Says which share would have to stay on the GPU for the rest to fit."""
    total = sum(one.count for one in parameters)
    most = host_memory.usable() / HOST_BYTES
    share = math.ceil((1 - most / total) * 100) / 100
    return (
        f"keep states on the GPU: gpu_share={share:.2f} needs"
        f" {share * total * STATE_BYTES / 1e9:.1f} GB there; free -g shows host memory"
    )
