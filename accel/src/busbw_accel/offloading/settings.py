"""The settings of an offloaded optimizer."""

from dataclasses import dataclass

from busbw.core.errors import UsageError


@dataclass(frozen=True, slots=True)
class OffloadSettings:
    """The settings of an offloaded optimizer.

    `max_norm`: the norm to which gradients are clipped, as by clip_grad_norm_; None does not clip,
    and updates begin during backward. `gpu_share`: the share of the parameters whose states stay on
    the GPU. `stream_weights`: keep the weights on the host too, and copy those of each unit to the
    device when it runs. `threads`: the threads of updates; 0 takes the cores of this process, at
    most 16. `skip_nonfinite`: skip a step in which a gradient is not finite, instead of raising;
    needs max_norm.
    """

    max_norm: float | None
    gpu_share: float = 0.0
    stream_weights: bool = False
    threads: int = 0
    skip_nonfinite: bool = False

    def __post_init__(self) -> None:
        if self.max_norm is not None and not self.max_norm > 0:
            raise UsageError(
                f"max_norm is {self.max_norm}, and must be above 0",
                "give the norm to clip to, inf to clip nothing, or None",
            )
        if not 0 <= self.gpu_share <= 1:
            raise UsageError(
                f"gpu_share is {self.gpu_share}, and must be between 0 and 1",
                "busbw plan --memory-plan prints one that fits",
            )
        if self.threads < 0:
            raise UsageError(
                f"threads is {self.threads}, and cannot be negative",
                "give a number of threads, or 0 for all cores",
            )
        if self.skip_nonfinite and self.max_norm is None:
            raise UsageError(
                "skip_nonfinite needs max_norm: without it updates begin before all gradients are"
                " known",
                "max_norm=math.inf",
            )
