"""Dispatch and combine by DeepEP: the kernels of `deep_ep.Buffer` for GPUs of one host.

Its dispatch copies rows while it sends, and its combine adds up rows as they arrive: there is no
phase `pack` of dispatch, and no `reduce` of combine. The rows that it delivers are those of the
alltoallv, in the same order, so the other phases and the check are the same. The layout is
computed once: dispatch is called with its handle, as the counts are known to the alltoallv too.

Its limits are those of csrc/kernels/intranode.cu: a kernel that is called beyond them ends the
process.
"""

from collections.abc import Sequence
from importlib import import_module, metadata
from importlib.util import find_spec
from typing import Any

import torch.distributed as dist

from busbw.core.dtypes import dtype
from busbw.core.errors import first_line
from busbw.engines.base import Launch
from busbw.moe.exchange import Buffers, RankExchange, result_bytes
from busbw.moe.plan import RankPlan
from busbw.moe.types import EXCHANGE, PACK, UNPACK, MoeSpec
from busbw.moe.volumes import COMBINE, DISPATCH

MODULE = "deep_ep"
CALLED = ("get_dispatch_config", "get_combine_config", "get_dispatch_layout", "dispatch", "combine")
RANKS, DATATYPE = (2, 4, 8), "bfloat16"
HIDDEN_STEP, MOST_HIDDEN = 16, 8176
# DeepEP 2 compares libraries when it is imported.
NOT_IMPORTABLE = (ImportError, OSError, AssertionError, RuntimeError)


def why_not(spec: MoeSpec, hosts: Sequence[str]) -> str:
    """Why it cannot run on this rank; '' if it can."""
    if find_spec(MODULE) is None:
        return f"{MODULE} is not installed"
    if len(set(hosts)) > 1:
        return "its GPUs must be in one host"
    if len(hosts) not in RANKS:
        return f"its kernels are for 2, 4 or 8 ranks, not {len(hosts)}"
    if spec.datatype != DATATYPE:
        return f"its combine takes {DATATYPE}, not {spec.datatype}"
    if spec.hidden % HIDDEN_STEP or spec.hidden > MOST_HIDDEN:
        return f"hidden {spec.hidden} is no multiple of {HIDDEN_STEP} up to {MOST_HIDDEN}"
    return _why_not_importable()


def _why_not_importable() -> str:
    try:
        buffer = getattr(import_module(MODULE), "Buffer", None)
    except NOT_IMPORTABLE as error:
        return f"{MODULE} cannot be imported: {first_line(error)}"
    lacking = [name for name in CALLED if not hasattr(buffer, name)]
    return f"{MODULE} {_version()} has no Buffer.{lacking[0]}" if lacking else ""


def _version() -> str:
    try:
        return metadata.version(MODULE)
    except metadata.PackageNotFoundError:
        return "of unknown version"


class DeepEp:
    """The buffer of this rank, which all numbers of tokens share. Opening it is collective."""

    def __init__(self, spec: MoeSpec, ranks: int) -> None:
        buffer: Any = import_module(MODULE).Buffer
        row_bytes = spec.hidden * dtype(spec.datatype).itemsize
        configs = buffer.get_dispatch_config(ranks), buffer.get_combine_config(ranks)
        self._bytes: int = max(one.get_nvl_buffer_size_hint(row_bytes, ranks) for one in configs)
        self._buffer = buffer(dist.group.WORLD, self._bytes, explicitly_destroy=True)
        self.version = _version()

    def reserved_bytes(self, rows: dict[str, int], row_bytes: int) -> int:
        return self._bytes + result_bytes(rows, row_bytes)

    def exchange(
        self, spec: MoeSpec, plan: RankPlan, rank: int, buffers: Buffers
    ) -> "DeepEpExchange":
        return DeepEpExchange(spec, plan, rank, buffers, self._buffer)

    def close(self) -> None:
        self._buffer.destroy()


class DeepEpExchange(RankExchange):
    """Dispatch and combine of one number of tokens on one rank, by a `deep_ep.Buffer`."""

    def __init__(
        self, spec: MoeSpec, plan: RankPlan, rank: int, buffers: Buffers, buffer: Any
    ) -> None:
        super().__init__(spec, plan, rank, buffers)
        self._buffer = buffer
        ids = self._to_device(plan.own_ids).contiguous()
        to_rank, _, to_expert, goes, _ = buffer.get_dispatch_layout(ids, spec.experts)
        rows, _, _, _, self._handle, _ = buffer.dispatch(
            self._buffers["tokens"],
            num_tokens_per_rank=to_rank,
            num_tokens_per_expert=to_expert,
            is_token_in_rank=goes,
        )
        if len(rows) != sum(plan.received):
            raise RuntimeError(f"it delivers {len(rows)} rows instead of {sum(plan.received)}")
        unpack = self.launches[DISPATCH][UNPACK]
        pack = self.launches[COMBINE][PACK]
        self.launches: dict[str, dict[str, Launch]] = {
            DISPATCH: {EXCHANGE: self._dispatch, UNPACK: unpack},
            COMBINE: {PACK: pack, EXCHANGE: self._combine},
        }

    def _dispatch(self) -> None:
        self._buffers["received"] = self._buffer.dispatch(
            self._buffers["tokens"], handle=self._handle
        )[0]

    def _combine(self) -> None:
        self._buffers["output"] = self._buffer.combine(self._buffers["received"], self._handle)[0]
