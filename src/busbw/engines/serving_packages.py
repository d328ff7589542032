"""The packages with the all-reduce of engines that serve models, and what each can sum."""

import importlib
import importlib.util
import inspect
import logging
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import gcd
from typing import Any

from busbw.core.dtypes import DType
from busbw.core.errors import NoMeasurement, first_line
from busbw.host.gpu import read_gpus
from busbw.host.source import LiveMachine

HIDDEN = 8192  # the most elements of a token
UNIT = 16  # bytes that a thread of these kernels moves at once
DTYPES = ("float", "half", "bfloat16")


@dataclass(frozen=True, slots=True)
class Package:
    """Where functions come from: a module, and how many arguments each takes, or which ones.
    `others` are the names of what else is used.
    """

    name: str
    install: str
    module: str
    functions: Mapping[str, int | Sequence[str]]
    others: tuple[str, ...] = ()
    more: tuple[int, ...] = ()  # arguments of all_reduce that vLLM's has not

    def load(self) -> Any:
        """The module; NoMeasurement if it is missing or another version."""
        package = self.module.partition(".")[0]
        if importlib.util.find_spec(package) is None:
            raise NoMeasurement(f"{self.name} is not installed (pip install {self.install})")
        logging.getLogger(package).setLevel(logging.ERROR)
        with named(f"{self.name} cannot be imported"):
            module = importlib.import_module(self.module)
        for function, arguments in self.functions.items():
            if not _takes(getattr(module, function, None), arguments):
                raise NoMeasurement(f"{self.name} has another {function} than busbw can call")
        lacking = next((name for name in self.others if not hasattr(module, name)), "")
        if lacking:
            raise NoMeasurement(f"{self.name} has no {lacking}")
        return module


@contextmanager
def named(what: str) -> Iterator[None]:
    """Any error as NoMeasurement that begins with `what`; warnings are not shown.

    Packages of kernels fail in many ways: built for another PyTorch, CUDA or driver, or without
    what compiles their kernels. Their warnings are of functions that are not called.
    """
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    except Exception as error:
        raise NoMeasurement(f"{what}: {first_line(error)}") from error


def _takes(function: Any, arguments: int | Sequence[str]) -> bool:
    """Whether a function can be called with so many arguments, or with these names."""
    positional = [None] * arguments if isinstance(arguments, int) else []
    by_name = {} if isinstance(arguments, int) else dict.fromkeys(arguments)
    try:
        inspect.signature(function).bind(*positional, **by_name)
    except (TypeError, ValueError):
        return False
    return True


_VLLM = {
    "meta_size": 0,
    "init_custom_ar": 4,
    "register_buffer": 2,
    "all_reduce": 5,
    "get_graph_buffer_ipc_meta": 1,
    "register_graph_buffers": 3,
    "dispose": 1,
}
# FlashInfer takes the most thread blocks as well; 36 is what vLLM has.
VLLM = (
    Package("vLLM", "vllm", "vllm._custom_ops", _VLLM),
    Package(
        "FlashInfer",
        "flashinfer-python",
        "flashinfer.comm.vllm_ar",
        {**_VLLM, "all_reduce": 6},
        more=(36,),
    ),
)
FLASHINFER = (
    Package(
        "FlashInfer",
        "flashinfer-python",
        "flashinfer.comm",
        {
            "create_allreduce_fusion_workspace": (
                "backend",
                "world_size",
                "rank",
                "max_token_num",
                "hidden_dim",
                "dtype",
                "group",
            ),
            "allreduce_fusion": (
                "input",
                "workspace",
                "pattern",
                "launch_with_pdl",
                "trigger_completion_at_end",
                "output",
            ),
        },
        others=("AllReduceFusionPattern",),
    ),
)


@dataclass(frozen=True, slots=True)
class Summing:
    """An all-reduce: the numbers of GPUs for which it has kernels, and the most bytes it sums.

    More GPUs than `max_without_nvlink` must have NVLink.
    """

    name: str
    packages: tuple[Package, ...]
    ranks: tuple[int, ...]
    max_bytes: int
    max_without_nvlink: int

    def load(self) -> tuple[Package, Any]:
        """The first package that can be used, and its module; NoMeasurement if none can."""
        # vLLM writes its log to stdout, where the answer is.
        os.environ.setdefault("VLLM_CONFIGURE_LOGGING", "0")
        reasons = []
        for package in self.packages:
            try:
                return package, package.load()
            except NoMeasurement as error:
                reasons.append(error.message)
        raise NoMeasurement("; ".join(reasons))

    def why_not(self, ranks: int, dtype: DType) -> str:
        """Why it cannot run on these ranks; '' if it can."""
        if ranks not in self.ranks:
            known = ", ".join(map(str, self.ranks))
            return f"{self.name} has kernels for {known} GPUs, not for {ranks}"
        if dtype.name not in DTYPES:
            return f"{self.name} sums {', '.join(DTYPES)}, not {dtype.name}"
        gpus = read_gpus(LiveMachine()).gpus
        if ranks > self.max_without_nvlink and any(gpu.nvlink == 0 for gpu in gpus):
            return f"{self.name} needs NVLink for more than {self.max_without_nvlink} GPUs"
        try:
            self.load()
        except NoMeasurement as error:
            return error.message
        return ""

    def refusal(self, size: int) -> str:
        """Why it does not sum messages of this size in bytes; '' if it does."""
        if size % UNIT:
            return f"{self.name} sums multiples of {UNIT} bytes"
        if size > self.max_bytes:
            return f"{self.name} sums at most {self.max_bytes} bytes"
        return ""


# vLLM gives larger messages to NCCL: CustomAllreduce takes less than 8 MiB, and FlashInfer's
# all-reduce at most 64 MiB, of two GPUs.
VLLM_SUM = Summing("vLLM", VLLM, (2, 4, 6, 8), (8 << 20) - UNIT, max_without_nvlink=2)
FLASHINFER_SUM = Summing("FlashInfer", FLASHINFER, (2, 4, 8), 64 << 20, max_without_nvlink=8)


def tokens(count: int) -> tuple[int, int]:
    """As how many tokens of how many elements FlashInfer is given `count` elements."""
    hidden = gcd(count, HIDDEN)
    return count // hidden, hidden
