"""The plan: each way to keep the states, with the share of them on the GPU that is fastest of
those that fit.
"""

from busbw.core.errors import UsageError
from busbw.core.offloading import HOST_BYTES
from busbw.model.states import memory
from busbw.model.states.schedule import Schedule, Timeline
from busbw.model.states.types import Compute, Machine, Memory, StatesPlan, Training, Way

ALIKE = 0.01  # of equal steps the one with fewer states on the GPU is taken
SHARES = tuple(percent / 100 for percent in range(0, 101, 5))
GPU_RESERVE = 1 << 30  # bytes for the CUDA context and cuBLAS
FRAGMENTS = 0.03  # of the allocator's memory, lost between blocks


def compute_of(training: Training, flops: float) -> Compute:
    """Seconds from a rate of matrix products: 2 operations for each parameter and token in
    forward, and the products of attention.
    """
    shape, tokens = training.shape, training.tokens
    # two products, half of each left out by the causal mask
    attention = 2 * tokens * training.sequence * shape.width
    forward = (2 * 12 * shape.width**2 * tokens + attention) / flops
    scores = 2 * shape.vocabulary * shape.width * tokens / flops
    return Compute(forward, (3 if training.recompute else 2) * forward, scores, 3 * scores)


def plan(training: Training, machine: Machine) -> StatesPlan:
    """All ways, the simplest first.

    Raises:
        UsageError: a rate or a size of the machine is not above 0.
    """
    for name in ("gpu_memory", "down", "up", "host_adam"):
        if not getattr(machine, name) > 0:
            raise UsageError(
                f"the machine's {name} is {getattr(machine, name)}", "give a number above 0"
            )
    ways = [
        _on_gpu(training, machine),
        _offload(training, machine, stream=False),
        _offload(training, machine, stream=True),
    ]
    return StatesPlan(
        training=training, machine=machine, compute_s=compute_s(training, machine), ways=ways
    )


def compute_s(training: Training, machine: Machine) -> float:
    """Forward and backward alone."""
    parts, layers = machine.compute, training.shape.layers
    return (
        parts.root_forward_s
        + parts.root_backward_s
        + layers * (parts.layer_forward_s + parts.layer_backward_s)
    )


def _on_gpu(training: Training, machine: Machine) -> Way:
    needs = memory.on_gpu(training)
    update = training.parameters / machine.gpu_adam if machine.gpu_adam else 0.0
    step = compute_s(training, machine) + update
    return Way(
        method="adamw",
        gpu_share=1.0,
        memory=needs,
        step_s=step,
        exposed_s=update,
        lacks=lacks(needs, machine),
    )


def _offload(training: Training, machine: Machine, *, stream: bool) -> Way:
    """The fastest share that fits; where none fits the one that lacks least."""
    ways = [
        _at_share(training, machine, share, stream=stream) for share in _shares(training, machine)
    ]
    fitting = [way for way in ways if not way.lacks]
    if not fitting:
        return min(ways, key=lambda way: _excess(way.memory, machine))
    fastest = min(way.step_s for way in fitting)
    return min(
        (way for way in fitting if way.step_s <= (1 + ALIKE) * fastest),
        key=lambda way: way.gpu_share,
    )


def _shares(training: Training, machine: Machine) -> list[float]:
    """The shares to try: steps of 5 %, and the least with which the host's memory is enough."""
    least = 1 - machine.host_memory / (HOST_BYTES * training.parameters)
    needed = [round(least + 0.005, 2)] if 0 < least < 0.99 else []
    return sorted({*SHARES, *needed})


def _at_share(training: Training, machine: Machine, share: float, *, stream: bool) -> Way:
    timeline = Schedule(training, machine, share, stream_weights=stream).timeline()
    needs = _memory(training, timeline, stream=stream)
    words = [
        "offload",
        *(["stream_weights=1"] if stream else []),
        *([f"gpu_share={share:g}"] if share else []),
    ]
    words += [f"max_norm={training.max_norm:g}"] if training.max_norm is not None else []
    exposed = max(0.0, timeline.step_s - compute_s(training, machine))  # not below by rounding
    return Way(
        method="+".join(words),
        gpu_share=share,
        memory=needs,
        step_s=timeline.step_s,
        exposed_s=exposed,
        lacks=lacks(needs, machine),
    )


def _memory(training: Training, timeline: Timeline, *, stream: bool) -> Memory:
    if stream:
        return memory.streamed(training, timeline.kept, timeline.kept_of_root, timeline.in_flight)
    return memory.offloaded(training, timeline.kept, timeline.in_flight)


def gpu_room(machine: Machine) -> float:
    """Bytes of the GPU that tensors can take."""
    return max(0.0, (machine.gpu_memory - GPU_RESERVE) * (1 - FRAGMENTS))


def lacks(needs: Memory, machine: Machine) -> str:
    """What does not fit; '' if all does."""
    short = []
    if needs.gpu > gpu_room(machine):
        short.append(f"{(needs.gpu - gpu_room(machine)) / 1e9:.1f} GB on the GPU")
    if needs.host > machine.host_memory:
        short.append(f"{(needs.host - machine.host_memory) / 1e9:.1f} GB on the host")
    return " and ".join(short)


def _excess(needs: Memory, machine: Machine) -> float:
    return max(0.0, needs.gpu - gpu_room(machine)) + max(0, needs.host - machine.host_memory)
