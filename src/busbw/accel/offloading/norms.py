"""The norms of the gradients: of each parameter as it arrives, and of all of them together."""

import math
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Shard

from busbw.accel.offloading.copy_streams import Lane
from busbw.accel.offloading.units import Offloaded

EPSILON = 1e-6  # of clip_grad_norm_


class Norms:
    """One number for each parameter, on the device and, for updates on the CPU, on the host.

    It keeps no parameter: the thread of the updates has it, and would keep the model and its
    optimizer for ever.
    """

    def __init__(self, parameters: Sequence[Offloaded], device: torch.device) -> None:
        self._here = torch.zeros(len(parameters), device=device)
        self._host = torch.zeros(len(parameters), pin_memory=device.type == "cuda")
        self.last = [0.0] * len(parameters)  # on the host, of the last step
        self._groups = {one.index: _groups(one.parameter) for one in parameters}

    def measure(self, one: Offloaded, gradient: torch.Tensor) -> torch.Tensor:
        """The norm of a gradient, on the device."""
        place = self._here[one.index]
        place.copy_(torch.linalg.vector_norm(gradient, dtype=torch.float32))
        return place

    def send(self, one: Offloaded, lane: Lane) -> None:
        """Copy it to the host ahead of the gradient."""
        lane.copy(self._host[one.index : one.index + 1], self._here[one.index : one.index + 1])

    def arrived(self, one: Offloaded) -> float:
        """The norm of a gradient that has arrived on the host."""
        return float(self._host[one.index])

    def total(self, came: Sequence[Offloaded]) -> tuple[float, list[str]]:
        """The norm of these gradients over all ranks that share the model, and which of them are
        not finite here.

        Waits for the device.
        """
        self.last = values = self._here.tolist()
        square = sum(values[one.index] ** 2 for one in came if not self._groups[one.index])
        sharded = sorted(
            (one for one in came if self._groups[one.index]), key=lambda one: one.index
        )
        for groups in dict.fromkeys(self._groups[one.index] for one in sharded):
            mine = sum(
                values[one.index] ** 2 for one in sharded if self._groups[one.index] == groups
            )
            part = torch.full((), mine, dtype=torch.float64, device=self._here.device)
            for group in groups:
                dist.all_reduce(part, group=group)
            square += float(part)
        return math.sqrt(square), [one.name for one in came if not math.isfinite(values[one.index])]


def _groups(parameter: torch.Tensor) -> tuple[dist.ProcessGroup, ...]:
    """The process groups over which a parameter is divided."""
    if not isinstance(parameter, DTensor):
        return ()
    mesh = parameter.device_mesh
    return tuple(
        mesh.get_group(dim)
        for dim, placement in enumerate(parameter.placements)
        if isinstance(placement, Shard)
    )
