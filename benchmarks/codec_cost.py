"""The cost of a codec on one GPU, compared with torch.topk and a plain copy: `python
benchmarks/codec_cost.py [ELEMENTS ...]`.

One rank exchanges with itself, so the network costs nothing. Medians over 20 calls by CUDA events,
with the second smallest and second largest. Each call first copies the gradient, which the exchange
overwrites; the figures include that copy. Of `exact`, whose own row is not coded, the figures are
those of its coder without a copy.
"""

import itertools
import sys
from collections.abc import Callable
from functools import partial

import torch
import torch.distributed as dist

from busbw_accel.codecs import codec_for, coder, kernels
from busbw_accel.mesh import make
from busbw_accel.settings import Settings

CALLS = 20
WIDTH = 4096  # of the matrix that a gradient is to PowerSGD
CODECS = {
    "top-k 1 %, fp32 values": Settings(method="topk"),
    "top-k 1 %, fp16 values": Settings(method="topk", values="fp16"),
    "int8": Settings(method="int8"),
    "int4": Settings(method="int4"),
    "PowerSGD rank 4": Settings(method="powersgd"),
    "PowerSGD rank 8": Settings(method="powersgd", matrix_rank=8),
    "PowerSGD rank 16": Settings(method="powersgd", matrix_rank=16),
    "PowerSGD rank 16, bf16": Settings(method="powersgd", matrix_rank=16, factors="bf16"),
}


def timed(call: Callable[[], object]) -> str:
    """Milliseconds of the GPU."""
    for _ in range(5):
        call()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(CALLS + 1)]
    torch.cuda.synchronize()
    marks[0].record()
    for mark in marks[1:]:
        call()
        mark.record()
    torch.cuda.synchronize()
    times = sorted(begin.elapsed_time(end) for begin, end in itertools.pairwise(marks))
    return f"{times[CALLS // 2]:.3f} ({times[1]:.3f} to {times[-2]:.3f}) ms"


def exchanged(codec, part, gradient, line, state, steps) -> None:
    """Exchange a copy of the gradient, as the next step."""
    codec.exchange(part.copy_(gradient), line, state, next(steps))


def show_coder(gradient: torch.Tensor, show: Callable[[str, str], None]) -> None:
    """The time that coding a gradient takes in each format, and back."""
    narrow = gradient.bfloat16()
    for name, row in {"fp32": gradient, "fp32 of bf16": narrow.float(), "bf16": narrow}.items():
        message = row.new_empty(coder.message_bytes(row), dtype=torch.uint8)
        out = torch.empty_like(row)
        coder.write(row, message)
        share = int(message.view(torch.int64)[0]) / row.nbytes
        show(
            f"exact, {name} to {share:.3f} of its bytes:", timed(partial(coder.write, row, message))
        )
        show(f"exact, {name}, back:", timed(partial(coder.read, message, out)))


def main(lengths: list[int]) -> None:
    """Prints a line for each figure."""
    dist.init_process_group("cuda:nccl", store=dist.HashStore(), rank=0, world_size=1)
    line, in_kernels = make(Settings()).world, kernels.usable
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    for length in lengths:
        gradient = torch.randn(length, device="cuda")
        part, magnitude = torch.empty_like(gradient), gradient.abs()
        show = partial(print, f"{length} elements,")
        show("a copy:", timed(partial(part.copy_, gradient)))
        show("torch.topk 1 %:", timed(partial(torch.topk, magnitude, length // 100, sorted=False)))
        show_coder(gradient, show)
        for (name, settings), usable in itertools.product(
            CODECS.items(), (in_kernels, lambda _: False)
        ):
            kernels.usable = usable
            codec, state, steps = (
                codec_for(settings.method, settings, ((length // WIDTH, WIDTH), (length % WIDTH,))),
                {},
                itertools.count(),
            )
            means = "Triton" if usable is in_kernels else "plain torch"
            exchange = partial(exchanged, codec, part, gradient, line, state, steps)
            show(f"{name}, {means}:", timed(exchange))
    dist.destroy_process_group()


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]] or [24_414 * WIDTH, 1_600 * WIDTH])
