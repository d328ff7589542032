"""AdamW over fp32 states in host memory, in busbw-native or, without it, in torch.

`torch_threads` sets the number of torch's threads. Under mpirun torch begins with a single one: it
asks Intel MKL, which reads OMPI_COMM_WORLD_LOCAL_SIZE and decides for one.
"""

import contextlib
import ctypes
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import torch

from busbw.core import native
from busbw.core.errors import BusbwError, NoMeasurement, UsageError

MAX_THREADS = 16  # more rarely add memory bandwidth, and other ranks of the host need cores


def usable() -> int:
    """The processors of this process, at most MAX_THREADS."""
    return min(len(os.sched_getaffinity(0)), MAX_THREADS)


@contextlib.contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch's operations of the calling thread use `count` threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


_Pointer = ctypes.c_void_p


class _RuleStruct(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_float)
        for name in ("scale", "keep", "first", "second", "square", "rate", "root", "epsilon")
    )


class _SlabStruct(ctypes.Structure):
    _fields_ = (
        ("count", ctypes.c_size_t),
        *((name, _Pointer) for name in ("gradient", "weight", "moment", "square", "copy")),
        ("wide", ctypes.c_uint8),
    )


@dataclass(frozen=True, slots=True)
class Rule:
    """The numbers of one update.

    `step` counts from 1. `scale` multiplies the gradients before the update.
    """

    step: int
    lr: float
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.01
    scale: float = 1.0

    def native(self) -> _RuleStruct:
        """The rule in the form of busbw-native: see native/crates/adam."""
        first, second = self.betas
        rate, root = self.lr / (1 - first**self.step), 1 / math.sqrt(1 - second**self.step)
        return _RuleStruct(
            self.scale,
            1 - self.lr * self.weight_decay,
            1 - first,
            second,
            1 - second,
            rate,
            root,
            self.eps,
        )


@dataclass(frozen=True, slots=True)
class States:
    """Weights and both moments of some elements.

    All are fp32, one-dimensional, contiguous and in host memory.
    """

    weight: torch.Tensor
    moment: torch.Tensor
    square: torch.Tensor


_FUNCTIONS = {
    "busbw_adam_open": (_Pointer, (ctypes.c_uint32, native.Room)),
    "busbw_adam_update": (ctypes.c_int, (_Pointer, _Pointer, _Pointer, _Pointer, native.Room)),
    "busbw_adam_close": (None, (_Pointer,)),
}


@cache
def _library() -> ctypes.CDLL | None:
    """busbw-native; None where it is not installed."""
    path = native.find_optional()
    return native.load(path, _FUNCTIONS, "support updates") if path else None


class HostAdam:
    """Updates states in place. The result has the same bits for any number of threads.

    Without busbw-native it uses torch's fused AdamW, which needs a conversion of each gradient.
    That result differs from the one of busbw-native by rounding.
    """

    def __init__(self, threads: int = 0) -> None:
        """`threads`: 0 takes the cores of this process, at most MAX_THREADS.

        Raises:
            NoMeasurement: the threads cannot be started.
        """
        self.threads = threads or usable()
        self._text = native.ErrorText()
        library = _library()
        self._pool: int | None = None
        if library is not None:
            self._pool = library.busbw_adam_open(self.threads, self._text.room())
            if self._pool is None:
                raise NoMeasurement(
                    self._text.message(), "ulimit -u shows the limit of processes and threads"
                )

    @property
    def native(self) -> bool:
        """Whether busbw-native does the updates."""
        return self._pool is not None

    def update(
        self,
        rule: Rule | None,
        gradient: torch.Tensor,
        states: States,
        copy: torch.Tensor | None = None,
        undo: Rule | None = None,
    ) -> None:
        """Update the states by a gradient (bf16 or fp32) of the same length.

        `rule`: None makes no update. `copy` gets the weights in bf16, and may be the gradient.
        `undo`: the rule of the last update of these states, which was by the same gradient. It is
        undone first, which restores the states to within fp32 rounding.

        Raises:
            UsageError: a tensor has another type, length or place, or is not contiguous.
        """
        _check(gradient, states, copy)
        if self._pool is None:
            with torch_threads(self.threads):
                _update_by_torch(rule, gradient, states, copy, undo)
            return
        slab = _SlabStruct(
            gradient.numel(),
            gradient.data_ptr(),
            states.weight.data_ptr(),
            states.moment.data_ptr(),
            states.square.data_ptr(),
            None if copy is None else copy.data_ptr(),
            gradient.dtype == torch.float32,
        )
        library = _library()
        assert library is not None
        undone = None if undo is None else ctypes.byref(undo.native())
        made = None if rule is None else ctypes.byref(rule.native())
        room = self._text.room()
        if library.busbw_adam_update(self._pool, undone, made, ctypes.byref(slab), room):
            raise BusbwError(self._text.message(), "report it with the command")

    def close(self) -> None:
        library, pool, self._pool = _library(), self._pool, None
        if library is not None and pool is not None:
            library.busbw_adam_close(pool)


def _check(gradient: torch.Tensor, states: States, copy: torch.Tensor | None) -> None:
    requirements = {
        "gradient": (gradient, (torch.bfloat16, torch.float32)),
        "copy": (copy, (torch.bfloat16,)),
    }
    requirements |= {
        name: (getattr(states, name), (torch.float32,)) for name in ("weight", "moment", "square")
    }
    for name, (tensor, types) in requirements.items():
        if tensor is None:
            continue
        if (
            tensor.dtype not in types
            or tensor.device.type != "cpu"
            or not tensor.is_contiguous()
            or tensor.numel() != gradient.numel()
        ):
            actual = f"{tensor.dtype} of {tensor.numel()} elements on {tensor.device}"
            if not tensor.is_contiguous():
                actual += ", not contiguous"
            kinds = " or ".join(str(dtype) for dtype in types)
            raise UsageError(
                f"{name} is {actual}",
                f"{kinds} of {gradient.numel()} elements, contiguous, in host memory",
            )


def _update_by_torch(
    rule: Rule | None,
    gradient: torch.Tensor,
    states: States,
    copy: torch.Tensor | None,
    undo: Rule | None,
) -> None:
    if undo is not None:
        _undo(undo, gradient, states)
    if rule is not None:
        wide = gradient.float() * rule.scale
        step = torch.tensor(float(rule.step))
        torch._fused_adamw_(
            [states.weight],
            [wide],
            [states.moment],
            [states.square],
            [],
            [step],
            lr=rule.lr,
            beta1=rule.betas[0],
            beta2=rule.betas[1],
            weight_decay=rule.weight_decay,
            eps=rule.eps,
            amsgrad=False,
            maximize=False,
        )
    if copy is not None:
        copy.copy_(states.weight)


def _undo(rule: Rule, gradient: torch.Tensor, states: States) -> None:
    """The inverse of an update, in fp64, as in native/crates/adam."""
    numbers, (first, second) = rule.native(), rule.betas
    wide, weight = gradient.double(), states.weight.double()
    moment, square = states.moment.double(), states.square.double()
    wide *= rule.scale
    change = numbers.rate * moment / (square.sqrt() * numbers.root + rule.eps)
    states.weight.copy_((weight + change) / (1 - rule.lr * rule.weight_decay))
    if first:
        states.moment.copy_((moment - (1 - first) * wide) / first)
    else:
        states.moment.zero_()
    if second:
        states.square.copy_(((square - (1 - second) * wide * wide) / second).clamp_(min=0))
        states.moment.masked_fill_(states.square == 0, 0.0)
    else:
        states.square.zero_()
