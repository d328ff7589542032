"""AdamW on the CPU: busbw-native, torch's fused one and DeepSpeed's, compared with moving the same
bytes.

One mixed-precision step: gradients in bf16, fp32 weights and moments, weights out in bf16. torch
    and DeepSpeed need an fp32 copy of the
gradients and a conversion of the weights, which count. Rounds alternate. Prints a table and writes
    JSON:
  python3 benchmarks/host_adam.py host_adam.json [millions of elements]
Needs gcc; DeepSpeed, which compiles its update (nvcc, ninja), is left out if it is not installed.
"""

import ctypes
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
from host_memory import compiled

from busbw_accel.host_adam import HostAdam, Rule, States

ROUNDS = 7
RULE = Rule(1, 1e-3)


class Step:
    """The tensors of one step. Memory of all of them is touched."""

    def __init__(self, count: int) -> None:
        self.gradient = torch.randn(count).mul_(1e-2).bfloat16()
        self.wide = torch.empty(count)
        self.states = States(torch.randn(count), torch.zeros(count), torch.zeros(count))
        self.copy = torch.empty(count, dtype=torch.bfloat16)
        for one in (self.wide, self.copy):
            one.zero_()


def methods(step: Step) -> dict[str, Callable[[], None]]:
    """What is compared, by name."""
    states, cores = step.states, len(os.sched_getaffinity(0))
    library, adam = compiled(), HostAdam(min(cores, 16))
    assert adam.native, "busbw-native is not installed"
    addresses = [
        one.data_ptr()
        for one in (step.gradient, states.weight, states.moment, states.square, step.copy)
    ]

    def bytes_only() -> None:
        library.update(
            min(cores, 16), ctypes.c_size_t(step.gradient.numel()), *map(ctypes.c_void_p, addresses)
        )

    def ours() -> None:
        adam.update(RULE, step.gradient, states, step.copy)

    def fused() -> None:
        step.wide.copy_(step.gradient)
        torch._fused_adamw_(
            [states.weight],
            [step.wide],
            [states.moment],
            [states.square],
            [],
            [torch.tensor(1.0)],
            lr=1e-3,
            beta1=0.9,
            beta2=0.999,
            weight_decay=0.01,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )
        step.copy.copy_(states.weight)

    found = {"bytes only, C": bytes_only, "busbw-native": ours, "torch, fused, with casts": fused}
    return found | _deepspeed(step)


def _deepspeed(step: Step) -> dict[str, Callable[[], None]]:
    try:
        from deepspeed.ops.adam import DeepSpeedCPUAdam
    except ImportError as error:
        print(f"DeepSpeed is left out: {error}")
        return {}
    weight = torch.nn.Parameter(step.states.weight)
    optimizer = DeepSpeedCPUAdam([weight], lr=1e-3, adamw_mode=True)

    def update() -> None:
        step.wide.copy_(step.gradient)
        weight.grad = step.wide
        optimizer.step()
        step.copy.copy_(weight.data)

    def bare() -> None:
        weight.grad = step.wide
        optimizer.step()

    return {
        "DeepSpeedCPUAdam, with casts": update,
        "DeepSpeedCPUAdam, fp32 gradients, no weights out": bare,
    }


def main() -> None:
    """Measure and print."""
    millions = int(sys.argv[2]) if len(sys.argv) > 2 else 512
    step = Step(millions << 20)
    found = methods(step)
    times: dict[str, list[float]] = {name: [] for name in found}
    for number in range(ROUNDS + 1):
        for name, run in found.items():
            begun = time.perf_counter()
            run()
            if number:
                times[name].append(time.perf_counter() - begun)
    rates = {
        name: sorted(step.gradient.numel() / one / 1e9 for one in runs)
        for name, runs in times.items()
    }
    for name, one in rates.items():
        print(
            f"{name:50} {statistics.median(one):5.2f} G elements/s ({one[0]:.2f} to {one[-1]:.2f})"
        )
    Path(sys.argv[1]).write_text(
        json.dumps({"elements": step.gradient.numel(), "torch": torch.__version__, "rates": rates})
    )


if __name__ == "__main__":
    main()
