"""The plan: each way to keep the states, with the share of them on the GPU that is fastest of
those that fit.

The first part has the peaks of memory, from the allocations of busbw_accel.train.models and of each
way to keep states. Bytes of activations for each token and element of width, in bf16, that a layer
keeps for its backward: input 2, output of the norm 2, queries, keys and values 6, output of
attention 2, and for the second half input 2, norm 2, and 8 each before and after gelu: 32. Its
backward needs 10 more: the gradient of its output, and that of the activations of the feed-forward
part.
"""

from busbw.core.errors import UsageError
from busbw_accel.memory_plan.schedule import StepSimulation, StepTimeline
from busbw_accel.memory_plan.types import (
    Compute,
    Machine,
    PeakMemory,
    PlannedTraining,
    StatesPlan,
    Way,
)
from busbw_accel.offloading.state_bytes import HOST_BYTES, PIECE, STAGING_BUFFERS, STATE_BYTES

LAYER_BYTES, INPUT_BYTES, BACKWARD_BYTES = 32, 2, 10
BF16, FP32 = 2, 4
# For each score of one sample in the backward of the loss: log-softmax, its gradient, and that of
# the scores.
SCORES_BYTES = 3 * FP32
EQUAL_STEP_SHARE = 0.01  # of equal steps the one with fewer states on the GPU is taken
GPU_SHARES = tuple(percent / 100 for percent in range(0, 101, 5))
GPU_RESERVE = 1 << 30  # bytes for the CUDA context and cuBLAS
FRAGMENTS = 0.03  # of the allocator's memory, lost between blocks


def on_gpu(training: PlannedTraining) -> PeakMemory:
    """All states on the GPU: fp32 weights and moments, bf16 weights and gradients; fp32
    gradients of one layer in the update.
    """
    shape, count = training.shape, training.parameters
    weights, states = BF16 * count, STATE_BYTES * count
    begins = _begins(training, weights, states, 0)
    ends = PeakMemory(
        weights=weights,
        states=states,
        gradients=BF16 * count + 2 * _table(training),
        layer=_layer(training),
    )
    updates = PeakMemory(
        weights=weights,
        states=states,
        gradients=BF16 * count + FP32 * max(shape.block, shape.root(training.sequence)),
    )
    return max(begins, ends, updates, key=lambda memory: memory.gpu)


def offloaded(training: PlannedTraining, kept: int, in_flight: int) -> PeakMemory:
    """States of `kept` parameters on the GPU, the others on the host; `in_flight` bytes of
    gradients are on their way there.
    """
    count = training.parameters
    waiting = BF16 * kept if training.max_norm is not None else 0
    update = FP32 * min(PIECE, kept)
    staging = STAGING_BUFFERS * BF16 * min(PIECE, _largest(training)) if kept < count else 0
    host = HOST_BYTES * (count - kept) + staging
    gradients = in_flight + waiting + update
    return _begins(training, BF16 * count, STATE_BYTES * kept, gradients, host)


def streamed(training: PlannedTraining, kept: int, kept_of_root: int, in_flight: int) -> PeakMemory:
    """As `offloaded`, with the weights of two layers on the GPU at a time.

    Before the first step all weights are there.
    """
    shape, count = training.shape, training.parameters
    host = HOST_BYTES * (count - kept)
    states = STATE_BYTES * kept
    start = PeakMemory(weights=BF16 * count, states=states, scores=_table(training), host=host)
    kept_of_layers = kept - kept_of_root
    streamed_share = 1 - kept_of_layers / (shape.layers * shape.block)
    two_layers = min(2, shape.layers) * shape.block * streamed_share
    weights = BF16 * (shape.root(training.sequence) + kept_of_layers + round(two_layers))
    waiting = BF16 * kept if training.max_norm is not None else 0
    gradients = in_flight + waiting + FP32 * min(PIECE, kept)
    steps = _begins(training, weights, states, gradients, host)
    return max(start, steps, key=lambda memory: memory.gpu)


def _begins(
    training: PlannedTraining, weights: int, states: int, gradients: int, host: int = 0
) -> PeakMemory:
    """The largest of three moments: backward of the loss, of the last layer while all
    activations are kept, and of the tokens' table.
    """
    shape = training.shape
    kept, table = _kept(training), _table(training)
    # Input, output and gradient of the last norm.
    hidden = 3 * BF16 * training.tokens * shape.width
    scores = shape.vocabulary * training.sequence
    loss = hidden + max(SCORES_BYTES * scores + table, BF16 * scores + 2 * table, 3 * table)
    common = {"weights": weights, "states": states, "activations": kept, "host": host}
    at_loss = PeakMemory(gradients=gradients, scores=loss, **common)
    at_layer = PeakMemory(gradients=gradients + table, layer=_layer(training), **common)
    at_table = PeakMemory(
        weights=weights, states=states, gradients=gradients + 3 * table, host=host
    )
    return max(at_loss, at_layer, at_table, key=lambda memory: memory.gpu)


def _kept(training: PlannedTraining) -> int:
    """Bytes of the activations of all layers at the end of forward."""
    shape = training.shape
    if training.recompute:
        return INPUT_BYTES * training.tokens * shape.width * shape.layers
    statistics = 4 * FP32 + FP32 * shape.heads  # of two norms, and of attention
    return (LAYER_BYTES * shape.width + statistics) * training.tokens * shape.layers


def _layer(training: PlannedTraining) -> int:
    """The bytes that the backward of a layer needs besides what was kept, with the gradients of
    its largest matrix.
    """
    width = training.shape.width
    recomputed = LAYER_BYTES - INPUT_BYTES if training.recompute else 0
    activations = (BACKWARD_BYTES + recomputed) * training.tokens * width
    return activations + 4 * BF16 * width**2


def _largest(training: PlannedTraining) -> int:
    """Elements of the largest parameter."""
    shape = training.shape
    return max(shape.vocabulary * shape.width, 4 * shape.width**2)


def _table(training: PlannedTraining) -> int:
    """Bytes of the gradient of the tokens' table, alive from the loss to the end of backward."""
    return BF16 * training.shape.vocabulary * training.shape.width


def compute_of(training: PlannedTraining, flops: float) -> Compute:
    """Seconds from a rate of matrix products: 2 operations for each parameter and token in
    forward, and the products of attention.
    """
    shape, tokens = training.shape, training.tokens
    # Two products, half of each left out by the causal mask.
    attention = 2 * tokens * training.sequence * shape.width
    forward = (2 * 12 * shape.width**2 * tokens + attention) / flops
    scores = 2 * shape.vocabulary * shape.width * tokens / flops
    return Compute(forward, (3 if training.recompute else 2) * forward, scores, 3 * scores)


def plan(training: PlannedTraining, machine: Machine) -> StatesPlan:
    """All ways, the simplest first.

    UsageError if a rate or a size of the machine is not above 0.
    """
    for name in ("gpu_memory", "down", "up", "host_adam"):
        value = getattr(machine, name)
        if not value > 0:
            raise UsageError(f"the machine's {name} is {value}", "give a number above 0")
    ways = [
        _on_gpu(training, machine),
        _offload(training, machine, stream=False),
        _offload(training, machine, stream=True),
    ]
    return StatesPlan(
        training=training, machine=machine, compute_s=compute_s(training, machine), ways=ways
    )


def compute_s(training: PlannedTraining, machine: Machine) -> float:
    """Seconds of forward and backward without anything else."""
    parts, layers = machine.compute, training.shape.layers
    root_s = parts.root_forward_s + parts.root_backward_s
    return root_s + layers * (parts.layer_forward_s + parts.layer_backward_s)


def _on_gpu(training: PlannedTraining, machine: Machine) -> Way:
    needs = on_gpu(training)
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


def _offload(training: PlannedTraining, machine: Machine, *, stream: bool) -> Way:
    """The fastest share that fits; where none fits the one that lacks least."""
    ways = [
        _at_share(training, machine, share, stream=stream) for share in _shares(training, machine)
    ]
    fitting = [way for way in ways if not way.lacks]
    if not fitting:
        return min(ways, key=lambda way: _excess(way.memory, machine))
    limit_s = (1 + EQUAL_STEP_SHARE) * min(way.step_s for way in fitting)
    fast = [way for way in fitting if way.step_s <= limit_s]
    return min(fast, key=lambda way: way.gpu_share)


def _shares(training: PlannedTraining, machine: Machine) -> list[float]:
    """The shares to try: steps of 5 %, and the least with which the host's memory is enough."""
    least = 1 - machine.host_memory / (HOST_BYTES * training.parameters)
    needed = [round(least + 0.005, 2)] if 0 < least < 0.99 else []
    return sorted({*GPU_SHARES, *needed})


def _at_share(training: PlannedTraining, machine: Machine, share: float, *, stream: bool) -> Way:
    timeline = StepSimulation(training, machine, share, stream_weights=stream).timeline()
    needs = _memory(training, timeline, stream=stream)
    words = ["offload"]
    if stream:
        words.append("stream_weights=1")
    if share:
        words.append(f"gpu_share={share:g}")
    if training.max_norm is not None:
        words.append(f"max_norm={training.max_norm:g}")
    exposed = max(0.0, timeline.step_s - compute_s(training, machine))  # not below 0 by rounding
    return Way(
        method="+".join(words),
        gpu_share=share,
        memory=needs,
        step_s=timeline.step_s,
        exposed_s=exposed,
        lacks=lacks(needs, machine),
    )


def _memory(training: PlannedTraining, timeline: StepTimeline, *, stream: bool) -> PeakMemory:
    if stream:
        return streamed(training, timeline.kept, timeline.kept_of_root, timeline.in_flight)
    return offloaded(training, timeline.kept, timeline.in_flight)


def gpu_room(machine: Machine) -> float:
    """Bytes of the GPU that tensors can take."""
    return max(0.0, (machine.gpu_memory - GPU_RESERVE) * (1 - FRAGMENTS))


def lacks(needs: PeakMemory, machine: Machine) -> str:
    """What does not fit; '' if all does."""
    short = []
    if needs.gpu > gpu_room(machine):
        short.append(f"{(needs.gpu - gpu_room(machine)) / 1e9:.1f} GB on the GPU")
    if needs.host > machine.host_memory:
        short.append(f"{(needs.host - machine.host_memory) / 1e9:.1f} GB on the host")
    return " and ".join(short)


def _excess(needs: PeakMemory, machine: Machine) -> float:
    return max(0.0, needs.gpu - gpu_room(machine)) + max(0, needs.host - machine.host_memory)
