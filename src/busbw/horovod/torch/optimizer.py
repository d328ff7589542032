"""An optimizer whose gradients are reduced over ranks during the backward pass."""

import contextlib
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from busbw.horovod.torch import calls, context, ops, requests
from busbw.horovod.torch.calls import Call
from busbw.horovod.torch.compression import Compression
from busbw.horovod.torch.context import ProcessSet, global_process_set
from busbw.horovod.torch.errors import Refused
from busbw.horovod.torch.functions import broadcast_object
from busbw.horovod.torch.requests import Kind
from busbw.horovod.torch.util import split_list

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
class _Plan:
    """The arguments of DistributedOptimizer."""

    compression: Any
    op: int
    predivide: float
    sparse_as_dense: bool
    process_set: ProcessSet


class _Reducer:
    """Submits gradients of single parameters or of groups, and waits for them."""

    def __init__(
        self, names: dict[torch.Tensor, str], groups: list[_Parameters], plan: _Plan, passes: int
    ) -> None:
        self.names, self.plan, self.passes = names, plan, passes
        self.synchronized = False
        self.step_waits = True
        self.delay = dict.fromkeys(names, passes)
        self._group_of = {one: group for group in groups for one in group}
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
        """A gradient has been accumulated."""
        if self.delay[parameter] <= 0:
            raise AssertionError(_TOO_OFTEN)
        self.delay[parameter] -= 1
        self._begun.add(parameter)
        if self.delay[parameter]:
            return
        group = self._group_of.get(parameter, (parameter,))
        if all(self.delay[one] == 0 for one in group):
            self._submit(group)

    def wait(self) -> None:
        """Wait until all gradients are reduced. Missing ones count as zeros."""
        for parameter in self.names:
            group = self._group_of.get(parameter, (parameter,))
            if parameter.requires_grad and group not in self._under_way:
                self._submit(group)
        for group, taken in self._under_way.items():
            taken()
            self.delay.update(dict.fromkeys(group, self.passes))
        self._under_way.clear()
        self._begun.clear()
        self.synchronized = True

    def _submit(self, group: _Parameters) -> None:
        were_sparse = {}
        for one in group:
            if one.grad is None:
                one.grad = torch.zeros_like(one)
            elif one.grad.is_sparse and self.plan.sparse_as_dense:
                were_sparse[one] = one.grad.sparse_dim()
                one.grad = one.grad.to_dense()
        gradients = [one.grad for one in group if one.grad is not None]
        if any(gradient.is_sparse for gradient in gradients):
            self._under_way[group] = self._sparse(group)
        else:
            self._under_way[group] = _sparse_again(self._dense(group, gradients), were_sparse)

    def _sparse(self, group: _Parameters) -> Any:
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

    def _dense(self, group: _Parameters, gradients: Sequence[torch.Tensor]) -> Any:
        plan = self.plan
        narrow = [plan.compression.compress(gradient.detach()) for gradient in gradients]
        number = calls.begin(
            Call(
                Kind.ALLREDUCE,
                grouped=True,
                in_place=True,
                name=self.names[group[0]],
                op=plan.op,
                prescale=1.0 / plan.predivide,
                postscale=plan.predivide,
                process_set=plan.process_set,
                gradient=all(gradient.is_floating_point() for gradient in gradients),
            ),
            [tensor.contiguous() for tensor, _ in narrow],
        )

        def take() -> None:
            results = context.handles.synchronize(number)
            for gradient, result, (_, narrowing) in zip(gradients, results, narrow, strict=True):
                wide = plan.compression.decompress(result, narrowing)
                if wide.data_ptr() != gradient.data_ptr() or wide.stride() != gradient.stride():
                    gradient.detach().copy_(wide)

        return take


def _sparse_again(take: Callable[[], None], dims: dict[torch.Tensor, int]) -> Callable[[], None]:
    """Convert gradients that were sent densely back to sparse ones with these numbers of sparse
    dimensions.
    """

    def taken() -> None:
        take()
        for one, dim in dims.items():
            assert one.grad is not None
            one.grad = one.grad.to_sparse(dim)

    return taken


class _Distributed(torch.optim.Optimizer):  # type: ignore[misc]
    """What DistributedOptimizer adds to the class of the optimizer, from which its own class is
    derived at run time.
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
        """In this context `step` does not wait for gradients, because `synchronize` has been
        called.
        """
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
        """As the optimizer's own.

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
        here = context.current()
        if here.worker is not None:
            here.worker.step += 1
        return super().step(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """Like the optimizer's own. Submitted gradients are discarded."""
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
    """Wrap an optimizer in a class derived from its own, so that gradients are averaged (or reduced
    by `op`) over ranks.

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
    plan = _Plan(
        compression,
        calls.reduction(op, None),
        gradient_predivide_factor,
        sparse_as_dense,
        process_set,
    )
    names = _names(optimizer, named_parameters)
    reducer = _Reducer(names, _groups(groups, names), plan, _positive(backward_passes_per_step))
    own = type(optimizer)
    derived = type(own.__name__, (_Distributed, own), {"__module__": __name__})
    wrapped: Any = object.__new__(derived)
    # State and options are shared with the given optimizer, except a scheduler's wrapper of its
    # step.
    wrapped.__dict__.update(
        {name: value for name, value in optimizer.__dict__.items() if name != "step"}
    )
    here = context.current()
    wrapped._reducer = reducer
    wrapped._reduces = process_set.included() and (here.info.size > 1 or here.options.always_reduce)
    if wrapped._reduces:
        for parameter in names:
            if parameter.requires_grad:
                if parameter.grad is None:
                    # as in Horovod, it exists before the first backward
                    parameter.grad = torch.zeros_like(parameter)
                parameter.register_post_accumulate_grad_hook(_accumulated(reducer))
    return wrapped


def _accumulated(reducer: _Reducer) -> Callable[[torch.Tensor], None]:
    """A hook that does not keep the parameters: Python does not see what hooks of a parameter
    refer to.
    """
    reference = weakref.ref(reducer)

    def hook(parameter: torch.Tensor) -> None:
        own = reference()
        if own is not None:
            own.accumulated(parameter)

    return hook


def _names(
    optimizer: torch.optim.Optimizer, named: Iterable[tuple[str, torch.Tensor]] | None
) -> dict[torch.Tensor, str]:
    """Each parameter's name."""
    every = [one for group in optimizer.param_groups for one in group["params"]]
    if named is None:
        return {one: f"gradient.noname.{number}" for number, one in enumerate(every)}
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
    known = {one: name for name, one in pairs}
    unnamed = sum(one not in known for one in every)
    if unnamed:
        raise Refused(
            f"{unnamed} of the optimizer's {len(every)} parameters are not named",
            "give the model's whole named_parameters()",
        )
    return {one: known[one] for one in every}


def _groups(groups: Any, names: dict[torch.Tensor, str]) -> list[_Parameters]:
    """Groups of parameters. Parameters in no group are sent separately."""
    if groups is None or groups == 0:
        return []
    trained = [one for one in names if one.requires_grad]
    if isinstance(groups, int) and groups > 0:
        # Use the order of rank 0, so that groups are the same on all ranks.
        order = broadcast_object([names[one] for one in trained], 0)
        trained.sort(key=lambda one: order.index(names[one]))
        return [tuple(part) for part in split_list(trained, groups) if part]
    if isinstance(groups, int) or not all(isinstance(group, list | tuple) for group in groups):
        raise Refused(f"groups is {groups!r}", "give a positive number, or lists of parameters")
    listed = [one for group in groups for one in group]
    if not all(isinstance(one, torch.Tensor) for one in listed):
        raise Refused("groups have members that are not tensors", "give lists of parameters")
    if len(set(listed)) < len(listed) or not set(listed) <= set(names):
        raise Refused(
            "a parameter is in groups twice, or is not one of the optimizer's", "list each once"
        )
    return [tuple(one for one in group if one.requires_grad) for group in groups]


def _positive(passes: int) -> int:
    if passes <= 0:
        raise Refused(f"backward_passes_per_step is {passes}", "give at least 1")
    return passes
