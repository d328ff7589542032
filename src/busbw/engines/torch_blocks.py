"""sendrecv of blocks that are scattered in memory, as those of a KV cache that goes elsewhere.

A transfer of so many blocks is a sendrecv of all their bytes: a block arrives at the place that it
had in the sender's memory. They are sent in a random order that all ranks share.
"""

from functools import partial

import torch
import torch.distributed as dist

from busbw.core.sweep import SweepSpec
from busbw.engines.base import CollectiveCall, Launch, LaunchSequence
from busbw.engines.torch import TorchEngine
from busbw.launch.control import Control

SEED = 1


class BlocksEngine(TorchEngine):
    """Sends each block by itself, all in one group; or with `packed` gathers them into one message
    by a kernel, and scatters them where they arrive.
    """

    def __init__(
        self,
        control: Control,
        spec: SweepSpec,
        place: tuple[int, int, int],
        blocks: int,
        *,
        packed: bool,
    ) -> None:
        """`place` is the number of the process on its host, of its group, and in the job."""
        super().__init__(control, spec, *place)
        self._blocks, self._packed = blocks, packed
        order = torch.randperm(blocks, generator=torch.Generator().manual_seed(SEED))
        self._order = order.to(self.device)
        self._listed: list[int] = order.tolist()

    def allocate(self, send_bytes: int, recv_bytes: int) -> None:
        """Allocate both buffers, and the messages that blocks are gathered into."""
        super().allocate(send_bytes, recv_bytes)
        if self._packed:
            for name in ("send", "recv"):
                self._buffers[f"packed {name}"] = torch.zeros_like(self._buffers[name])

    def bind(self, call: CollectiveCall) -> Launch:
        """A thunk that moves all blocks of the call."""
        send, recv = self.view(call, "send"), self.view(call, "recv")
        if send.numel() % self._blocks:
            return super().bind(call)  # too small to have so many blocks
        blocks = send.view(self._blocks, -1), recv.view(self._blocks, -1)
        return self._in_one_message(*blocks) if self._packed else self._in_one_group(*blocks)

    def _in_one_group(self, send: torch.Tensor, recv: torch.Tensor) -> Launch:
        pairs = [(send[at], recv[at]) for at in self._listed]
        return partial(self._exchange, pairs)

    def _in_one_message(self, send: torch.Tensor, recv: torch.Tensor) -> Launch:
        length = send.numel()
        sent = self._buffers["packed send"][:length].view_as(send)
        received = self._buffers["packed recv"][:length].view_as(recv)
        return LaunchSequence(
            [
                partial(torch.index_select, send, 0, self._order, out=sent),
                partial(self._exchange, [(sent, received)]),
                partial(recv.index_copy_, 0, self._order, received),
            ]
        )

    def _exchange(self, pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Send to the next rank, and receive from the one before."""
        group, rank = self.process_group, self.ranks[0]
        after = dist.get_global_rank(group, (rank + 1) % self.size)
        before = dist.get_global_rank(group, (rank - 1) % self.size)
        operations = [dist.P2POp(dist.isend, send, after, group) for send, _ in pairs]
        operations += [dist.P2POp(dist.irecv, recv, before, group) for _, recv in pairs]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
