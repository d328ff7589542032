"""The table of backends: the implementations of a collective that one run can compare."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from busbw.core.backend_names import row_of

if TYPE_CHECKING:
    from busbw.core.sweep import SweepSpec
    from busbw.engines.base import Engine
    from busbw.launch.control import Control

ALL_REDUCE, SENDRECV = ("all_reduce",), ("sendrecv",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """The arguments for opening a backend. `place` is the number of the process on its host, of
    its group, and in the job.
    """

    control: "Control"
    spec: "SweepSpec"
    place: tuple[int, int, int]
    copies: bool
    blocks: int = 0  # of a transfer
    limit_s: float = 0.0  # the job ends after so long without a completed operation; 0: never
    rails: tuple[str, ...] = ()  # the NICs that it may use; its own choice if empty
    over_rdma: bool = False  # whether these are RDMA devices


@dataclass(frozen=True, slots=True)
class BackendRow:
    """One backend."""

    name: str
    what: str
    on_gpus: bool | None  # None: on GPUs and on CPUs
    why_not: Callable[[Opening], str]  # why it cannot run on this rank; '' if it can
    open: Callable[[Opening], "Engine"]
    collectives: tuple[str, ...] = ()  # all if empty
    in_place: bool = True  # how its all_reduce is called
    one_host: bool = False  # GPUs map each other's memory

    @property
    def of_blocks(self) -> bool:
        """Whether it sends scattered blocks."""
        return self.collectives == SENDRECV


def _opens(engine: str, *fields: str, **arguments: object) -> Callable[[Opening], "Engine"]:
    """Opens an engine, given by its module and class, which takes these fields of the opening and
    these arguments.
    """

    def open_it(opening: Opening) -> "Engine":
        module, name = engine.split(".")
        make = getattr(import_module(f"busbw.engines.{module}"), name)
        taken = {field: getattr(opening, field) for field in fields}
        opened: Engine = make(opening.control, opening.spec, opening.place, **taken, **arguments)
        return opened

    return open_it


def _open_torch(opening: Opening) -> "Engine":
    from busbw.engines.torch import TorchEngine

    return TorchEngine(opening.control, opening.spec, *opening.place)


def _open_mpi(opening: Opening) -> "Engine":
    from busbw.engines.mpi import MpiEngine

    _, group, process = opening.place
    return MpiEngine(opening.control.comm, process, group)  # type: ignore[attr-defined]


def _why_no_gloo(opening: Opening) -> str:
    if opening.over_rdma:
        return "Gloo has no RDMA: name interfaces or networks"
    return "Gloo sends over one interface" if len(opening.rails) > 1 else ""


def _why_no_mpi(opening: Opening) -> str:
    if opening.rails:
        return "MPI chooses its NICs at start, before --rail applies"
    if getattr(opening.control, "comm", None) is None:
        return "the ranks were not started by MPI"
    return ""


def _why_no_vllm(opening: Opening) -> str:
    from busbw.core.sweep import dtypes
    from busbw.engines.serving_packages import VLLM_SUM

    return VLLM_SUM.why_not(opening.control.processes, dtypes(opening.spec)[0])


def _why_no_flashinfer(opening: Opening) -> str:
    from busbw.core.sweep import dtypes
    from busbw.engines.serving_packages import FLASHINFER_SUM

    return FLASHINFER_SUM.why_not(opening.control.processes, dtypes(opening.spec)[0])


def _why_no_gloo_blocks(opening: Opening) -> str:
    return _why_no_blocks(opening) or _why_no_gloo(opening)


def _why_no_blocks(opening: Opening) -> str:
    return "" if opening.blocks else "--blocks does not say how many blocks a transfer has"


def _why_no_nixl(opening: Opening) -> str:
    from busbw.engines import torch_nixl

    return _why_no_blocks(opening) or torch_nixl.why_missing()


def _why_no_symmetric(_: Opening) -> str:
    import torch

    try:
        import torch.distributed._symmetric_memory
    except ImportError:
        return f"PyTorch {torch.__version__} has no symmetric memory"
    return ""


def _why_no_window(opening: Opening) -> str:
    import torch

    backend = torch.distributed.ProcessGroupNCCL
    if not hasattr(backend, "register_mem_pool"):
        return f"PyTorch {torch.__version__} cannot register memory with NCCL"
    return ""


def _always(_: Opening) -> str:
    return ""


BACKENDS = (
    BackendRow("nccl", "NCCL as PyTorch calls it", True, _always, _open_torch),
    BackendRow(
        "nccl-symmetric",
        "NCCL on memory that is registered as a window of all ranks",
        True,
        _why_no_window,
        _opens("torch_symmetric.NcclSymmetricEngine", "copies"),
    ),
    BackendRow(
        "one-shot",
        "PyTorch's symmetric memory: each GPU reads the buffers of all others",
        True,
        _why_no_symmetric,
        _opens("torch_symmetric.SymmetricEngine", "copies", kernel="one_shot"),
        ALL_REDUCE,
        in_place=False,
        one_host=True,
    ),
    BackendRow(
        "two-shot",
        "PyTorch's symmetric memory: each GPU adds up a part, and writes it into all",
        True,
        _why_no_symmetric,
        _opens("torch_symmetric.SymmetricEngine", "copies", kernel="two_shot"),
        ALL_REDUCE,
        one_host=True,
    ),
    BackendRow(
        "multimem",
        "PyTorch's symmetric memory: the NVLink switches add up",
        True,
        _why_no_symmetric,
        _opens("torch_symmetric.SymmetricEngine", "copies", kernel="multimem"),
        ALL_REDUCE,
        one_host=True,
    ),
    BackendRow(
        "vllm",
        "vLLM's custom all-reduce, from vLLM or from FlashInfer",
        True,
        _why_no_vllm,
        _opens("torch_serving.VllmEngine", "copies"),
        ALL_REDUCE,
        in_place=False,
        one_host=True,
    ),
    BackendRow(
        "flashinfer",
        "FlashInfer's all-reduce, of TensorRT-LLM",
        True,
        _why_no_flashinfer,
        _opens("torch_serving.FlashInferEngine", "copies"),
        ALL_REDUCE,
        in_place=False,
        one_host=True,
    ),
    BackendRow(
        "nccl-grouped",
        "NCCL, each scattered block by itself, in one group",
        True,
        _why_no_blocks,
        _opens("torch_blocks.BlocksEngine", "blocks", packed=False),
        SENDRECV,
    ),
    BackendRow(
        "nccl-packed",
        "NCCL, scattered blocks gathered into one message",
        True,
        _why_no_blocks,
        _opens("torch_blocks.BlocksEngine", "blocks", packed=True),
        SENDRECV,
    ),
    BackendRow("gloo", "Gloo as PyTorch calls it", False, _why_no_gloo, _open_torch),
    BackendRow("mpi", "MPI on host memory", False, _why_no_mpi, _open_mpi),
    BackendRow(
        "gloo-grouped",
        "Gloo, each scattered block by itself",
        False,
        _why_no_gloo_blocks,
        _opens("torch_blocks.BlocksEngine", "blocks", packed=False),
        SENDRECV,
    ),
    BackendRow(
        "gloo-packed",
        "Gloo, scattered blocks gathered into one message",
        False,
        _why_no_gloo_blocks,
        _opens("torch_blocks.BlocksEngine", "blocks", packed=True),
        SENDRECV,
    ),
    BackendRow(
        "nixl",
        "NIXL, each scattered block read out of the memory of the rank before",
        None,
        _why_no_nixl,
        _opens("torch_nixl.NixlEngine", "blocks", "limit_s", operation="READ"),
        SENDRECV,
    ),
    BackendRow(
        "nixl-write",
        "NIXL, each scattered block written into the memory of the rank after",
        None,
        _why_no_nixl,
        _opens("torch_nixl.NixlEngine", "blocks", "limit_s", operation="WRITE"),
        SENDRECV,
    ),
)
BY_NAME = {row.name: row for row in BACKENDS}


def why_not(row: BackendRow, opening: Opening, *, on_gpus: bool) -> str:
    """Why a backend cannot run on this rank; '' if it can."""
    if row.on_gpus not in (on_gpus, None):
        return "it needs GPUs" if row.on_gpus else "it runs on CPUs"
    if row.collectives and opening.spec.collective not in row.collectives:
        return f"it has no {opening.spec.collective}"
    local, _, process = opening.place
    if row.one_host and local != process:
        return "its GPUs must be in one host"
    return row.why_not(opening)


def backend(name: str) -> BackendRow:
    """The row called `name`; UsageError if there is none."""
    return row_of(BY_NAME, name)
