"""What busbw calls of `deep_ep.Buffer`, for one rank on a CPU."""

from collections.abc import Callable
from typing import Any

import torch

Change = Callable[[torch.Tensor], torch.Tensor | None]


class Config:
    """The bytes of a buffer."""

    def get_nvl_buffer_size_hint(self, row_bytes: int, ranks: int) -> int:
        return row_bytes * ranks


class Buffer:
    """One rank that sends its tokens to itself.

    `delivers` and `returns` may alter or replace what dispatch and combine give.
    """

    def __init__(self, group: Any = None, nvl_bytes: int = 0, *, explicitly_destroy: bool = True):
        self.group, self.bytes, self.destroyed = group, nvl_bytes, not explicitly_destroy
        self.delivers: Change = lambda rows: None
        self.returns: Change = lambda rows: None

    @staticmethod
    def get_dispatch_config(ranks: int) -> Config:
        return Config()

    @staticmethod
    def get_combine_config(ranks: int) -> Config:
        return Config()

    def get_dispatch_layout(self, ids: torch.Tensor, experts: int) -> tuple[Any, ...]:
        goes = torch.ones(len(ids), 1, dtype=torch.bool)
        to_expert = torch.bincount(ids.flatten(), minlength=experts)
        return goes.sum(0), None, to_expert, goes, None

    def dispatch(self, tokens: torch.Tensor, handle: Any = None, **layout: Any) -> tuple[Any, ...]:
        rows = tokens.clone()
        changed = self.delivers(rows)
        rows = rows if changed is None else changed
        return rows, None, None, [], None if handle else ("handle",), None

    def combine(self, rows: torch.Tensor, handle: Any) -> tuple[Any, ...]:
        assert handle == ("handle",)
        sums = rows.clone()
        changed = self.returns(sums)
        return sums if changed is None else changed, None, None

    def destroy(self) -> None:
        self.destroyed = True
