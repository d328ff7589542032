"""The nn.Module of a large embedding: a table of rows that grows, divided over ranks by id.

Several features in one table: the number of the feature becomes part of the id.
"""

import math
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd.function import once_differentiable

from busbw.core.errors import BusbwError, UsageError
from busbw_accel.embedding import saving
from busbw_accel.embedding.exchange import WIRES, IdExchange, shared
from busbw_accel.embedding.settings import TableSettings
from busbw_accel.embedding.table import EmbeddingTable

FEATURE_BITS = 15  # above them is the sign
ID_BITS = 63 - FEATURE_BITS
POOLINGS = ("none", "sum", "mean")


def prefixed(ids: torch.Tensor, feature: int) -> torch.Tensor:
    """Ids that differ from those of every other feature: feature * 2**48 + id.

    A data loader calls it, before the ids go to a GPU.

    Raises:
        UsageError: the feature is not in 0 .. 32767, or an id is not in 0 .. 2**48 - 1.
    """
    if not 0 <= feature < 1 << FEATURE_BITS:
        raise UsageError(
            f"feature is {feature}, and must be at least 0 and below {1 << FEATURE_BITS}",
            "number the features from 0",
        )
    outside = (ids >> ID_BITS) != 0
    if outside.any():
        first = int(ids[outside][0])
        raise UsageError(
            f"id {first} of feature {feature} is not in 0 .. 2**{ID_BITS} - 1",
            f"hash it to {ID_BITS} bits, or use a table of its own",
        )
    return ids.to(torch.int64) + (feature << ID_BITS)


Update = Callable[[torch.Tensor], None]  # takes gradients


def _check_arguments(dim: int, pooling: str, wire: str) -> None:
    if dim < 1:
        raise UsageError(f"dim is {dim}: a row has at least one value", "give a positive dim")
    for name, value, choices in (("pooling", pooling, POOLINGS), ("wire", wire, WIRES)):
        if value not in choices:
            raise UsageError(f"{name} is '{value}'", f"{name} is one of {', '.join(choices)}")


class DynamicEmbedding(nn.Module):
    """Rows of `dim` fp32 values by 64-bit id.

    A row is made when a training step first asks for its id.

    The optimizer is part of the table: backward updates the rows that forward returned, once for
    each forward. There is no nn.Parameter, so that torch's optimizers and DistributedDataParallel
    ignore the table, and `state_dict` does not have it: use `save` and `load`.

    With several ranks the rows are divided by a hash of the id, and each row is on one rank only.
    Forward and backward are then collective: every rank calls both equally often, with empty ids
    where it has no data. The gradient of a row is the sum over the ranks, divided by the number of
    ranks, as DistributedDataParallel averages; `average=False` leaves it a sum.

    Attributes:
        lr: the learning rate, which may be set before any step.
        table: the rows of this rank; `table.counters` counts what was stored, evicted and refused.
    """

    def __init__(
        self,
        dim: int,
        settings: TableSettings | None = None,
        *,
        pooling: str = "none",
        group: dist.ProcessGroup | None = None,
        device: torch.device | str | None = None,
        wire: str = "fp32",
        average: bool = True,
        check_finite: bool = True,
        timeout: timedelta | None = None,
    ) -> None:
        """Make the table of this rank.

        Collective if torch.distributed is initialised: every rank of the group makes its modules in
        the same order.

        Args:
            dim: values of a row.
            settings: the settings of each rank's table, so that capacities add up.
            pooling: none, or the sum or mean of bags, as in nn.EmbeddingBag.
            group: the ranks that share the rows; None: a new group of all ranks. Another thread
                must not use this group during forward and backward.
            device: the device of the table; None: the current GPU, or the CPU without one.
            wire: the format of rows and gradients between ranks. bf16 halves the bytes, and rounds
                each value by at most 2**-8 of it.
            average: divide gradients by the number of ranks.
            check_finite: refuse gradients with nan or infinity before any row is updated. It waits
                for the GPU once in each backward.
            timeout: the limit of each exchange in a new group; None: that of torch.distributed.

        Raises:
            UsageError: an argument is invalid, or ranks differ in them.
        """
        super().__init__()
        _check_arguments(dim, pooling, wire)
        self.dim, self.pooling, self.wire = dim, pooling, wire
        self.average, self.check_finite = average, check_finite
        self.settings = settings or TableSettings()
        self.lr = self.settings.lr
        self._exchange = self._make_exchange(group, timeout)
        default = "cuda" if torch.cuda.is_available() else "cpu"
        self.table = EmbeddingTable(dim, self.settings, torch.device(device or default))
        self.device = self.table.device
        if self._exchange is not None:
            self._exchange.check_device(self.device)

    def forward(self, ids: torch.Tensor, offsets: torch.Tensor | None = None) -> torch.Tensor:
        """The rows of `ids` (integers of any shape): fp32 [..., dim].

        With pooling, one row for each bag: fp32 [bags, dim].

        Bags are rows of two-dimensional `ids`, or begin at `offsets` (int64 [bags]) of
        one-dimensional ones. In training mode with gradients enabled, ids that are new get a row,
        if the settings admit them. Otherwise the table is not changed, and an id without a row has
        its initial values.

        Raises:
            UsageError: `ids` or `offsets` have a wrong type or shape.
            BusbwError: an exchange with other ranks failed. No row was updated.
        """
        if torch.compiler.is_compiling():  # not a decorator, which would import the compiler
            return torch.compiler.disable(self._forward)(ids, offsets)
        return self._forward(ids, offsets)

    def _forward(self, ids: torch.Tensor, offsets: torch.Tensor | None) -> torch.Tensor:
        self._check(ids, offsets)
        flat = ids.reshape(-1).to(self.device, torch.int64).contiguous()
        train = self.training and torch.is_grad_enabled()
        anchor = torch.empty(0, device=self.device, requires_grad=train)
        values, positions = _Rows.apply(anchor, flat, self, train)
        if self.pooling == "none":
            rows = values if positions is None else nn.functional.embedding(positions, values)
            return rows.view(*ids.shape, self.dim)
        if positions is None:
            positions = torch.arange(len(flat), device=self.device)
        offsets = None if offsets is None else offsets.to(self.device, torch.int64)
        return nn.functional.embedding_bag(
            positions.view(ids.shape), values, offsets, mode=self.pooling
        )

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the rows and optimizer states of all ranks into `folder`, which all ranks share.

        Collective.

        The checkpoint that was there is replaced once the new one is complete. Call it between
        steps.

        Raises:
            BusbwError: a rank could not write. The checkpoint that was there is unchanged.
        """
        saving.save(folder, self.table, self.dim, self.settings, self._exchange)

    def load(self, folder: str | os.PathLike[str]) -> None:
        """Read a checkpoint that any number of ranks has written. Collective. `lr` stays as it is.

        Raises:
            UsageError: the checkpoint is incomplete, damaged, or of another dim or optimizer; this
                table has rows already, or too small a capacity. With an eviction, rows beyond the
                capacity are evicted instead.
        """
        saving.load(folder, self.table, self.dim, self.settings, self._exchange)

    def extra_repr(self) -> str:
        """The text that print(model) shows."""
        ranks = 1 if self._exchange is None else self._exchange.ranks
        return (
            f"{self.dim}, pooling={self.pooling}, optimizer={self.settings.optimizer},"
            f" ranks={ranks}, device={self.device}"
        )

    def _make_exchange(
        self, group: dist.ProcessGroup | None, timeout: timedelta | None
    ) -> IdExchange | None:
        """The exchange of the ranks that share the rows; None for a single rank."""
        if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size(group) == 1:
            return None
        exchange = shared(group, timeout)
        arguments = {
            name: getattr(self, name)
            for name in ("dim", "wire", "average", "check_finite", "settings")
        }
        descriptions = exchange.gather(
            ", ".join(f"{name}={value}" for name, value in arguments.items())
        )
        differing = [
            rank for rank, description in enumerate(descriptions) if description != descriptions[0]
        ]
        if differing:
            names = ", ".join(map(str, differing))
            raise UsageError(
                f"ranks {names} make another embedding than rank 0:"
                f" {descriptions[differing[0]]}; rank 0: {descriptions[0]}",
                "make the same modules in the same order on every rank",
            )
        return exchange

    def _check(self, ids: torch.Tensor, offsets: torch.Tensor | None) -> None:
        if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
            raise UsageError(f"ids are {ids.dtype}", "give integers, for example int64")
        if self.pooling == "none":
            if offsets is not None:
                raise UsageError(
                    "offsets are for bags, and pooling is none",
                    'make the embedding with pooling="sum" or "mean"',
                )
        elif ids.dim() != (2 if offsets is None else 1):
            shape = list(ids.shape)
            preposition = "without" if offsets is None else "with"
            raise UsageError(
                f"ids of shape {shape} {preposition} offsets are no bags",
                "give ids of one dimension and offsets, or ids of two without",
            )

    def _look_up(
        self, ids: torch.Tensor, train: bool
    ) -> tuple[torch.Tensor, torch.Tensor | None, Update]:
        """Look up ids (int64 [n]).

        Returns values, the position of each id in them (None: they are in the order of `ids`), and
        the function that takes the gradients of the values.
        """
        exchange = self._exchange
        if exchange is None:
            values, update = self._read(ids, train)

            def check_and_update(gradients: torch.Tensor) -> None:
                self._refuse_not_finite(ids, gradients)
                update(gradients)

            return values, None, check_and_update
        route = exchange.route(ids)
        rows, update = self._read(route.requested, train)

        def send_gradients(gradients: torch.Tensor) -> None:
            self._refuse_not_finite(route.ids, gradients)
            if self.average:
                gradients = gradients / exchange.ranks
            update(exchange.gradients_out(route, gradients, self.wire))

        return exchange.rows_back(route, rows, self.wire), route.positions, send_gradients

    def _read(self, ids: torch.Tensor, train: bool) -> tuple[torch.Tensor, Update]:
        """Rows of this rank's table, and the function that takes their gradients."""
        table = self.table
        if not train:
            return table.rows(ids, train=False), lambda _: None
        if self.settings.admission > 1 or self.settings.eviction == "lfu":
            # The table counts each position. An id counts once in a step, so that the number of
            # ranks makes no difference.
            distinct, inverse = torch.unique(ids, return_inverse=True)
            values, _ = table.lookup(distinct)
            return values[inverse], lambda gradients: table.update(ids, gradients, self.lr)
        values, handle = table.lookup(ids)
        return values, lambda gradients: table.apply(handle, gradients, self.lr)

    def _refuse_not_finite(self, ids: torch.Tensor, gradients: torch.Tensor) -> None:
        if not self.check_finite:
            return
        bad = None
        # The sum of finite fp32 values is finite in doubles.
        if not math.isfinite(gradients.sum(dtype=torch.float64).item()):
            bad = int(ids[(~gradients.isfinite()).any(1)][0])
        first, where = bad, ""
        if self._exchange is not None:
            rank, first = self._exchange.first_of(bad, self.device)
            where = f" at {self._exchange.name(rank)}"
        if first is None:
            return
        raise BusbwError(
            f"the gradient of id {first}{where} has nan or infinity. No row was updated",
            "print the loss of this step; check_finite=False turns the check off",
        )


class _Rows(torch.autograd.Function):
    """Rows out of a table; their gradients update it."""

    @staticmethod
    def forward(
        ctx: Any, anchor: torch.Tensor, ids: torch.Tensor, embedding: DynamicEmbedding, train: bool
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """`anchor` makes torch call backward: there is no other input with a gradient."""
        values, positions, update = embedding._look_up(ids, train)
        ctx.update = update
        if positions is not None:
            ctx.mark_non_differentiable(positions)
        return values, positions

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradients: torch.Tensor, _: Any) -> tuple[None, ...]:
        ctx.update(gradients.contiguous())
        return None, None, None, None
