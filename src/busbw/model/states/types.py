"""What `busbw plan gpt --memory` predicts: does a training fit, and how long does a step take.

Bytes, seconds, and bytes per second.
"""

import msgspec

from busbw.core.gpt_shape import GptShape


class Training(msgspec.Struct, frozen=True, kw_only=True):
    """The training to plan: samples and tokens of each, on one GPU.

    `max_norm`: gradients are clipped to this norm.
    """

    shape: GptShape
    batch_size: int
    sequence: int
    recompute: bool
    max_norm: float | None = None

    @property
    def tokens(self) -> int:
        """Of a step."""
        return self.batch_size * self.sequence

    @property
    def parameters(self) -> int:
        """Of the model."""
        return self.shape.parameters(self.sequence)


class Compute(msgspec.Struct, frozen=True):
    """Seconds of the parts of a step: one layer's forward and backward, the second with the
    recomputed forward, and all that is outside of layers.
    """

    layer_forward_s: float
    layer_backward_s: float
    root_forward_s: float
    root_backward_s: float


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU and its host.

    `host_memory` is what states may take, `process` what a process with torch holds besides them.

    `down` and `up` are copies from and to the GPU; `host_adam` and `gpu_adam` are updates in
    parameters per second, the second 0 where it is not known and taken as no time. `measured`: on
    this machine, not given.
    """

    gpu_memory: int
    host_memory: int
    process: int = 0
    down: float
    up: float
    host_adam: float
    gpu_adam: float = 0.0
    compute: Compute
    measured: bool = False


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of a GPU at the peak, by what holds them; and of the host.

    `activations` are those kept for backward, `layer` one layer's in backward, `scores` those of
    the output and the loss.
    """

    weights: int
    states: int = 0
    gradients: int = 0
    activations: int = 0
    layer: int = 0
    scores: int = 0
    host: int = 0

    @property
    def gpu(self) -> int:
        """The sum on the GPU."""
        return (
            self.weights
            + self.states
            + self.gradients
            + self.activations
            + self.layer
            + self.scores
        )


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """One way to keep the states: its method for busbw train, what it needs, and a step.

    `lacks` says what does not fit, '' if all does.
    """

    method: str
    gpu_share: float
    memory: Memory
    step_s: float
    exposed_s: float
    lacks: str = ""


class StatesPlan(msgspec.Struct, kw_only=True, tag="busbw.states-plan/1", tag_field="schema"):
    """The plan. `compute_s` is forward and backward alone."""

    training: Training
    machine: Machine
    compute_s: float
    ways: list[Way]

    def recommended(self) -> Way | None:
        """Of the ways that fit the fastest; of equal ones, to 1 %, the first listed."""
        fitting = [way for way in self.ways if not way.lacks]
        if not fitting:
            return None
        fastest = min(way.step_s for way in fitting)
        return next(way for way in fitting if way.step_s <= 1.01 * fastest)
