"""The whole gradient, in its own format or a narrower one."""

import torch
import torch.distributed as dist

from busbw.accel.codecs.base import Codec, State, ring_bytes
from busbw.accel.mesh import Line

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Dense(Codec):
    """An all-reduce; what a narrower format loses is not kept, as in DDP's own bf16 and fp16 hooks."""

    def exchange(self, part: torch.Tensor, line: Line, state: State, step: int) -> int:
        """See Codec.exchange."""
        part.div_(line.size)  # first, as DDP does: a sum may be too large for its format
        sent = part if part.is_complex() else part.to(DTYPES.get(self.settings.wire, part.dtype))
        dist.all_reduce(sent, group=line.group)
        if sent is not part:
            part.copy_(sent)
        return line.ring(ring_bytes(sent.numel() * sent.element_size(), line.size))
