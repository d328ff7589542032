"""The state that codecs keep between steps, by parameter.

The parameters of a bucket change: DDP rebuilds its buckets after the first step, and checkpoints
are read by name. So the state of a list of parameters can be split into one tensor per parameter.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from busbw.accel.codecs.base import RESIDUAL, SUM_RESIDUAL, VELOCITY, State
from busbw.accel.communicator import Communicator
from busbw.core.errors import UsageError

Key = tuple[str, ...]
# State in the positions of the gradient, which can be split by parameter.
_IN_PLACE = (RESIDUAL, VELOCITY)


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a flat gradient: offset, length, and the padding that makes shards of a row
    equal.
    """

    begin: int
    length: int
    padding: int

    def shard(self, rank: int, ranks: int) -> tuple[int, int]:
        """Begin and end of a rank's shard within the padded piece."""
        whole = (self.length + self.padding) // ranks
        return rank * whole, (rank + 1) * whole


@dataclass(slots=True)
class Kept:
    """The state of one list of parameters: their shapes, the pieces of their gradient, and the
    state of each piece.
    """

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
        """The names of the tensors that can be split. They are the same on every rank."""
        return [name for name in _IN_PLACE if any(name in state for state in self.states)]

    def whole(self, name: str) -> torch.Tensor:
        """One tensor over all pieces. In two dimensions every rank of the row must call it."""
        made = torch.zeros(sum(self.lengths), dtype=torch.float32, device=self.device)
        for piece, state in zip(self.pieces, self.states, strict=True):
            mine = state.get(name)
            if mine is not None and name == RESIDUAL and SUM_RESIDUAL in state:
                mine = self._with_sums(mine, state[SUM_RESIDUAL])
            made[piece.begin : piece.begin + piece.length] = self._gathered(piece, mine)[
                : piece.length
            ]
        return made

    def _with_sums(self, mine: torch.Tensor, sums: torch.Tensor) -> torch.Tensor:
        """The residual plus the rounding error of the sums of this rank, as if this rank had not
        sent it.
        """
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
        shard = (
            torch.zeros(length // self.inside.size, dtype=torch.float32, device=device)
            if mine is None
            else mine
        )
        return self.inside.all_gather(shard).view(-1)

    def put(self, name: str, whole: torch.Tensor) -> None:
        """Store this rank's part of `whole`.

        In two dimensions `whole` is summed over the row, whose ranks must all call it.
        """
        if self.inside is not None:
            self.inside.all_reduce(whole)
        for piece, state in zip(self.pieces, self.states, strict=True):
            part = whole[piece.begin : piece.begin + piece.length]
            if self.inside is not None:
                begin, end = piece.shard(self.inside.rank, self.inside.size)
                part = torch.nn.functional.pad(part, (0, piece.padding))[begin:end]
            state[name] = part.clone()


class Memory:
    """The state of all lists of parameters, and of single parameters that are in no list."""

    def __init__(self) -> None:
        self._kept: dict[Key, Kept] = {}
        self._loose: dict[str, dict[str, torch.Tensor]] = {}

    def of(self, names: Sequence[str], fresh: Kept) -> Kept:
        """The state of these parameters in this order.

        For a new list: `fresh`, filled with the state of former lists.

        Ranks must call it in the same order, since splitting lists is an exchange.
        """
        key = tuple(names)
        found = self._kept.get(key)
        if (
            found is not None
            and found.pieces == fresh.pieces
            and (found.inside is None) == (fresh.inside is None)
        ):
            return found
        if any(set(other) & set(key) for other in self._kept):
            self.take_apart()
        for name in _IN_PLACE:
            parts = [self._loose.get(one, {}).pop(name, None) for one in key]
            if fresh.inside is None and not any(part is not None for part in parts):
                continue
            if fresh.inside is not None and not _anywhere(parts, fresh):
                continue
            filled = [
                _fitting(*one, fresh.device) for one in zip(key, parts, fresh.lengths, strict=True)
            ]
            fresh.put(name, torch.cat(filled))
        self._kept[key] = fresh
        return fresh

    def take_apart(self) -> None:
        """Split all lists into single parameters.

        State that cannot be split, such as thresholds, is discarded.
        """
        for one, name, tensor in list(self.single()):
            self._loose.setdefault(one, {})[name] = tensor
        self._kept.clear()

    def lists(self) -> Iterator[Kept]:
        """The state of each list."""
        yield from self._kept.values()

    def single(self) -> Iterator[tuple[str, str, torch.Tensor]]:
        """Parameter, name and tensor of all state that can be split.

        In two dimensions this is an exchange within the row.
        """
        for key, kept in self._kept.items():
            for name in kept.names():
                rows = 1 if kept.inside is None else kept.inside.size
                for one, part in zip(
                    key, (kept.whole(name) / rows).split(kept.lengths), strict=True
                ):
                    yield one, name, part  # this rank's share of the state of its row
        for one, found in self._loose.items():
            for name, tensor in found.items():
                yield one, name, tensor

    def put_single(self, one: str, name: str, tensor: torch.Tensor) -> None:
        """Keep a tensor for the next list with this parameter; on the CPU until then, so that no
        stream must be waited for.
        """
        self._loose.setdefault(one, {})[name] = (
            tensor.detach().flatten().to("cpu", torch.float32, copy=True)
        )

    def clear(self) -> None:
        """Discard all state."""
        self._kept.clear()
        self._loose.clear()

    def scale(self, factor: torch.Tensor | float) -> None:
        """Multiply all state by a factor, like the loss."""
        for kept in self._kept.values():
            for state in kept.states:
                for tensor in state.values():
                    tensor.mul_(factor)
        for found in self._loose.values():
            for tensor in found.values():
                tensor.mul_(factor if isinstance(factor, float) else factor.to(tensor.device))


def _fitting(
    name: str, part: torch.Tensor | None, length: int, device: torch.device
) -> torch.Tensor:
    if part is not None and part.numel() != length:
        raise UsageError(
            f"the state has {part.numel()} values for '{name}', which has {length} elements",
            "load the state of the same model",
        )
    return (
        torch.zeros(length, dtype=torch.float32, device=device) if part is None else part.to(device)
    )


def _anywhere(parts: list[torch.Tensor | None], fresh: Kept) -> bool:
    """Whether any rank of the row has state, since all must do the same.

    Called only for new lists.
    """
    assert fresh.inside is not None
    found = torch.tensor([float(any(part is not None for part in parts))], device=fresh.device)
    fresh.inside.all_reduce(found)
    return bool(found.item())
