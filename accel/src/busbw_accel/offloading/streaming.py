"""Keeps the weights on the host too, and copies those of each unit to the device when it runs.

The copies are one unit ahead.
"""

import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from busbw.core.errors import UsageError
from busbw_accel.offloading.copy_streams import Moment, StartedCopy
from busbw_accel.offloading.optimizer import OffloadedAdamW
from busbw_accel.offloading.state_memory import OffloadedParameter, Unit, local_part


class Streamed:
    """The weights of one unit.

    They are on the host, in `slot` of each parameter, and also on the device while `on_device`.
    """

    def __init__(self, unit: Unit, optimizer: OffloadedAdamW) -> None:
        self.unit, self._optimizer = unit, optimizer
        self.parameters = [offloaded for offloaded in unit.parameters if not offloaded.on_device]
        self.on_device = True
        self._room: Moment | None = None
        self._copied: StartedCopy | None = None
        self._missing = 0  # parameters whose gradient has not come

    def reserve(self) -> None:
        """Allocate memory on the device, ordered with the work of the current stream."""
        if self.on_device or self._room is not None:
            return
        for offloaded in self.parameters:
            offloaded.local.untyped_storage().resize_(offloaded.count * offloaded.local.itemsize)
        self._room = self._optimizer.up.moment()

    def fetch(self) -> None:
        """Start the copies to the device, once the updates of these weights have ended."""
        if self.on_device:
            return
        self.reserve()
        assert self._room is not None
        self._optimizer.ready(self.parameters)
        self._optimizer.up.after(self._room)
        for offloaded in self.parameters:
            for part in offloaded.pieces():
                assert offloaded.slot is not None
                self._copied = self._optimizer.up.copy(offloaded.local[part], offloaded.slot[part])
        self._room, self.on_device, self._missing = None, True, len(self.parameters)

    def use(self) -> None:
        """Make the current stream wait until the weights are on the device."""
        self.fetch()
        if self._copied is not None:
            self._copied.hold_stream()

    def release(self) -> None:
        """Free the memory on the device.

        The current stream first waits for a copy that may still write to it.
        """
        if self._copied is not None:
            self._copied.hold_stream()
        for offloaded in self.parameters:
            offloaded.local.untyped_storage().resize_(0)
        self._room, self._copied, self.on_device = None, None, False

    def gradient_came(self) -> None:
        """Count a gradient of the unit; after the last one the weights are released."""
        self._missing -= 1
        if self._missing == 0:
            self.release()


class Streamer:
    """Streams the weights of all units but the root, in the order of their definition.

    The root's weights stay on the device.
    """

    def __init__(self, model: nn.Module, optimizer: OffloadedAdamW, units: list[Unit]) -> None:
        self._optimizer, self._root = optimizer, units[0]
        units_with_weights = [Streamed(unit, optimizer) for unit in units[1:]]
        self._streamed = [streamed for streamed in units_with_weights if streamed.parameters]
        self._handles: list[Any] = [model.register_forward_pre_hook(self._begin)]
        for number, streamed in enumerate(self._streamed):
            self._watch(number, streamed)
        for streamed in self._streamed:
            for offloaded in streamed.parameters:
                _own_storage(offloaded)
            streamed.release()
        self._on_host = {
            id(offloaded.parameter): offloaded
            for offloaded in optimizer.parameters
            if offloaded.slot is not None
        }

        def add_weights(*arguments: Any) -> None:  # not a method: torch sets an attribute on it
            self._add_weights(*arguments)

        for module in model.modules():
            parameters = module.parameters(recurse=False)
            if any(id(parameter) in self._on_host for parameter in parameters):
                self._handles.append(module.register_state_dict_post_hook(add_weights))
                self._handles.append(module.register_load_state_dict_pre_hook(_refuse))
        self._handles.append(model.register_load_state_dict_pre_hook(_refuse))

    def close(self) -> None:
        """Copy all weights to the device, where they stay."""
        for handle in self._handles:
            handle.remove()
        self._raise_root()
        for unit in self._streamed:
            unit.use()
        self._optimizer.up.finish()

    def _watch(self, number: int, streamed: Streamed) -> None:
        module = streamed.unit.module
        self._handles.append(
            module.register_forward_pre_hook(lambda *_: self._before_forward(number))
        )
        self._handles.append(
            module.register_forward_hook(
                lambda _module, _inputs, output: self._after_forward(number, output)
            )
        )
        for parameter in streamed.parameters:
            self._handles.append(
                parameter.parameter.register_post_accumulate_grad_hook(_gradient_of(streamed))
            )

    @torch.compiler.disable
    def _begin(self, *_: object) -> None:
        """Begin a forward of the model.

        Copies the root's weights to the device, and releases those that a backward that did not end
        has left there.
        """
        if self._optimizer.schedule.unfinished:
            raise UsageError(
                "forward between backward and optimizer.step(), while weights are streamed",
                "call step() first",
            )
        self._raise_root()
        for unit in self._streamed:
            unit.release()

    def _raise_root(self) -> None:
        """Copy the root's weights to the device."""
        self._optimizer.ready(self._root.parameters)
        copied = None
        self._optimizer.up.after_current()
        for offloaded in self._root.parameters:
            if not offloaded.on_device:
                assert offloaded.slot is not None
                copied = self._optimizer.up.copy(offloaded.local, offloaded.slot)
        if copied is not None:
            copied.hold_stream()

    @torch.compiler.disable
    def _before_forward(self, number: int) -> None:
        streamed = self._streamed[number]
        streamed.unit.called = True
        streamed.use()
        if not _in_backward() and number + 1 < len(self._streamed):
            self._streamed[number + 1].reserve()

    @torch.compiler.disable
    def _after_forward(self, number: int, output: Any) -> None:
        if _in_backward():  # recomputed: backward continues with these weights
            return
        last = number + 1 == len(self._streamed)
        tensors = [tensor for tensor in _tensors(output) if tensor.requires_grad]
        for tensor in tensors:
            tensor.register_hook(lambda _gradient: self._begin_backward(number))
        if not last:
            self._streamed[number + 1].fetch()
        if not (last and tensors):  # backward begins with the last one
            self._streamed[number].release()

    def _begin_backward(self, number: int) -> None:
        """Begin the backward of a unit."""
        self._streamed[number].use()
        if number:
            self._streamed[number - 1].fetch()

    def _add_weights(
        self,
        module: nn.Module,
        state_dict: dict[str, Any],
        prefix: str,
        _metadata: Mapping[str, Any],
    ) -> None:
        """Give a state_dict the module's weights on the host in place of the empty ones."""
        for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            offloaded = self._on_host.get(id(parameter))
            if offloaded is None or prefix + name not in state_dict:
                continue
            assert offloaded.slot is not None
            assert offloaded.states is not None
            narrow = offloaded.slot
            if self._optimizer.schedule.unfinished:  # the slot may hold a gradient
                narrow = offloaded.states.weight.bfloat16()
            state_dict[prefix + name] = narrow.view(offloaded.parameter.shape)


def _gradient_of(streamed: Streamed) -> Callable[[torch.Tensor], None]:
    """A hook that counts the gradient of a parameter.

    It does not refer to the module: Python's garbage collector does not see what the hooks of a
    parameter refer to.
    """
    reference = weakref.ref(streamed)

    def hook(_: torch.Tensor) -> None:
        live = reference()
        if live is not None:
            live.gradient_came()

    return hook


def _own_storage(offloaded: OffloadedParameter) -> None:
    """Give a parameter that shares its storage with other tensors a separate one, to be freed."""
    if offloaded.local.untyped_storage().nbytes() != offloaded.count * offloaded.local.itemsize:
        offloaded.parameter.data = offloaded.parameter.data.clone()
        offloaded.local = local_part(offloaded.parameter)


def _tensors(output: Any) -> list[torch.Tensor]:
    if isinstance(output, torch.Tensor):
        return [output]
    if isinstance(output, Mapping):
        output = list(output.values())
    if not isinstance(output, list | tuple):
        return []
    return [tensor for part in output for tensor in _tensors(part)]


def _in_backward() -> bool:
    return bool(torch._C._current_graph_task_id() != -1)


def _refuse(*_: object) -> None:
    raise UsageError(
        "load_state_dict on a model whose weights are streamed",
        "load before offload, or use optimizer.load_weights",
    )
