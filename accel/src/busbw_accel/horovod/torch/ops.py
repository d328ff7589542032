"""Horovod's operations.

Their blocking, asynchronous, in-place and grouped forms are generated from one table.
"""

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from busbw_accel.horovod.torch import calls, context, requests
from busbw_accel.horovod.torch.autograd import Collective
from busbw_accel.horovod.torch.calls import Call
from busbw_accel.horovod.torch.compression import Compression
from busbw_accel.horovod.torch.context import ProcessSet, global_process_set, registered
from busbw_accel.horovod.torch.errors import Refused
from busbw_accel.horovod.torch.requests import OperationKind

_REQUIRED = inspect.Parameter.empty
_DEFAULTS: dict[str, Any] = {
    "root_rank": _REQUIRED,
    "compression": Compression.none,
    "prescale_factor": 1.0,
    "postscale_factor": 1.0,
    "process_set": global_process_set,
}


@dataclass(frozen=True, slots=True)
class OperationRow:
    """An operation: its arguments after the tensor, in Horovod's order, and its forms.

    Arguments that are not in `_DEFAULTS` default to None. `compression` is an argument only of the
    blocking form that is not in place.
    """

    kind: OperationKind
    arguments: str
    result: str
    in_place: bool = False
    grouped: bool = False
    op: int | None = None  # the default of the argument `op`


TABLE = (
    OperationRow(
        OperationKind.ALLREDUCE,
        "average name compression op prescale_factor postscale_factor process_set",
        "the reduction over all ranks, by default the average",
        in_place=True,
        grouped=True,
    ),
    OperationRow(
        OperationKind.ALLGATHER,
        "name process_set",
        "the ranks' tensors, concatenated along the first dimension, which may differ",
        grouped=True,
    ),
    OperationRow(
        OperationKind.BROADCAST,
        "root_rank name process_set",
        "the tensor of `root_rank`, a rank of the job",
        in_place=True,
    ),
    OperationRow(
        OperationKind.ALLTOALL,
        "splits name process_set",
        "the rows received from each rank; with `splits` (rows to send to each rank) also the"
        " numbers of rows received",
    ),
    OperationRow(
        OperationKind.REDUCESCATTER,
        "name compression op process_set prescale_factor postscale_factor",
        "this rank's rows of the reduction; if they do not divide evenly, the first ranks get one"
        " more",
        grouped=True,
        op=requests.Average,
    ),
)


def _signature(row: OperationRow, first: str, blocking: bool, in_place: bool) -> inspect.Signature:
    names = row.arguments.split()
    if "compression" in names and (in_place or not blocking):
        names.remove("compression")
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(first, kind)]
    for name in names:
        default = row.op if name == "op" else _DEFAULTS.get(name)
        parameters.append(inspect.Parameter(name, kind, default=default))
    return inspect.Signature(parameters)


def _call(row: OperationRow, grouped: bool, in_place: bool, arguments: dict[str, Any]) -> Call:
    reduces = "op" in arguments
    return Call(
        kind=row.kind,
        grouped=grouped,
        in_place=in_place,
        name=arguments["name"],
        op=calls.reduction(arguments["op"], arguments.get("average")) if reduces else requests.Sum,
        root=arguments.get("root_rank", -1),
        splits=arguments.get("splits"),
        tells_splits=arguments.get("splits") is not None,
        prescale=float(arguments.get("prescale_factor", 1.0)),
        postscale=float(arguments.get("postscale_factor", 1.0)),
        process_set=arguments["process_set"],
    )


def _blocking(call: Call, tensors: Sequence[torch.Tensor], compression: Any) -> Any:
    """Run a call so that it is differentiable. Returns its result, or results if grouped."""
    if call.kind == OperationKind.ALLTOALL:  # its gradient needs the received splits
        result = Collective.apply(dataclasses.replace(call, tells_splits=True), tensors[0])
        return result if call.tells_splits else result[0]
    narrow = [compression.compress(tensor) for tensor in tensors]
    result = Collective.apply(call, *(tensor for tensor, _ in narrow))
    results = result if call.grouped else (result,)
    wide = [
        compression.decompress(result, narrowing)
        for result, (_, narrowing) in zip(results, narrow, strict=True)
    ]
    return wide if call.grouped else wide[0]


def _make_form(
    row: OperationRow, grouped: bool, in_place: bool, blocking: bool
) -> Callable[..., Any]:
    """The function of one form of a row."""
    first = "tensors" if grouped else "tensor"
    signature = _signature(row, first, blocking, in_place)

    def function(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        arguments = bound.arguments
        tensors = list(arguments[first]) if grouped else [arguments[first]]
        call = _call(row, grouped, in_place, arguments)
        if blocking and not in_place:
            return _blocking(call, tensors, arguments.get("compression", Compression.none))
        number = calls.begin(call, tensors)
        return synchronize(number) if blocking else number

    function.__name__ = function.__qualname__ = form_name(row, grouped, in_place, blocking)
    gives = f"{row.result}."
    if not blocking:
        gives = f"a handle for `synchronize`, which gives {gives}"
    several = " of several tensors as one" if grouped else ""
    placed = ", in place" if in_place else ""
    function.__doc__ = (
        f"{row.kind.capitalize()}{several}{placed}: {gives}\n\n"
        "Raises:\n"
        "    Refused: a ValueError; nothing was sent.\n"
        "    HorovodInternalError: a RuntimeError; it failed on all ranks.\n"
    )
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


def form_name(row: OperationRow, grouped: bool, in_place: bool, blocking: bool) -> str:
    """Horovod's name of a form."""
    return f"{'grouped_' * grouped}{row.kind}{'_async' * (not blocking)}{'_' * in_place}"


def forms() -> dict[str, Callable[..., Any]]:
    """All forms of all rows, by name."""
    functions = {}
    for row in TABLE:
        for grouped in (False, True) if row.grouped else (False,):
            for in_place in (False, True) if row.in_place else (False,):
                for blocking in (True, False):
                    name = form_name(row, grouped, in_place, blocking)
                    functions[name] = _make_form(row, grouped, in_place, blocking)
    return functions


def poll(handle: int) -> bool:
    """Whether `synchronize` would return immediately."""
    return context.handles.poll(handle)


def synchronize(handle: int) -> Any:
    """Wait for an operation and return its tensor or list of tensors.

    Raises:
        HorovodInternalError: it failed.
    """
    return context.handles.synchronize(handle)


def sparse_allreduce_async(
    tensor: torch.Tensor, name: str, op: int, process_set: ProcessSet = global_process_set
) -> Callable[[], torch.Tensor]:
    """Reduce a sparse COO tensor by gathering its entries.

    Returns a function that waits for the sum or average.
    """
    if op not in (requests.Average, requests.Sum):
        raise Refused(
            f"op {requests.NAMES.get(op, op)} of a sparse tensor", "use hvd.Average or hvd.Sum"
        )
    entries = tensor.detach().coalesce()
    index_call = Call(OperationKind.ALLGATHER, name=f"{name}.indices", process_set=process_set)
    value_call = Call(OperationKind.ALLGATHER, name=f"{name}.values", process_set=process_set)
    indices = calls.begin(index_call, [entries.indices().t().contiguous()])
    values = calls.begin(value_call, [entries.values().contiguous()])

    def wait() -> torch.Tensor:
        all_indices, all_values = synchronize(indices), synchronize(values)
        if op == requests.Average:
            all_values = all_values / process_set.size()
        return torch.sparse_coo_tensor(
            all_indices.t(), all_values, tensor.shape, dtype=tensor.dtype, check_invariants=False
        ).coalesce()

    return wait


def join(device: int = -1) -> int:
    """Signal that this rank has no more data.

    Until all ranks have joined, it contributes zeros to all-reduces (on GPU `device`). Returns the
    last rank to join.
    """
    if device >= 0:
        context.current().executor.joined_device = torch.device("cuda", device)
    last = int(calls.control(OperationKind.JOIN))
    # Generated names contain numbers, and ranks that joined early have used fewer of them. From now
    # on all ranks continue from the same number.
    numbers = torch.tensor([context.handles.count])
    call = Call(OperationKind.ALLREDUCE, op=requests.Max, name="join.numbers")
    largest = context.handles.synchronize(calls.begin(call, [numbers]))
    context.handles.advance(int(largest) + 1)  # this operation has used a number too
    return last


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Wait until all ranks of the set have called it."""
    if not process_set.included():
        raise Refused(
            f"rank {context.rank()} is not in {process_set}", "check process_set.included() first"
        )
    calls.control(OperationKind.BARRIER, process_set)


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Register a set after `init`.

    Every rank of the job must call it with the same ranks. Returns the set.

    Raises:
        Refused: process sets are not dynamic, or the ranks do not exist.
    """
    if not context.current().options.dynamic_sets:
        raise Refused(
            "process sets cannot be added now",
            "set HOROVOD_DYNAMIC_PROCESS_SETS=1, or hvd.init(process_sets='dynamic')",
        )
    return register(process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set))


def register(process_set: ProcessSet) -> ProcessSet:
    """Assign a set its number, on all ranks."""
    size, ranks = context.current().info.size, tuple(process_set.ranks or ())
    if not ranks or len(set(ranks)) < len(ranks) or not 0 <= ranks[0] <= ranks[-1] < size:
        raise Refused(
            f"a process set of ranks {list(ranks)} among {size}", "give existing ranks, each once"
        )
    process_set.process_set_id = calls.control(OperationKind.ADD_SET, ranks=ranks)
    registered.append(process_set)
    return process_set


def remove_process_set(process_set: ProcessSet) -> bool:
    """Remove a set.

    Every rank of the job must call it. Returns False for the global set, and for a set that is not
    registered.

    Raises:
        Refused: process sets are not dynamic.
    """
    current, number = context.current(), process_set.process_set_id
    if not current.options.dynamic_sets:
        raise Refused(
            "process sets cannot be removed now",
            "set HOROVOD_DYNAMIC_PROCESS_SETS=1, or hvd.init(process_sets='dynamic')",
        )
    if not number:
        return False
    ranks = tuple(process_set.ranks or ())
    removed = bool(calls.control(OperationKind.REMOVE_SET, ranks=ranks, root=number))
    for same in [other for other in registered if other.process_set_id == number]:
        same.invalidate()
        registered.remove(same)
    return removed
