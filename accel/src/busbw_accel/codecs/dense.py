"""Sends the whole gradient, in its own format or a narrower one."""

import torch

from busbw_accel.codecs.base import Codec, State, ring_bytes, share, sum_rows
from busbw_accel.communicator import Bytes, Communicator

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Dense(Codec):
    """An all-reduce.

    Rounding errors of a narrower format are not kept, as in DDP's own bf16 and fp16 hooks.
    """

    def exchange(self, part: torch.Tensor, comm: Communicator, state: State, step: int) -> Bytes:
        wire = DTYPES.get(self.settings.wire, part.dtype)
        sent = part
        if wire == part.dtype:
            comm.average(part)
        else:
            sent = part.div_(comm.size).to(wire)
            comm.all_reduce(sent)
            part.copy_(sent)
        return comm.ring(ring_bytes(sent.numel() * sent.element_size(), comm.size))

    def reduce_scatter(
        self, rows: torch.Tensor, shard: torch.Tensor, comm: Communicator, state: State, step: int
    ) -> Bytes:
        """Ranks send each other their rows in the format of `wire`; the owner sums in fp32."""
        sent = share(rows, comm).to(DTYPES.get(self.settings.wire, rows.dtype))
        shard.copy_(sum_rows(comm.all_to_all(sent)))
        return comm.direct((comm.size - 1) * sent[0].nbytes)

    def all_gather(self, shard: torch.Tensor, gathered: torch.Tensor, comm: Communicator) -> Bytes:
        sent = shard.to(DTYPES.get(self.settings.wire, shard.dtype))
        gathered.view(comm.size, -1).copy_(comm.all_gather(sent))
        return comm.all_gather_bytes(sent.nbytes)
