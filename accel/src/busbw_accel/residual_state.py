"""The state that codecs keep between steps.

It belongs to a bucket, a list of parameters whose gradients are exchanged together. DDP rebuilds
its buckets after the first step, and checkpoints are read by name. So the state of a bucket can be
split into one tensor per parameter.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from busbw.core.errors import UsageError
from busbw_accel.codecs.base import RESIDUAL, SUM_RESIDUAL, VELOCITY, State
from busbw_accel.communicator import Communicator

Key = tuple[str, ...]
# State in the positions of the gradient, which can be split by parameter.
_IN_PLACE = (RESIDUAL, VELOCITY)


@dataclass(frozen=True, slots=True)
class BucketPiece:
    """A piece of a flat gradient: offset and length.

    `padding` more elements make the shards of a row's ranks equal.
    """

    begin: int
    length: int
    padding: int

    def shard(self, rank: int, ranks: int) -> tuple[int, int]:
        """Begin and end of a rank's shard within the padded piece."""
        length = (self.length + self.padding) // ranks
        return rank * length, (rank + 1) * length


@dataclass(frozen=True, slots=True)
class UnsplitState:
    """What a checkpoint has of a bucket besides the state that is split by parameter."""

    pieces: tuple[BucketPiece, ...]
    states: list[State]  # one for each piece


@dataclass(slots=True)
class BucketState:
    """The state of a bucket.

    `shapes` are those of its parameters, `pieces` those of its gradient, and `states` has one state
    for each piece.
    """

    shapes: tuple[tuple[int, ...], ...]
    pieces: tuple[BucketPiece, ...]
    inside: Communicator | None
    across: Communicator
    device: torch.device
    states: list[State] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.states = self.states or [{} for _ in self.pieces]

    @property
    def lengths(self) -> list[int]:
        """Elements of each parameter."""
        return list(map(math.prod, self.shapes))

    def names(self) -> list[str]:
        """The names of the tensors that can be split. They are the same on every rank."""
        kept: set[str] = set().union(*self.states)
        return [name for name in _IN_PLACE if name in kept]

    def unsplit(self) -> UnsplitState:
        """What `join` does not give, or only with other rounding."""
        states: list[State] = []
        for state in self.states:
            exact = self.inside is None and SUM_RESIDUAL not in state
            left_out = _IN_PLACE if exact else ()
            states.append({name: state[name] for name in state if name not in left_out})
        return UnsplitState(self.pieces, states)

    def join(self, name: str) -> torch.Tensor:
        """One tensor over all pieces. In two dimensions every rank of the row must call it."""
        joined = torch.zeros(sum(self.lengths), dtype=torch.float32, device=self.device)
        for piece, state in zip(self.pieces, self.states, strict=True):
            part = state.get(name)
            if part is not None and name == RESIDUAL and SUM_RESIDUAL in state:
                part = self._add_sum_residual(part, state[SUM_RESIDUAL])
            gathered = self._gather(piece, part)
            joined[piece.begin : piece.begin + piece.length] = gathered[: piece.length]
        return joined

    def _add_sum_residual(self, residual: torch.Tensor, sums: torch.Tensor) -> torch.Tensor:
        """The residual plus the rounding error of the shard that this rank sums.

        The error is added as if this rank had not sent it.
        """
        begin = self.across.rank * sums.numel()
        end = min(begin + sums.numel(), residual.numel())
        residual = residual.clone()
        if begin < end:
            residual[begin:end] += sums[: end - begin]
        return residual

    def _gather(self, piece: BucketPiece, part: torch.Tensor | None) -> torch.Tensor:
        """The state of a whole piece. `part`: this rank's part; None: zeros."""
        ranks = 1 if self.inside is None else self.inside.size
        if part is None:
            length = (piece.length + piece.padding) // ranks
            part = torch.zeros(length, dtype=torch.float32, device=self.device)
        return part if self.inside is None else self.inside.all_gather(part).view(-1)

    def put(self, name: str, joined: torch.Tensor) -> None:
        """Store this rank's part of `joined`.

        In two dimensions `joined` is summed over the row, whose ranks must all call it.
        """
        if self.inside is not None:
            self.inside.all_reduce(joined)
        for piece, state in zip(self.pieces, self.states, strict=True):
            part = joined[piece.begin : piece.begin + piece.length]
            if self.inside is not None:
                begin, end = piece.shard(self.inside.rank, self.inside.size)
                part = torch.nn.functional.pad(part, (0, piece.padding))[begin:end]
            state[name] = part.clone()


class ResidualState:
    """The state of all buckets, and of single parameters that are in no bucket."""

    def __init__(self) -> None:
        self._buckets: dict[Key, BucketState] = {}
        self._loose: dict[str, dict[str, torch.Tensor]] = {}
        # Of a checkpoint, until the buckets are used. They are void once other buckets are.
        self._unsplit: dict[Key, UnsplitState] = {}

    def find(self, names: Sequence[str], fresh: BucketState) -> BucketState | None:
        """The state of the bucket with these parameters in this order; None for one that is new,
        or that is not cut as `fresh` is.
        """
        bucket = self._buckets.get(tuple(names))
        if (
            bucket is not None
            and bucket.pieces == fresh.pieces
            and (bucket.inside is None) == (fresh.inside is None)
        ):
            return bucket
        return None

    def add(self, names: Sequence[str], fresh: BucketState) -> BucketState:
        """Keep `fresh` for a new bucket, filled with the state of former buckets.

        Ranks must call it in the same order, since splitting buckets is an exchange.
        """
        key = tuple(names)
        if any(set(other) & set(key) for other in self._buckets):
            self.take_apart()
        for name in _IN_PLACE:
            parts = [self._loose.get(parameter, {}).pop(name, None) for parameter in key]
            if not _has_state(parts, fresh):
                continue
            filled = [
                _checked_part(parameter, part, length, fresh.device)
                for parameter, part, length in zip(key, parts, fresh.lengths, strict=True)
            ]
            fresh.put(name, torch.cat(filled))
        self._restore(key, fresh)
        self._buckets[key] = fresh
        return fresh

    def drop(self, names: Sequence[str]) -> None:
        """Discard the state of the bucket with these parameters, not that of a checkpoint."""
        self._buckets.pop(tuple(names), None)

    def _restore(self, key: Key, fresh: BucketState) -> None:
        """Add what a checkpoint has of this bucket."""
        saved = self._unsplit.pop(key, None)
        if saved is None or saved.pieces != fresh.pieces:
            self._unsplit.clear()
            return
        for state, kept in zip(fresh.states, saved.states, strict=True):
            state |= {name: tensor.to(fresh.device, copy=True) for name, tensor in kept.items()}

    def take_apart(self) -> None:
        """Split all buckets into single parameters.

        State that cannot be split, such as thresholds, is discarded.
        """
        for parameter, name, tensor in list(self.single()):
            self._loose.setdefault(parameter, {})[name] = tensor
        self._buckets.clear()
        self._unsplit.clear()

    def unsplit(self) -> dict[Key, UnsplitState]:
        """What is kept besides `single`, by bucket."""
        return self._unsplit | {key: bucket.unsplit() for key, bucket in self._buckets.items()}

    def put_unsplit(self, saved: dict[Key, UnsplitState]) -> None:
        """Keep what `unsplit` gave for the next exchange of these buckets."""
        self._unsplit = dict(saved)

    def lists(self) -> Iterator[BucketState]:
        yield from self._buckets.values()

    def single(self) -> Iterator[tuple[str, str, torch.Tensor]]:
        """All state that can be split: the parameter, the name of the state, and a tensor.

        In two dimensions this is an exchange within the row.
        """
        for key, bucket in self._buckets.items():
            for name in bucket.names():
                rows = 1 if bucket.inside is None else bucket.inside.size
                share = bucket.join(name) / rows  # this rank's share of the state of its row
                for parameter, part in zip(key, share.split(bucket.lengths), strict=True):
                    yield parameter, name, part
        for parameter, tensors in self._loose.items():
            for name, tensor in tensors.items():
                yield parameter, name, tensor

    def put_single(self, parameter: str, name: str, tensor: torch.Tensor) -> None:
        """Keep a tensor for the next bucket with this parameter.

        Until then it is on the CPU, so that no stream must be waited for.
        """
        self._loose.setdefault(parameter, {})[name] = (
            tensor.detach().flatten().to("cpu", torch.float32, copy=True)
        )

    def clear(self) -> None:
        self._buckets.clear()
        self._loose.clear()
        self._unsplit.clear()

    def scale(self, factor: torch.Tensor | float) -> None:
        """Multiply all state by a factor, like the loss."""
        states = list(self._loose.values())
        for bucket in self._buckets.values():
            states += bucket.states
        for saved in self._unsplit.values():
            states += saved.states
        for state in states:
            for tensor in state.values():
                tensor.mul_(factor if isinstance(factor, float) else factor.to(tensor.device))


def _checked_part(
    name: str, part: torch.Tensor | None, length: int, device: torch.device
) -> torch.Tensor:
    if part is not None and part.numel() != length:
        raise UsageError(
            f"the state has {part.numel()} values for '{name}', of which {length} elements are"
            " trained",
            "load the state of the same model with the same parameters frozen, or leave it out: the"
            " residuals are then lost once",
        )
    if part is None:
        return torch.zeros(length, dtype=torch.float32, device=device)
    return part.to(device)


def _has_state(parts: list[torch.Tensor | None], fresh: BucketState) -> bool:
    """Whether a part has state on this rank or, in two dimensions, on any rank of the row.

    The ranks of a row must do the same.
    """
    has_state = any(part is not None for part in parts)
    if fresh.inside is None:
        return has_state
    flag = torch.tensor([float(has_state)], device=fresh.device)
    fresh.inside.all_reduce(flag)
    return bool(flag.item())
