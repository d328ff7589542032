"""What codecs keep between steps, by the parameters that it belongs to.

A bucket's parameters change: DDP builds its buckets anew after the first step, and a checkpoint is read by name. So what is kept for a list
of parameters can be taken apart again into one tensor a parameter, in the parameter's own positions.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from busbw.accel.codecs.base import RESIDUAL, SUM_RESIDUAL, VELOCITY, State
from busbw.accel.communicator import Communicator
from busbw.core.errors import UsageError

Key = tuple[str, ...]
# Of what is kept, that in the gradient's own positions.
_IN_PLACE = (RESIDUAL, VELOCITY)


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a flat gradient: where it begins, its length, and what is added so that the ranks of a row have equal shards."""

    begin: int
    length: int
    padding: int

    def shard(self, rank: int, ranks: int) -> tuple[int, int]:
        """Begin and end of a rank's shard, padding included, from the piece's begin."""
        whole = (self.length + self.padding) // ranks
        return rank * whole, (rank + 1) * whole


@dataclass(slots=True)
class Kept:
    """Of one list of parameters: their shapes, how the gradient is cut, and each piece's state."""

    shapes: tuple[tuple[int, ...], ...]
    pieces: tuple[Piece, ...]
    inside: Communicator | None
    across: Communicator
    device: torch.device
    states: list[State] = field(default_factory=list)

    def __post_init__(self) -> None:  # noqa: D105
        self.states = self.states or [{} for _ in self.pieces]

    @property
    def lengths(self) -> list[int]:
        """Elements of each parameter."""
        return list(map(math.prod, self.shapes))

    def names(self) -> list[str]:
        """Which tensors in place there are: the same on every rank."""
        return [name for name in _IN_PLACE if any(name in state for state in self.states)]

    def whole(self, name: str) -> torch.Tensor:
        """One tensor over all pieces. In two dimensions every rank of the row has to call it, and gets it."""
        made = torch.zeros(sum(self.lengths), dtype=torch.float32, device=self.device)
        for piece, state in zip(self.pieces, self.states, strict=True):
            mine = state.get(name)
            if mine is not None and name == RESIDUAL and SUM_RESIDUAL in state:
                mine = self._with_sums(mine, state[SUM_RESIDUAL])
            made[piece.begin : piece.begin + piece.length] = self._gathered(piece, mine)[: piece.length]
        return made

    def _with_sums(self, mine: torch.Tensor, sums: torch.Tensor) -> torch.Tensor:
        """What the sum lost at this rank counts as if this rank had not sent it."""
        begin = self.across.rank * sums.numel()
        end = min(begin + sums.numel(), mine.numel())
        mine = mine.clone()
        if begin < end:
            mine[begin:end] += sums[: end - begin]
        return mine

    def _gathered(self, piece: Piece, mine: torch.Tensor | None) -> torch.Tensor:
        length, device = piece.length + piece.padding, self.device
        if self.inside is None:
            return torch.zeros(length, dtype=torch.float32, device=device) if mine is None else mine
        shard = torch.zeros(length // self.inside.size, dtype=torch.float32, device=device) if mine is None else mine
        return self.inside.all_gather(shard).view(-1)

    def put(self, name: str, whole: torch.Tensor) -> None:
        """Take this rank's part: in two dimensions of the sum over its row, all of whose ranks have to call it."""
        if self.inside is not None:
            self.inside.all_reduce(whole)
        for piece, state in zip(self.pieces, self.states, strict=True):
            part = whole[piece.begin : piece.begin + piece.length]
            if self.inside is not None:
                begin, end = piece.shard(self.inside.rank, self.inside.size)
                part = torch.nn.functional.pad(part, (0, piece.padding))[begin:end]
            state[name] = part.clone()


class Memory:
    """All that is kept, by lists of parameters; and by single ones what is not in a list now."""

    def __init__(self) -> None:
        self._kept: dict[Key, Kept] = {}
        self._loose: dict[str, dict[str, torch.Tensor]] = {}

    def of(self, names: Sequence[str], fresh: Kept) -> Kept:
        """What is kept for these parameters in this order; `fresh`, with what is left of other lists, where they come together anew.

        Ranks have to ask in the same order: taking lists apart is an exchange.
        """
        key = tuple(names)
        found = self._kept.get(key)
        if found is not None and found.pieces == fresh.pieces and (found.inside is None) == (fresh.inside is None):
            return found
        if any(set(other) & set(key) for other in self._kept):
            self.take_apart()
        for name in _IN_PLACE:
            parts = [self._loose.get(one, {}).pop(name, None) for one in key]
            if fresh.inside is None and not any(part is not None for part in parts):
                continue
            if fresh.inside is not None and not _anywhere(parts, fresh):
                continue
            filled = [_fitting(*one, fresh.device) for one in zip(key, parts, fresh.lengths, strict=True)]
            fresh.put(name, torch.cat(filled))
        self._kept[key] = fresh
        return fresh

    def take_apart(self) -> None:
        """Everything by single parameters, and what cannot be, such as thresholds, begins anew."""
        for one, name, tensor in list(self.single()):
            self._loose.setdefault(one, {})[name] = tensor
        self._kept.clear()

    def lists(self) -> Iterator[Kept]:
        """What is kept by lists."""
        yield from self._kept.values()

    def single(self) -> Iterator[tuple[str, str, torch.Tensor]]:
        """Parameter, kind and tensor of all that is kept; nothing is changed by it. In two dimensions an exchange within the row."""
        for key, kept in self._kept.items():
            for name in kept.names():
                rows = 1 if kept.inside is None else kept.inside.size
                for one, part in zip(key, (kept.whole(name) / rows).split(kept.lengths), strict=True):
                    yield one, name, part  # a rank's own share of what its row keeps together
        for one, found in self._loose.items():
            for name, tensor in found.items():
                yield one, name, tensor

    def put_single(self, one: str, name: str, tensor: torch.Tensor) -> None:
        """For the next list that has this parameter: on the CPU till then, so that no stream has to be waited for."""
        self._loose.setdefault(one, {})[name] = tensor.detach().flatten().to("cpu", torch.float32, copy=True)

    def clear(self) -> None:
        """Forget everything."""
        self._kept.clear()
        self._loose.clear()

    def scale(self, factor: torch.Tensor | float) -> None:
        """Everything by a factor, as the loss is."""
        for kept in self._kept.values():
            for state in kept.states:
                for tensor in state.values():
                    tensor.mul_(factor)
        for found in self._loose.values():
            for tensor in found.values():
                tensor.mul_(factor if isinstance(factor, float) else factor.to(tensor.device))


def _fitting(name: str, part: torch.Tensor | None, length: int, device: torch.device) -> torch.Tensor:
    if part is not None and part.numel() != length:
        raise UsageError(f"{part.numel()} values are kept for '{name}', which has {length}", "load the state of the same model")
    return torch.zeros(length, dtype=torch.float32, device=device) if part is None else part.to(device)


def _anywhere(parts: list[torch.Tensor | None], fresh: Kept) -> bool:
    """Whether a rank of the row has some: all have to do the same. Only lists that come together anew are asked for."""
    assert fresh.inside is not None
    found = torch.tensor([float(any(part is not None for part in parts))], device=fresh.device)
    fresh.inside.all_reduce(found)
    return bool(found.item())
