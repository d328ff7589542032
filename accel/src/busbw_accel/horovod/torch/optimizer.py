"""An optimizer whose gradients are reduced over ranks during the backward pass."""

import contextlib
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from busbw_accel.horovod.torch import calls, context, ops, requests
from busbw_accel.horovod.torch.calls import Call
from busbw_accel.horovod.torch.compression import Compression
from busbw_accel.horovod.torch.context import ProcessSet, global_process_set
from busbw_accel.horovod.torch.errors import Refused
from busbw_accel.horovod.torch.functions import broadcast_object
from busbw_accel.horovod.torch.requests import OperationKind
from busbw_accel.horovod.torch.util import split_list

_TWICE = (
    "optimizer.step() called without optimizer.skip_synchronize() context after"
    " optimizer.synchronize(). This can cause training slowdown. You may want to consider using"
    " optimizer.skip_synchronize() context if you use optimizer.synchronize() in your code."
)
_TOO_OFTEN = (
    "Gradients were computed more than backward_passes_per_step times before call to step(). "
    "Increase backward_passes_per_step to accumulate gradients locally."
)
_EARLY_ZERO = (
    "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or"
    " optimizer.synchronize(). This is prohibited as it can cause a race condition."
)
_Parameters = tuple[torch.Tensor, ...]


@dataclass(frozen=True, slots=True)
class _OptimizerArguments:
    """The arguments of DistributedOptimizer."""

    compression: Any
    op: int
    predivide: float
    sparse_as_dense: bool
    process_set: ProcessSet


class _Reducer:
    """Submits gradients of single parameters or of groups, and waits for them."""

    def __init__(
        self,
        names: dict[torch.Tensor, str],
        groups: list[_Parameters],
        plan: _OptimizerArguments,
        passes: int,
    ) -> None:
        self.names, self.plan, self.passes = names, plan, passes
        self.synchronized = False
        self.step_waits = True
        self.delay = dict.fromkeys(names, passes)
        self._group_of = {parameter: group for group in groups for parameter in group}
        self._under_way: dict[_Parameters, Any] = {}
        self._begun: set[torch.Tensor] = set()

    @property
    def under_way(self) -> bool:
        """Whether gradients have been submitted and not yet been waited for."""
        return bool(self._begun)

    def reset(self) -> None:
        """Return to the state before the first pass."""
        self.delay = dict.fromkeys(self.names, self.passes)
        self._under_way.clear()
        self._begun.clear()
        self.synchronized = False

    def accumulated(self, parameter: torch.Tensor) -> None:
        """Note that a gradient was accumulated, and submit it after the last pass."""
        if self.delay[parameter] <= 0:
            raise AssertionError(_TOO_OFTEN)
        self.delay[parameter] -= 1
        self._begun.add(parameter)
        if self.delay[parameter]:
            return
        group = self._group_of.get(parameter, (parameter,))
        if all(self.delay[member] == 0 for member in group):
            self._submit(group)

    def wait(self) -> None:
        """Wait until all gradients are reduced. Missing gradients count as zeros."""
        for parameter in self.names:
            group = self._group_of.get(parameter, (parameter,))
            if parameter.requires_grad and group not in self._under_way:
                self._submit(group)
        for group, finish in self._under_way.items():
            finish()
            self.delay.update(dict.fromkeys(group, self.passes))
        self._under_way.clear()
        self._begun.clear()
        self.synchronized = True

    def _submit(self, group: _Parameters) -> None:
        were_sparse = {}
        for parameter in group:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            elif parameter.grad.is_sparse and self.plan.sparse_as_dense:
                were_sparse[parameter] = parameter.grad.sparse_dim()
                parameter.grad = parameter.grad.to_dense()
        gradients = [parameter.grad for parameter in group if parameter.grad is not None]
        if any(gradient.is_sparse for gradient in gradients):
            self._under_way[group] = self._reduce_sparse(group)
        else:
            finish = self._reduce_dense(group, gradients)
            self._under_way[group] = _then_make_sparse(finish, were_sparse)

    def _reduce_sparse(self, group: _Parameters) -> Any:
        if len(group) > 1:
            raise Refused(
                "a sparse gradient cannot be in a group",
                "give sparse_as_dense=True, or leave the parameter out of groups",
            )
        (parameter,), plan = group, self.plan
        assert parameter.grad is not None
        wait = ops.sparse_allreduce_async(
            parameter.grad, self.names[parameter], plan.op, plan.process_set
        )

        def take() -> None:
            parameter.grad = wait()

        return take

    def _reduce_dense(self, group: _Parameters, gradients: Sequence[torch.Tensor]) -> Any:
        plan = self.plan
        narrow = [plan.compression.compress(gradient.detach()) for gradient in gradients]
        call = Call(
            OperationKind.ALLREDUCE,
            grouped=True,
            in_place=True,
            name=self.names[group[0]],
            op=plan.op,
            prescale=1.0 / plan.predivide,
            postscale=plan.predivide,
            process_set=plan.process_set,
            gradient=all(gradient.is_floating_point() for gradient in gradients),
        )
        number = calls.begin(call, [tensor.contiguous() for tensor, _ in narrow])

        def take() -> None:
            results = context.handles.synchronize(number)
            for gradient, result, (_, narrowing) in zip(gradients, results, narrow, strict=True):
                wide = plan.compression.decompress(result, narrowing)
                if wide.data_ptr() != gradient.data_ptr() or wide.stride() != gradient.stride():
                    gradient.detach().copy_(wide)

        return take


def _then_make_sparse(
    take: Callable[[], None], dims: dict[torch.Tensor, int]
) -> Callable[[], None]:
    """Extend `take` by converting gradients that were sent densely back to sparse ones.

    `dims`: their numbers of sparse dimensions.
    """

    def take_and_convert() -> None:
        take()
        for parameter, dim in dims.items():
            assert parameter.grad is not None
            parameter.grad = parameter.grad.to_sparse(dim)

    return take_and_convert


class _Distributed(torch.optim.Optimizer):  # type: ignore[misc]
    """The methods that DistributedOptimizer adds to the class of an optimizer.

    It derives a class from both at run time.
    """

    _reducer: _Reducer

    @property
    def _parameter_names(self) -> dict[torch.Tensor, str]:
        """Horovod's attribute, which its tests read."""
        return self._reducer.names

    def synchronize(self) -> None:
        """Wait until all gradients are reduced."""
        self._reducer.wait()

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """A context in which `step` does not wait, because `synchronize` has been called."""
        self._reducer.step_waits = False
        try:
            yield
        finally:
            self._reducer.step_waits = True

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Reduce after `passes` backward passes."""
        self._reducer.passes = _positive(passes)
        self._reducer.reset()

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """Like the optimizer's own `zero_grad`.

        Raises:
            AssertionError: gradients have been submitted and not been waited for.
        """
        if self._reducer.under_way:
            raise AssertionError(_EARLY_ZERO)
        super().zero_grad(*args, **kwargs)

    def step(self, *args: Any, **kwargs: Any) -> Any:
        """Wait for gradients, then do the step of the optimizer."""
        if self._reducer.step_waits and self._reduces:
            if self._reducer.synchronized:
                warnings.warn(_TWICE, stacklevel=2)
            self.synchronize()
        self._reducer.synchronized = False
        current = context.current()
        if current.worker is not None:
            current.worker.step += 1
        return super().step(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """Like the optimizer's own `load_state_dict`. Submitted gradients are discarded."""
        self._reducer.reset()
        super().load_state_dict(*args, **kwargs)

    _reduces: bool = True


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    compression: Any = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = requests.Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[torch.Tensor]] | None = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> torch.optim.Optimizer:
    """Wrap an optimizer so that gradients are averaged over ranks, or reduced by `op`.

    The class of the result is derived from the class of the optimizer.

    `groups`: lists of parameters whose gradients are sent together, or the number of equal groups;
    `num_groups` is its deprecated name. `gradient_predivide_factor` f: divide by f before the sum
    and by size / f after it. LIGHT_* variables apply to averages over all ranks.

    Raises:
        Refused: invalid arguments.
    """
    if gradient_predivide_factor != 1.0 and op != requests.Average:
        raise Refused("gradient_predivide_factor requires op=Average", "leave it out, or op")
    if num_groups:
        warnings.warn(
            "the argument num_groups has been replaced by groups", DeprecationWarning, stacklevel=2
        )
        groups = num_groups if groups is None else groups
    op = calls.reduction(op, None)
    plan = _OptimizerArguments(
        compression, op, gradient_predivide_factor, sparse_as_dense, process_set
    )
    names = _names(optimizer, named_parameters)
    reducer = _Reducer(names, _groups(groups, names), plan, _positive(backward_passes_per_step))
    return _derive(optimizer, reducer)


def _derive(optimizer: torch.optim.Optimizer, reducer: _Reducer) -> torch.optim.Optimizer:
    """An optimizer of a class derived from the given one's, which uses the reducer."""
    base = type(optimizer)
    derived = type(base.__name__, (_Distributed, base), {"__module__": __name__})
    wrapped: Any = object.__new__(derived)
    # State and options are shared with the given optimizer, except a scheduler's wrapper of its
    # step.
    wrapped.__dict__.update(optimizer.__dict__)
    wrapped.__dict__.pop("step", None)
    current = context.current()
    reduces = current.info.size > 1 or current.options.always_reduce
    wrapped._reducer = reducer
    wrapped._reduces = reducer.plan.process_set.included() and reduces
    if wrapped._reduces:
        for parameter in filter(_is_trained, reducer.names):
            if parameter.grad is None:
                # As in Horovod, gradients exist before the first backward.
                parameter.grad = torch.zeros_like(parameter)
            parameter.register_post_accumulate_grad_hook(_make_hook(reducer))
    return wrapped


def _make_hook(reducer: _Reducer) -> Callable[[torch.Tensor], None]:
    """A hook that passes an accumulated gradient to the reducer.

    It does not keep the parameters: Python's garbage collector does not see what the hooks of a
    parameter refer to.
    """
    reference = weakref.ref(reducer)

    def hook(parameter: torch.Tensor) -> None:
        live = reference()
        if live is not None:
            live.accumulated(parameter)

    return hook


def _names(
    optimizer: torch.optim.Optimizer, named: Iterable[tuple[str, torch.Tensor]] | None
) -> dict[torch.Tensor, str]:
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if named is None:
        return {
            parameter: f"gradient.noname.{number}" for number, parameter in enumerate(parameters)
        }
    pairs = list(named)
    if any(not isinstance(pair, tuple) for pair in pairs):
        raise Refused(
            "named_parameters is not a sequence of tuples (name, parameter)",
            "give model.named_parameters()",
        )
    names = [name for name, _ in pairs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise Refused(
            f"names in named_parameters are not unique: {', '.join(twice)}",
            "give each parameter a unique name",
        )
    name_of = {parameter: name for name, parameter in pairs}
    unnamed = sum(parameter not in name_of for parameter in parameters)
    if unnamed:
        raise Refused(
            f"{unnamed} of the optimizer's {len(parameters)} parameters are not named",
            "give the model's whole named_parameters()",
        )
    return {parameter: name_of[parameter] for parameter in parameters}


def _groups(groups: Any, names: dict[torch.Tensor, str]) -> list[_Parameters]:
    """Groups of parameters. Parameters in no group are sent separately."""
    if groups is None or groups == 0:
        return []
    trained = list(filter(_is_trained, names))
    if isinstance(groups, int) and groups > 0:
        # Use the order of rank 0, so that groups are the same on all ranks.
        order = broadcast_object([names[parameter] for parameter in trained], 0)
        trained.sort(key=lambda parameter: order.index(names[parameter]))
        return [tuple(part) for part in split_list(trained, groups) if part]
    if isinstance(groups, int) or not all(isinstance(group, list | tuple) for group in groups):
        raise Refused(f"groups is {groups!r}", "give a positive number, or lists of parameters")
    listed = [parameter for group in groups for parameter in group]
    if not all(isinstance(parameter, torch.Tensor) for parameter in listed):
        raise Refused("groups have members that are not tensors", "give lists of parameters")
    if len(set(listed)) < len(listed) or not set(listed) <= set(names):
        raise Refused(
            "a parameter is in groups twice, or is not one of the optimizer's", "list each once"
        )
    return [tuple(filter(_is_trained, group)) for group in groups]


def _is_trained(parameter: torch.Tensor) -> bool:
    return bool(parameter.requires_grad)


def _positive(passes: int) -> int:
    if passes <= 0:
        raise Refused(f"backward_passes_per_step is {passes}", "give at least 1")
    return passes
