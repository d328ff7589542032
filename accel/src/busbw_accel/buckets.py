"""Gradients in DDP's buckets, and in those of an earlier process."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from busbw_accel.comm_worker import CommWorker


@dataclass(frozen=True, slots=True)
class Place:
    """A parameter's name, the shape of its gradient in a bucket, and whether it is a bias or norm.

    A bucket has complex numbers as pairs of real ones, and dimensions in the order of memory.
    """

    name: str
    shape: tuple[int, ...]
    one_dim: bool


@dataclass(frozen=True, slots=True)
class Gradient:
    """The flat gradient of some parameters. `last`: it is DDP's last bucket of several."""

    flat: torch.Tensor
    places: list[Place]
    last: bool

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(place.name for place in self.places)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [place.shape for place in self.places]

    def parts(self) -> list[torch.Tensor]:
        """The flat gradient of each parameter."""
        return list(self.flat.split([math.prod(shape) for shape in self.shapes]))


def place(name: str, parameter: torch.Tensor) -> Place:
    strides = torch.empty_like(parameter, device="meta").stride()
    order = sorted(range(parameter.dim()), key=strides.__getitem__, reverse=True)
    shape = tuple(parameter.shape[dim] for dim in order)
    if parameter.is_complex():
        shape += (2,)
    return Place(name, shape, parameter.dim() < 2)


class RegroupedBuckets:
    """The first steps after a checkpoint was loaded, with the buckets of the saved training.

    DDP begins with other buckets than it makes after its first step. Codecs give other bits for
    other buckets, and what they keep of a bucket cannot always be divided. So these steps are
    exchanged when all their gradients are there, in the former buckets.
    """

    def __init__(self, order: list[tuple[str, ...]], steps: int) -> None:
        """`order`: the parameters of each former bucket."""
        self.order, self.steps = order, steps
        self._gradients: list[Gradient] = []
        self._done: torch.futures.Future[None] | None = None

    def add(self, gradient: Gradient) -> torch.futures.Future[torch.Tensor]:
        """Keep a gradient for `exchange`; the future has its average."""
        flat = gradient.flat
        if self._done is None:
            devices = [flat.device] if flat.is_cuda else None
            self._done = torch.futures.Future(devices=devices)
        self._gradients.append(gradient)

        def averaged(done: torch.futures.Future[None]) -> torch.Tensor:
            done.wait()
            return flat

        return self._done.then(averaged)

    def exchange(self, worker: CommWorker, exchange: Callable[[Gradient], None]) -> None:
        """Exchange the gradients of a step. All ranks have the same former buckets."""
        done, gradients = self._done, self._gradients
        self._done, self._gradients = None, []
        self.steps -= 1
        if done is None:
            return

        def settle(ended: torch.futures.Future[torch.Tensor]) -> None:
            try:
                ended.wait()
            except Exception as error:  # noqa: BLE001 - it is passed on
                done.set_exception(error)
            else:
                done.set_result(None)

        worker.run(
            gradients[0].flat, lambda: self._exchange(gradients, exchange)
        ).add_done_callback(settle)

    def _exchange(self, gradients: list[Gradient], exchange: Callable[[Gradient], None]) -> None:
        parts: dict[str, tuple[Place, torch.Tensor]] = {}
        for gradient in gradients:
            for each, part in zip(gradient.places, gradient.parts(), strict=True):
                parts[each.name] = each, part
        if sorted(parts) != sorted(name for names in self.order for name in names):
            for gradient in gradients:  # parameters were frozen or added
                exchange(gradient)
            return
        for number, names in enumerate(self.order):
            own = [parts[name][1] for name in names]
            joined = torch.cat(own)
            last = 0 < number == len(self.order) - 1
            exchange(Gradient(joined, [parts[name][0] for name in names], last))
            torch._foreach_copy_(own, list(joined.split([part.numel() for part in own])))
