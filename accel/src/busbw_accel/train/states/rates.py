"""Measures the rates of this machine that a plan needs.

They are the times of a layer and of the other parts of a step, the rates of copies and of updates
on GPU and CPU, and the memory.
"""

from collections.abc import Callable
from statistics import median

import torch
from torch import nn

from busbw.core.errors import NoMeasurement
from busbw_accel.host_adam import HostAdam, Rule, States
from busbw_accel.memory_plan.types import Compute, Machine, PlannedTraining
from busbw_accel.offloading import device_states, host_memory
from busbw_accel.offloading.copy_streams import Lane
from busbw_accel.offloading.host_memory import Slab, padded
from busbw_accel.offloading.state_bytes import PIECE
from busbw_accel.offloading.state_memory import OffloadedParameter, Unit
from busbw_accel.train.loop import time_steps
from busbw_accel.train.models import Block, Gpt
from busbw_accel.train.states.bench import memory_bytes

WARM_UP, REPEATS = 2, 5
RULE = Rule(1, 1e-4)
HOST_ELEMENTS, COPIES = 4 * PIECE, 8


def machine(training: PlannedTraining, gpu_memory: int = 0) -> Machine:
    """Measure on the first GPU.

    `gpu_memory`: the limit of its memory that the training may use, 0 for all.

    Raises:
        NoMeasurement: there is no GPU, or one layer does not fit on it.
    """
    if not torch.cuda.is_available():
        hint = "give --gpu-memory, --host-memory, --tflops, --pcie and --adam-rate"
        raise NoMeasurement("PyTorch sees no GPU here, so a plan needs the machine's rates", hint)
    device = torch.device("cuda", 0)
    host = host_memory.usable()
    total = torch.cuda.get_device_properties(device).total_memory
    try:
        compute = compute_of(training, device)
    except torch.OutOfMemoryError as error:
        message = (
            f"one layer of {training.shape.width} and {training.tokens:,} tokens does not fit on"
            " the GPU"
        )
        raise NoMeasurement(message, "give a smaller --batch-size or --sequence") from error
    down, up = copy_rates(device)
    host_adam, gpu_adam = host_rate(HOST_ELEMENTS), gpu_rate(device, PIECE)
    return Machine(
        gpu_memory=min(total, gpu_memory) if gpu_memory else total,
        host_memory=host,
        process=memory_bytes("VmRSS"),
        down=down,
        up=up,
        host_adam=host_adam,
        gpu_adam=gpu_adam,
        compute=compute,
        measured=True,
    )


def compute_of(training: PlannedTraining, device: torch.device) -> Compute:
    """Forward and backward of one layer, and of the model without layers."""
    shape = training.shape
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with device:
            block = Block(shape.width, shape.heads)
            root = Gpt(0, shape.width, shape.heads, shape.vocabulary, training.sequence)
            size = (training.batch_size, training.sequence)
            hidden = torch.randn(*size, shape.width, requires_grad=True)
            tokens = torch.randint(shape.vocabulary, size)
    finally:
        torch.set_default_dtype(before)
    gradient = torch.ones_like(hidden)
    forward, backward = _time_passes(block, lambda: block(hidden), gradient, device)
    root_forward, root_backward = _time_passes(root, lambda: root(tokens, tokens), None, device)
    if training.recompute:
        backward += forward
    return Compute(forward, backward, root_forward, root_backward)


def _time_passes(
    net: nn.Module,
    run: Callable[[], torch.Tensor],
    gradient: torch.Tensor | None,
    device: torch.device,
) -> tuple[float, float]:
    """The seconds of forward and of backward.

    Backward is the time of both less that of forward. In both together the GPU does not wait for
    the program.
    """

    def step() -> None:
        run().backward(gradient)
        net.zero_grad()

    forward, both = _time(run, device), _time(step, device)
    return forward, max(0.0, both - forward)


def _time(step: Callable[[], object], device: torch.device) -> float:
    """The median seconds of a step."""
    time_steps(step, device, WARM_UP)
    return median(time_steps(step, device, REPEATS))


def copy_rates(device: torch.device) -> tuple[float, float]:
    """Bytes per second of pinned copies from and to the GPU, of the size that offloading uses."""
    slab = Slab(2 * PIECE, pinned=device.type == "cuda")
    host = slab.take(PIECE, torch.bfloat16)
    gpu = torch.zeros(PIECE, dtype=torch.bfloat16, device=device)
    rates = []
    for to, source in ((host, gpu), (gpu, host)):
        lane = Lane(device)
        copies = [lane.copy(to, source) for _ in range(COPIES)]
        copies[-1].wait()
        rates.append(gpu.nbytes / median(copy.seconds() for copy in copies))
    slab.close()
    return rates[0], rates[1]


def host_rate(count: int) -> float:
    """Parameters per second of updates on the CPU."""
    slab = Slab(3 * padded(4 * count) + padded(2 * count), pinned=False)
    adam, states = HostAdam(), States(*(slab.take(count, torch.float32) for _ in range(3)))
    slot = slab.take(count, torch.bfloat16)
    took = _time(lambda: adam.update(RULE, slot, states, slot), torch.device("cpu"))
    adam.close()
    return count / took


def gpu_rate(device: torch.device, count: int) -> float:
    """Parameters per second of updates on the GPU."""
    parameter = nn.Parameter(torch.zeros(count, dtype=torch.bfloat16, device=device))
    states = States(*(torch.zeros(count, device=device) for _ in range(3)))
    unit = Unit(nn.Module(), 0)
    offloaded = OffloadedParameter(
        "", parameter, 0, 0, unit, parameter.data, on_device=True, states=states
    )
    gradient, never = torch.zeros_like(parameter.data), torch.zeros((), device=device)
    return count / _time(lambda: device_states.update(offloaded, gradient, RULE, never), device)
