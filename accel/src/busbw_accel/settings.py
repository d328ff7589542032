"""The settings of an exchange of gradients: codec, sizes, formats."""

import dataclasses
import math
from dataclasses import dataclass
from typing import TypeVar

from busbw.core.errors import UsageError
from busbw_accel.methods import BY_NAME, DENSE, LEAST_FIRST, NAMES, CodecInfo, titles

BACKEND, HOST = "backend", "host"
SMALL_RATIO = 0.02  # of top-k: an eighth of a byte per element
_LOCAL = ("fragments", "delay", "mix", "outer_lr", "outer_momentum")  # settings of `every`
_CHOICES = {
    "method": NAMES,
    "last": ("", *NAMES),
    "staging": (BACKEND, HOST),
    "wire": ("same", "fp32", "bf16", "fp16"),  # "same": the type of the gradient
    "gather": ("same", "exact", "bf16", "int8"),  # "same": as fully_shard has them
    "values": ("fp32", "fp16"),
    "factors": ("fp32", "bf16"),  # fp16 would need scaling
}

T = TypeVar("T")


def _setting(default: T, meaning: str) -> T:
    """A field whose meaning the reference page prints."""
    return dataclasses.field(default=default, metadata={"meaning": meaning})


@dataclass(frozen=True, slots=True)
class Settings:
    """How gradients are exchanged.

    Sizes in bytes of a bucket (DDP), of what a call of fully_shard takes together (the gradients or
    parameters of all shards), or of a tensor (Horovod without fusion).
    """

    method: str = _setting(DENSE, "the codec, see below")
    last: str = _setting(
        "", "the method for DDP's last bucket, whose exchange no computation hides; '': the same"
    )
    staging: str = _setting(
        BACKEND,
        "how codecs' data is sent: by torch's backend (NCCL, Gloo), or `host`: from host memory by"
        " busbw-native",
    )
    wire: str = _setting(
        "same",
        "the format of a dense exchange, and of the rows of sparse gradients: the gradient's own,"
        " fp32, bf16 or fp16",
    )
    gather: str = _setting(
        "same",
        "fully_shard: the format in which shards of parameters are gathered: as they are, bf16, or"
        " from `compress_least` on int8 or exact (the same bits in fewer bytes)",
    )
    two_d: bool = _setting(False, "dense inside a host, the method across hosts")
    intra_size: int | None = _setting(None, "ranks of a 2D group; None: those of a host")
    two_d_most: int = _setting(1 << 30, "use 2D up to this size")
    compress_least: int = _setting(1 << 20, "use a method other than dense from this size on")
    ratio: float = _setting(0.01, "top-k: the fraction of elements that is sent")
    values: str = _setting("fp32", "top-k: the format of values, fp32 or fp16")
    feedback: bool = _setting(True, "add what was not sent to the next gradient")
    momentum: float = _setting(
        0.0, "top-k: momentum correction; the optimizer's momentum must then be 0"
    )
    matrix_rank: int = _setting(4, "PowerSGD: columns of the two factors of a matrix")
    factors: str = _setting("fp32", "PowerSGD: the format of the factors, fp32 or bf16")
    warmup_steps: int = _setting(
        0,
        "top-k: steps in which the ratio falls from 1/4 to `ratio`; PowerSGD: first steps, which"
        " are dense",
    )
    chunk: int | None = _setting(
        None, "2D: bytes of a piece, since pieces overlap; None: 32 MiB on GPUs, 4 MiB on CPUs"
    )
    dense_below_2d: bool = _setting(True, "send parameters of one dimension (bias, norm) densely")
    every: int = _setting(
        1,
        "1: gradients are exchanged in each step; N: ranks train by themselves, and the change of"
        " the parameters is exchanged after N optimizer steps (DiLoCo)",
    )
    fragments: int = _setting(
        1,
        "`every`: parts of the model, one of which is exchanged every `every`/`fragments` steps"
        " (Streaming DiLoCo)",
    )
    delay: int = _setting(
        0, "`every`: steps in which an exchange may run before its result is used; 0: wait for it"
    )
    mix: float = _setting(
        0.5,
        "`delay`: the share of the outer parameters in those that the rank goes on with, above 0,"
        " at most 1; without `delay` it goes on with the outer ones",
    )
    outer_lr: float = _setting(
        1.0,
        "`every`: the learning rate of the outer optimizer; 1 without momentum is the mean of the"
        " ranks' parameters",
    )
    outer_momentum: float = _setting(0.0, "`every`: its Nesterov momentum")

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not _has_type_of(field.default, value):
                raise _invalid(
                    field.name, f"{field.name} is {value!r}, of type {type(value).__name__}"
                )
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                names = ", ".join(filter(None, choices))
                raise _invalid(name, f"{name} '{value}' is not one of {names}")
        if not 0 < self.ratio <= 1:  # also true for nan
            raise _invalid(
                "ratio", f"ratio is {self.ratio}, and must be a share above 0, at most 1"
            )
        self._check_extras()
        self._check_sizes()
        self._check_local_steps()

    def _check_extras(self) -> None:
        """Check settings that only some methods have."""
        if not 0 <= self.momentum < 1:
            raise _invalid(
                "momentum", f"momentum is {self.momentum}, and must be at least 0 and below 1"
            )
        if self.momentum and not self.feedback:
            raise UsageError(
                "momentum correction needs error feedback", "leave feedback on, or momentum at 0"
            )
        if self.momentum and not BY_NAME[self.method].sparse:
            raise UsageError(
                f"momentum correction is for {titles('sparse')}, and the method is {self.method}",
                "leave out one of them",
            )
        if self.warmup_steps and not any(codec.warmup for codec in self.codecs):
            raise UsageError(
                f"a warm-up is for {titles('warmup')}, and the method is {self.method}",
                "leave out one of them",
            )
        if self.staging == HOST and not any(codec.staged for codec in self.codecs):
            raise UsageError(
                "staging=host has no effect on dense gradients",
                "use int8 or another method with it",
            )
        codec = BY_NAME[self.method]
        if self.two_d and codec.needs_matrices:
            raise UsageError(
                f"{codec.title or codec.name} needs whole matrices, which two_d divides",
                "leave out two_d",
            )
        mixed = self.compress_least or self.dense_below_2d or self.methods != {self.method}
        if self.momentum and mixed:
            raise UsageError(
                "momentum correction with parts that use another method would train those without"
                " momentum",
                "set compress_least=0 and dense_below_2d=False with it, and leave out last",
            )

    def _check_sizes(self) -> None:
        if self.matrix_rank < 1:
            raise _invalid(
                "matrix_rank",
                f"matrix_rank is {self.matrix_rank}: a factor has at least one column",
            )
        for name in ("two_d_most", "compress_least", "warmup_steps"):
            value = getattr(self, name)
            if value < 0:
                raise _invalid(name, f"{name} is {value}, and cannot be negative")
        if self.intra_size is not None and self.intra_size < 1:
            raise _invalid(
                "intra_size", f"intra_size is {self.intra_size}: a 2D group has at least one rank"
            )
        if self.chunk is not None and self.chunk < 1 << 16:
            raise _invalid("chunk", f"chunk is {self.chunk} bytes: the minimum is 65536")

    def _check_local_steps(self) -> None:
        """Check `every` and its settings."""
        for name in ("every", "fragments"):
            if getattr(self, name) < 1:
                raise _invalid(name, f"{name} is {getattr(self, name)}, and must be at least 1")
        changed = [name for name in _LOCAL if getattr(self, name) != _default(name)]
        if self.every == 1 and changed:
            raise UsageError(
                f"{changed[0]} has no effect where gradients are exchanged in each step",
                "set every=30 or another number of steps with it",
            )
        if self.every > 1 and (self.last or self.momentum):
            name = "last" if self.last else "momentum"
            raise UsageError(
                f"{name} is for gradients, and every={self.every} exchanges changes of parameters",
                f"leave out {name}",
            )
        if self.every % self.fragments:
            raise UsageError(
                f"every={self.every} is not a multiple of fragments={self.fragments}",
                f"set every={-(-self.every // self.fragments) * self.fragments}",
            )
        if not 0 <= self.delay < self.period and self.every > 1:
            raise UsageError(
                f"delay is {self.delay}, and a fragment is exchanged every {self.period} steps",
                f"give delay 0 to {self.period - 1}",
            )
        self._check_outer_optimizer()

    def _check_outer_optimizer(self) -> None:
        if not 0 < self.mix <= 1:
            raise _invalid("mix", f"mix is {self.mix}, and must be a share above 0, at most 1")
        if self.mix != _default("mix") and not self.delay:
            raise UsageError(
                "mix has no effect without delay", "set delay=1 or more steps, or leave out mix"
            )
        if not 0 < self.outer_lr < math.inf:
            raise _invalid("outer_lr", f"outer_lr is {self.outer_lr}, and must be above 0")
        if not 0 <= self.outer_momentum < 1:
            raise _invalid(
                "outer_momentum",
                f"outer_momentum is {self.outer_momentum}, and must be at least 0 and below 1",
            )

    @property
    def period(self) -> int:
        """Optimizer steps between two exchanges."""
        return self.every // self.fragments

    @property
    def methods(self) -> set[str]:
        """The methods in use, except for gradients that are too small."""
        return {self.method, self.last or self.method}

    @property
    def small(self) -> bool:
        """Whether every step after the first sends little data."""
        if self.warmup_steps or not all(codec.small for codec in self.codecs):
            return False
        return self.ratio <= SMALL_RATIO or not any(codec.sparse for codec in self.codecs)

    @property
    def codecs(self) -> list[CodecInfo]:
        """The facts of all of `methods`."""
        return [BY_NAME[name] for name in self.methods]

    @property
    def loss(self) -> int:
        """The loss of the least accurate codec in use: an index into train.plan_types.LOSSES."""
        narrow = DENSE in self.methods and self.wire in ("bf16", "fp16")
        return max((int(narrow), *(codec.loss for codec in self.codecs)), key=LEAST_FIRST.index)

    def method_for(self, nbytes: int, *, last: bool = False) -> str:
        """The method for a bucket of this many bytes. `last`: it is DDP's last bucket."""
        if nbytes < self.compress_least:
            return DENSE
        return self.last if last and self.last else self.method

    def two_d_for(self, nbytes: int, method: str) -> bool:
        """Whether to use two dimensions, if the mesh has them."""
        return self.two_d and nbytes <= self.two_d_most and not BY_NAME[method].needs_matrices

    def describe(self) -> str:
        """The method and all settings that differ from the defaults, on one line."""
        changed = [
            f"{field.name}={getattr(self, field.name)}"
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != field.default and field.name != "method"
        ]
        return " ".join([self.method, *changed])


def _has_type_of(default: object, value: object) -> bool:
    """Whether a value has the type of a setting with this default; None stands for a number."""
    if value is None or isinstance(value, bool):
        return type(value) is type(default)
    if default is None:
        return isinstance(value, int)
    return isinstance(value, int | float if isinstance(default, float) else type(default))


def _default(name: str) -> object:
    return next(field.default for field in dataclasses.fields(Settings) if field.name == name)


def _invalid(name: str, message: str) -> UsageError:
    return UsageError(
        message, f"give {name} a valid value, or leave it out; the default is {_default(name)!r}"
    )
