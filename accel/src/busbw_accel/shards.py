"""What fully_shard (FSDP2) exchanges itself, exchanged by codecs: shards of gradients are summed by
their owners, and shards of parameters are gathered.

FSDP2 calls an object for each reduce-scatter and each all-gather, in the streams that it has for
them, and takes tensors from its `allocate`.
"""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from busbw.core.errors import UsageError
from busbw_accel.attachment import plain
from busbw_accel.codecs import codec_for
from busbw_accel.codecs.base import State
from busbw_accel.comm_worker import COMPRESSIBLE, CommWorker
from busbw_accel.communicator import Communicator
from busbw_accel.methods import DENSE
from busbw_accel.residual_state import BucketPiece, BucketState
from busbw_accel.settings import Settings

# How parameters are gathered, for each value of the setting `gather`.
_GATHERED = {
    "same": Settings(),
    "exact": Settings(method="exact"),
    "bf16": Settings(wire="bf16"),
    "int8": Settings(method="int8", feedback=False),
}


@dataclass(frozen=True, slots=True)
class ShardedPlace:
    """Where a module has a parameter.

    The parameter itself is not kept: load_state_dict(assign=True) puts another one there.
    """

    module: nn.Module
    name: str
    # The shape of a DTensor takes the host microseconds to read.
    rows: int  # in the dimension that is divided
    row: int  # elements of each
    ranks: int  # over which it is divided; 0 where tensor parallelism has divided it too

    @property
    def parameter(self) -> nn.Parameter:
        # not getattr, which takes the host a microsecond for each parameter of each exchange
        parameter = self.module._parameters[self.name]
        assert parameter is not None
        return parameter


@dataclass(eq=False, slots=True)
class ShardedUnit:
    """Modules that were given to fully_shard in one call, and the parameters sharded by it."""

    name: str  # of the first module
    module: FSDPModule
    places: list[ShardedPlace] = field(default_factory=list)

    @property
    def ranks(self) -> int:
        return self.places[0].ranks if self.places else 0

    def trained(self) -> tuple[ShardedPlace, ...]:
        """The parameters that are not frozen now."""
        return tuple(place for place in self.places if place.parameter.requires_grad)


def padded_length(places: Iterable[ShardedPlace], ranks: int) -> int:
    """Elements of all gradients, padded so that each parameter has equal shards."""
    return sum(-(-place.rows // ranks) * ranks * place.row for place in places)


def _place(module: nn.Module, name: str, parameter: DTensor) -> ShardedPlace:
    rows = parameter.shape[getattr(parameter.placements[0], "dim", 0)]
    ranks = parameter.device_mesh.size() if parameter.device_mesh.ndim == 1 else 0
    return ShardedPlace(module, name, rows, parameter.numel() // max(1, rows), ranks)


class ShardedResidual:
    """What a worker keeps of a unit: it is of the parameters that are trained."""

    def __init__(self, worker: CommWorker, unit: ShardedUnit) -> None:
        self.unit, self._worker = unit, worker
        self._trained: tuple[ShardedPlace, ...] = ()

    def fits(self, elements: int, ranks: int) -> bool:
        """Whether it is of gradients with so many elements on all `ranks` (0: not known).

        It is not where some parameters have no gradient: which ones is unknown here, and residuals
        would be those of others. Where parameters were frozen, or are trained again, it is dropped.
        """
        trained = self.unit.trained()
        if ranks and elements != padded_length(trained, ranks):
            return False
        if trained != self._trained:
            self._worker.memory.drop([self.unit.name])
            self._trained = trained
        return True


def units(model: nn.Module) -> list[ShardedUnit]:
    """The units of a model, in the order of its modules.

    Raises:
        UsageError: fully_shard was not called on any module.
    """
    found: dict[object, ShardedUnit] = {}
    seen: set[int] = set()

    def visit(module: nn.Module, name: str, unit: ShardedUnit | None) -> None:
        if isinstance(module, FSDPModule):
            own_unit = ShardedUnit(plain(f"{name}.").rstrip("."), module)
            unit = found.setdefault(module._get_fsdp_state(), own_unit)
            module.reshard()  # a forward without backward leaves the root's parameters whole
        for own_name, parameter in module.named_parameters(recurse=False):
            if unit is not None and isinstance(parameter, DTensor) and id(parameter) not in seen:
                seen.add(id(parameter))
                unit.places.append(_place(module, own_name, parameter))
        for child_name, child in module.named_children():
            visit(child, f"{name}.{child_name}".lstrip("."), unit)

    visit(model, "", None)
    if not found:
        raise UsageError(
            f"a {type(model).__name__} without fully_shard has no shards to exchange",
            "call fully_shard on it first",
        )
    return list(found.values())


def group_of(model: nn.Module, divided: Sequence[ShardedUnit]) -> dist.ProcessGroup:
    """The ranks over which fully_shard has divided a model.

    Raises:
        UsageError: they are not the same for all units, a mesh has several dimensions, or
            parameters are replicated.
    """
    groups: dict[tuple[int, ...], tuple[str, dist.ProcessGroup]] = {}
    for unit in divided:
        for place in unit.places:
            parameter, what = place.parameter, unit.name or type(model).__name__
            assert isinstance(parameter, DTensor)
            mesh = parameter.device_mesh
            if mesh.ndim != 1:
                raise UsageError(
                    f"rank {dist.get_rank()}: the parameters of {what} are on a mesh of {mesh.ndim}"
                    f" dimensions ({', '.join(mesh.mesh_dim_names or ()) or 'without names'})",
                    'call fully_shard with the dimension that divides, mesh=mesh["inside"]; for'
                    ' that of replicas: attach_fully_sharded(model, mesh["across"], settings)',
                )
            if not parameter.placements[0].is_shard():
                raise UsageError(
                    f"rank {dist.get_rank()}: the parameters of {what} are replicated, not sharded",
                    "use fully_shard, or DistributedDataParallel and attach(model, settings)",
                )
            group = mesh.get_group()
            ranks = tuple(dist.get_process_group_ranks(group))
            groups.setdefault(ranks, (what, group))
    if not groups:
        raise UsageError(
            f"fully_shard has divided no parameter of this {type(model).__name__}",
            "call attach_fully_sharded after the parameters are sharded",
        )
    if len(groups) > 1:
        (first, (name, _)), (second, (other, _)) = list(groups.items())[:2]
        raise UsageError(
            f"rank {dist.get_rank()}: {name} is sharded over ranks {first}, {other} over {second}",
            "shard all modules of a model over the same mesh",
        )
    return next(iter(groups.values()))[1]


class _Comm:
    """What a reduce-scatter and an all-gather share."""

    def __init__(self, worker: CommWorker, group: dist.ProcessGroup) -> None:
        """`group`: the ranks that share the model."""
        self.worker, self.group = worker, group

    def allocate(
        self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def over(self, group: dist.ProcessGroup) -> Communicator:
        """The communicator of a call.

        FSDP may have a group of its own for reduce-scatters, and with a number as
        reshard_after_forward one of fewer ranks for the gathers of backward.
        """
        mesh, size = self.worker.mesh, group.size()
        used = None if mesh.world.group is None else group
        if size == mesh.world.size:
            return dataclasses.replace(mesh.world, group=used)
        every = dict(zip(dist.get_process_group_ranks(self.group), mesh.hosts, strict=True))
        hosts = [every[rank] for rank in dist.get_process_group_ranks(group)]
        return Communicator(used, size, group.rank(), hosts.count(hosts[group.rank()]))


class ShardedSum(_Comm):
    """The reduce-scatter of a unit's gradients."""

    def __init__(
        self,
        worker: CommWorker,
        group: dist.ProcessGroup,
        unit: ShardedUnit,
        count: Callable[[str], None],
    ) -> None:
        """`count` is called with the unit's name for each exchange."""
        super().__init__(worker, group)
        self.unit, self.count = unit, count
        self._residual = ShardedResidual(worker, unit)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: dist.ReduceOp,
        async_op: bool = False,
    ) -> dist.Work | None:
        """Waits on CPUs; on a GPU the current stream does, also with `async_op`."""
        settings, comm = self.worker.settings, self.over(group)
        method = DENSE
        if input_tensor.dtype in COMPRESSIBLE:
            method = settings.method_for(input_tensor.nbytes)
        self.count(self.unit.name)
        self.worker.traffic.buckets += 1
        with self.worker.explaining():
            if method == DENSE and (
                settings.wire == "same" or input_tensor.dtype not in COMPRESSIBLE
            ):
                sent = comm.ring((comm.size - 1) * output_tensor.nbytes)
                self.worker.traffic.add_across(sent)
                return comm.reduce_scatter(output_tensor, input_tensor, op, async_op=async_op)
            factor = _factor(op, comm.size)
            rows = input_tensor.view(comm.size, -1)
            sent = codec_for(method, settings).reduce_scatter(
                rows, output_tensor, comm, self._state(method, rows, comm), self.worker.step
            )
            self.worker.traffic.add_across(sent)
        if factor != 1:
            output_tensor.mul_(factor)
        return None

    def _state(self, method: str, rows: torch.Tensor, comm: Communicator) -> State:
        """What the codec keeps of this unit."""
        if method == DENSE or not self._residual.fits(rows.numel(), comm.size):
            return {}
        fresh = BucketState(
            ((rows.numel(),),), (BucketPiece(0, rows.numel(), 0),), None, comm, rows.device
        )
        return self.worker.state_of([self.unit.name], fresh).states[0]


class ShardedParameters(_Comm):
    """The all-gather of a unit's parameters."""

    def __init__(self, worker: CommWorker, group: dist.ProcessGroup) -> None:
        super().__init__(worker, group)
        self.settings = dataclasses.replace(
            _GATHERED[worker.settings.gather], compress_least=worker.settings.compress_least
        )

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        async_op: bool = False,
    ) -> dist.Work | None:
        """As of `ShardedSum`, but for parameters that are gathered as they are."""
        if self.worker.closed:  # a model can be evaluated without it
            return dist.all_gather_into_tensor(
                output_tensor, input_tensor, group=group, async_op=async_op
            )
        settings, comm = self.settings, self.over(group)
        method = settings.method_for(output_tensor.nbytes)
        narrow = method != DENSE or (
            settings.wire == "bf16" and input_tensor.dtype == torch.float32
        )
        with self.worker.explaining():
            if not narrow or input_tensor.dtype not in COMPRESSIBLE:
                sent = comm.ring((comm.size - 1) * input_tensor.nbytes)
                self.worker.traffic.add_across(sent)
                work = comm.begin_all_gather(output_tensor, input_tensor, async_op=async_op)
                return work if isinstance(work, dist.Work) else None
            sent = codec_for(method, settings).all_gather(input_tensor, output_tensor, comm)
            self.worker.traffic.add_across(sent)
        return None


def _factor(op: dist.ReduceOp, ranks: int) -> float:
    """By what an average is multiplied for the result of this operation.

    Raises:
        UsageError: it is neither an average nor a sum.
    """
    if op == dist.ReduceOp.AVG:
        return 1.0
    if op == dist.ReduceOp.SUM:
        return float(ranks)
    if op == dist.ReduceOp.PREMUL_SUM:
        # Pickling has the only public way to its factor.
        return float(op.__getstate__()[1]) * ranks
    raise UsageError(
        f"rank {dist.get_rank()}: gradients are reduced by {op}, and codecs average or sum",
        "use dense, with wire at its default",
    )
