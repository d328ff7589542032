"""Peaks of memory, from the allocations of busbw.train.gpt and of each way to keep states.

Bytes of activations for each token and element of width, in bf16, that a layer keeps for its
backward: input 2, output of the norm 2, queries, keys and values 6, output of attention 2, and for
the second half input 2, norm 2, and 8 each before and after gelu: 32. Its backward needs 10 more:
the gradient of its output, and that of the activations of the feed-forward part.
"""

from busbw.core.offloading import HOST_BYTES, PIECE, STAGING_BUFFERS, STATE_BYTES
from busbw.model.states.types import Memory, Training

LAYER_BYTES, INPUT_BYTES, BACKWARD_BYTES = 32, 2, 10
BF16, FP32 = 2, 4
# of each score of one sample in the backward of the loss: log-softmax, its gradient, and that of
# the scores
SCORES_BYTES = 3 * FP32


def on_gpu(training: Training) -> Memory:
    """All states on the GPU: fp32 weights and moments, bf16 weights and gradients; fp32
    gradients of one layer in the update.
    """
    shape, count = training.shape, training.parameters
    weights, states = BF16 * count, STATE_BYTES * count
    begins = _begins(training, weights, states, 0)
    ends = Memory(
        weights=weights,
        states=states,
        gradients=BF16 * count + 2 * _table(training),
        layer=_layer(training),
    )
    updates = Memory(
        weights=weights,
        states=states,
        gradients=BF16 * count + FP32 * max(shape.block, shape.root(training.sequence)),
    )
    return max(begins, ends, updates, key=lambda one: one.gpu)


def offloaded(training: Training, kept: int, in_flight: int) -> Memory:
    """States of `kept` parameters on the GPU, the others on the host; `in_flight` bytes of
    gradients are on their way there.
    """
    count = training.parameters
    waiting = BF16 * kept if training.max_norm is not None else 0
    update = FP32 * min(PIECE, kept)
    staging = STAGING_BUFFERS * BF16 * min(PIECE, _largest(training)) if kept < count else 0
    return _begins(
        training,
        BF16 * count,
        STATE_BYTES * kept,
        in_flight + waiting + update,
        HOST_BYTES * (count - kept) + staging,
    )


def streamed(training: Training, kept: int, kept_of_root: int, in_flight: int) -> Memory:
    """As `offloaded`, with the weights of two layers on the GPU at a time.

    Before the first step all weights are there.
    """
    shape, count = training.shape, training.parameters
    whole = Memory(
        weights=BF16 * count,
        states=STATE_BYTES * kept,
        scores=_table(training),
        host=HOST_BYTES * (count - kept),
    )
    there = (
        min(2, shape.layers)
        * shape.block
        * (1 - (kept - kept_of_root) / (shape.layers * shape.block))
    )
    weights = BF16 * (shape.root(training.sequence) + kept - kept_of_root + round(there))
    waiting = BF16 * kept if training.max_norm is not None else 0
    steps = _begins(
        training,
        weights,
        STATE_BYTES * kept,
        in_flight + waiting + FP32 * min(PIECE, kept),
        HOST_BYTES * (count - kept),
    )
    return max(whole, steps, key=lambda one: one.gpu)


def _begins(training: Training, weights: int, states: int, gradients: int, host: int = 0) -> Memory:
    """The largest of three moments: backward of the loss, of the last layer while all
    activations are kept, and of the tokens' table.
    """
    shape = training.shape
    kept, table = _kept(training), _table(training)
    # of the last norm: input, output and gradient
    hidden = 3 * BF16 * training.tokens * shape.width
    scores = shape.vocabulary * training.sequence
    loss = hidden + max(SCORES_BYTES * scores + table, BF16 * scores + 2 * table, 3 * table)
    common = {"weights": weights, "states": states, "activations": kept, "host": host}
    one = Memory(gradients=gradients, scores=loss, **common)
    other = Memory(gradients=gradients + table, layer=_layer(training), **common)
    last = Memory(weights=weights, states=states, gradients=gradients + 3 * table, host=host)
    return max(one, other, last, key=lambda moment: moment.gpu)


def _kept(training: Training) -> int:
    """Activations of all layers at the end of forward."""
    shape = training.shape
    if training.recompute:
        return INPUT_BYTES * training.tokens * shape.width * shape.layers
    statistics = 4 * FP32 + FP32 * shape.heads  # of two norms, and of attention
    return (LAYER_BYTES * shape.width + statistics) * training.tokens * shape.layers


def _layer(training: Training) -> int:
    """What the backward of a layer needs besides what was kept, with the gradients of its
    largest matrix.
    """
    again = LAYER_BYTES - INPUT_BYTES if training.recompute else 0
    return (
        BACKWARD_BYTES + again
    ) * training.tokens * training.shape.width + 4 * BF16 * training.shape.width**2


def _largest(training: Training) -> int:
    """Elements of the largest parameter."""
    shape = training.shape
    return max(shape.vocabulary * shape.width, 4 * shape.width**2)


def _table(training: Training) -> int:
    """The gradient of the tokens' table, which lives from the loss until the end of backward."""
    return BF16 * training.shape.vocabulary * training.shape.width
