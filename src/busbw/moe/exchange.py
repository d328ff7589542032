"""The data of dispatch and combine on one rank, in PyTorch: buffers, phases, and their check.

Dispatch: `pack` copies tokens into the order in which they are sent, `exchange` is one
all_to_all_single with uneven parts, `unpack` copies rows into the order of experts.

Combine: `pack` adds up the weighted rows of a token's experts on this rank, `exchange` returns one
row for each that was received, `reduce` adds up the rows that return. Each sum adds in fp32, reads
each row once and writes each sum once.

Values are integers times 1/2, so small that every sum is exact in any order and in the element
type. Tokens and the results of experts have different values, which depend on the token, the expert
and the column: a row in the wrong place is seen. Combine is checked with results of experts that do
not come from dispatch.
"""

import warnings
from collections.abc import Callable
from functools import partial

import torch
import torch.distributed as dist
from torch.nn.functional import embedding_bag

from busbw.core.dtypes import dtype as dtype_row
from busbw.core.errors import UsageError
from busbw.core.result import Mismatch
from busbw.engines.base import Launch, LaunchSequence, dtype_limit
from busbw.moe.plan import STRIDE, RankPlan
from busbw.moe.types import EXCHANGE, PACK, REDUCE, UNPACK, MoeSpec
from busbw.moe.volumes import COMBINE, DISPATCH

CHECKED_ROWS = 1024  # at a time, as the check computes in 64 bits
TOKEN = -1  # in place of an expert: the values of the token itself
WEIGHTS = (0.5, 1.0)
SENTINEL = float("nan")
RESULTS = ("received", "output")  # buffers that an operation may replace by what it returns
# Copies of each result that are alive at once: two from the exchanges of all sizes together, as
# sizes double, and SPARE during a check.
SPARE = 2
# odd factors of a hash, from the fractions of square roots
_ROW, _EXPERT, _COLUMN, _MIX = (
    0x6A09E667F3BCC909,
    0x3C6EF372FE94F82B,
    0x510E527FADE682D1,
    0x1F83D9AB,
)
Expected = Callable[[int, int], torch.Tensor]
Sums = Callable[[torch.Tensor], torch.Tensor]


def largest_value(spec: MoeSpec) -> int:
    """The largest magnitude of a value, so that `top_k` weighted values have an exact sum.

    UsageError if there is none.
    """
    limit = dtype_limit(dtype_row(spec.datatype)) // (2 * spec.top_k)
    if not limit:
        raise UsageError(
            f"--top-k {spec.top_k} -d {spec.datatype}: a sum of so many values is not exact in"
            " this type, so it could not be verified",
            "add -d float, or give a smaller --top-k",
        )
    return min(limit, 1000)


def buffer_rows(plan: RankPlan) -> dict[str, int]:
    """The rows of each buffer."""
    return {
        "tokens": len(plan.own_ids),
        "output": len(plan.own_ids),
        "sent": sum(plan.sent),
        "received": sum(plan.received),
        "experts": len(plan.expert_rows),
    }


def result_bytes(rows: dict[str, int], row_bytes: int) -> int:
    """Bytes of the results that a backend allocates, in addition to its buffers of these rows."""
    return (2 + SPARE) * sum(rows[name] for name in RESULTS) * row_bytes


class Buffers:
    """The memory of the largest number of tokens, which all numbers share."""

    def __init__(self, spec: MoeSpec, rows: dict[str, int], device: torch.device) -> None:
        self.kind: torch.dtype = getattr(torch, dtype_row(spec.datatype).torch)
        self.rows = {
            name: torch.zeros((count, spec.hidden), dtype=self.kind, device=device)
            for name, count in rows.items()
        }


class RankExchange:
    """Dispatch and combine of one number of tokens on one rank, by all_to_all_single.

    `launches` has the phases of each direction in their order.
    """

    def __init__(self, spec: MoeSpec, plan: RankPlan, rank: int, buffers: Buffers) -> None:
        self._spec, self._plan, self._rank, self._kind = spec, plan, rank, buffers.kind
        self._limit = largest_value(spec)
        self._buffers = {name: buffers.rows[name][:n] for name, n in buffer_rows(plan).items()}
        self._device = self._buffers["tokens"].device
        self._sent_tokens = self._to_device(plan.sent_tokens)
        self._expert_rows = self._to_device(plan.expert_rows)
        self._expert_ids = self._to_device(plan.expert_ids)
        self._numbers = self._to_device(plan.received_numbers)
        weights = self._weight(self._numbers[self._expert_rows], self._expert_ids).to(self._kind)
        ones = torch.ones(len(self._sent_tokens), dtype=self._kind, device=self._device)
        self._pack = sums(self._expert_rows, len(self._numbers), weights)
        self._reduce = sums(self._sent_tokens, len(plan.own_ids), ones)
        self.launches: dict[str, dict[str, Launch]] = {
            DISPATCH: {
                PACK: partial(self._select, "tokens", self._sent_tokens, "sent"),
                EXCHANGE: partial(self._move, "sent", plan.sent, "received", plan.received),
                UNPACK: partial(self._select, "received", self._expert_rows, "experts"),
            },
            COMBINE: {
                PACK: partial(self._add, self._pack, "experts", "received"),
                EXCHANGE: partial(self._move, "received", plan.received, "sent", plan.sent),
                REDUCE: partial(self._add, self._reduce, "sent", "output"),
            },
        }

    def whole(self, direction: str) -> Launch:
        """All phases, one after the other."""
        return LaunchSequence(list(self.launches[direction].values()))

    def check(self, direction: str, synchronize: Launch) -> Mismatch | None:
        """Run one operation and compare every element of its result; None if all are right.

        Collective. The buffers have other values afterwards.
        """
        source, target, expected = "tokens", "experts", self._expected_rows
        if direction == COMBINE:
            source, target, expected = "experts", "output", self._expected_sums
        for name in RESULTS:  # what is allocated next has no right rows of an earlier call in it
            freed = [torch.full_like(self._buffers[name], SENTINEL) for _ in range(SPARE)]
            del freed
        for name, buffer in self._buffers.items():
            buffer.fill_(SENTINEL if name != source else 0.0)
        self._write(source)
        self.whole(direction)()
        synchronize()
        return self._compare(self._buffers[target], expected)

    def _to_device(self, numbers: object) -> torch.Tensor:
        return torch.as_tensor(numbers, dtype=torch.int64).to(self._device)

    def _select(self, source: str, rows: torch.Tensor, target: str) -> None:
        torch.index_select(self._buffers[source], 0, rows, out=self._buffers[target])

    def _move(self, source: str, to_each: list[int], target: str, from_each: list[int]) -> None:
        # As bytes: Gloo of older PyTorch has no bfloat16.
        send, recv = (
            self._buffers[source].view(torch.uint8),
            self._buffers[target].view(torch.uint8),
        )
        dist.all_to_all_single(recv, send, from_each, to_each)

    def _add(self, sum_up: Sums, source: str, target: str) -> None:
        self._buffers[target] = sum_up(self._buffers[source])

    def _write(self, source: str) -> None:
        """Write the tokens, or what the experts made of them."""
        for first in range(0, len(self._buffers[source]), CHECKED_ROWS):
            last = first + CHECKED_ROWS
            if source == "tokens":
                values = self._values(self._own_numbers(first, last), TOKEN)
            else:
                rows = self._expert_rows[first:last]
                values = self._values(self._numbers[rows], self._expert_ids[first:last])
            self._buffers[source][first:last] = values.to(self._kind)

    def _own_numbers(self, first: int, last: int) -> torch.Tensor:
        last = min(last, len(self._plan.own_ids))
        return torch.arange(first, last, device=self._device) + self._rank * STRIDE

    def _expected_rows(self, first: int, last: int) -> torch.Tensor:
        return self._values(self._numbers[self._expert_rows[first:last]], TOKEN)

    def _expected_sums(self, first: int, last: int) -> torch.Tensor:
        numbers = self._own_numbers(first, last)
        ids = self._to_device(self._plan.own_ids[first:last])
        total = torch.zeros(len(numbers), self._spec.hidden, device=self._device)
        for chosen in ids.T:
            total += self._weight(numbers, chosen)[:, None] * self._values(numbers, chosen)
        return total

    def _compare(self, got: torch.Tensor, expected: Expected) -> Mismatch | None:
        wrong, found = 0, None
        for first in range(0, len(got), CHECKED_ROWS):
            part = got[first : first + CHECKED_ROWS]
            right = expected(first, first + CHECKED_ROWS).to(self._kind)
            differs = (part != right).flatten()
            count = int(differs.sum())
            if count and found is None:
                at = int(differs.to(torch.uint8).argmax())
                offset = first * self._spec.hidden + at
                found = offset, str(right.flatten()[at].item()), str(part.flatten()[at].item())
            wrong += count
        return Mismatch(self._rank, *found, wrong) if found else None

    def _values(self, numbers: torch.Tensor, experts: torch.Tensor | int) -> torch.Tensor:
        """The values of rows, from -limit to limit, as fp32: [row, column]."""
        columns = torch.arange(self._spec.hidden, device=self._device)
        hashed = _hashed((numbers * _ROW + experts * _EXPERT)[:, None] + columns * _COLUMN)
        return (hashed.remainder(2 * self._limit + 1) - self._limit).float()

    def _weight(self, numbers: torch.Tensor, experts: torch.Tensor) -> torch.Tensor:
        """The weight of each token's result of an expert."""
        low, high = WEIGHTS
        is_high = _hashed(numbers * _ROW + experts * _EXPERT + _MIX) & 1
        return low + (high - low) * is_high.float()


class AllToAllV:
    """The backend that calls all_to_all_single."""

    version = ""

    def reserved_bytes(self, rows: dict[str, int], row_bytes: int) -> int:
        return result_bytes(rows, row_bytes)

    def exchange(self, spec: MoeSpec, plan: RankPlan, rank: int, buffers: Buffers) -> RankExchange:
        return RankExchange(spec, plan, rank, buffers)

    def close(self) -> None:
        """Nothing is held."""


def sums(places: torch.Tensor, count: int, weights: torch.Tensor) -> Sums:
    """A function of rows: for each of `count` places the sum of its rows, times their weights.

    `places` has the place of each row, `weights` its weight in the type of rows.
    """
    sizes, order = torch.bincount(places, minlength=count), torch.argsort(places, stable=True)
    begins, weights = sizes.cumsum(0) - sizes, weights[order]
    if places.is_cuda and torch.cuda.is_bf16_supported(including_emulation=False):
        # A product takes a third of embedding_bag's time (benchmarks/inference_2xh200_202611).
        ends = torch.cat([begins, sizes.sum()[None]])
        with warnings.catch_warnings():  # PyTorch calls these layouts a beta
            warnings.simplefilter("ignore", UserWarning)
            matrix = torch.sparse_csr_tensor(ends, order, weights, (count, len(places)))
        return partial(torch.mm, matrix)
    return lambda rows: embedding_bag(order, rows, begins, mode="sum", per_sample_weights=weights)


def _hashed(numbers: torch.Tensor) -> torch.Tensor:
    """Numbers of 63 bits that look random; products of int64 wrap around."""
    mixed = (numbers ^ (numbers >> 31)) * _ROW
    mixed = (mixed ^ (mixed >> 29)) * _COLUMN
    return (mixed ^ (mixed >> 32)) & 0x7FFFFFFFFFFFFFFF
