"""Trains a model by one of the ways to keep its states.

Each way builds the model, because it decides where the weights are, and in which type. The model is
a gpt with random weights, which are the same for every way.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from busbw.core.errors import NoMeasurement
from busbw_accel.offloading.attach import offload
from busbw_accel.offloading.optimizer import OffloadedAdamW, StepTimes
from busbw_accel.train.models import Gpt
from busbw_accel.train.states.methods import ADAMW, OFFLOAD, StateMethod
from busbw_accel.train.types import COMPUTE, TrainSpec

SEED = 7
WEIGHT_DEVIATION = 0.02  # standard deviation of matrices, as GPT-2's
LEARNING_RATE = 1e-4  # learning rate


def build_without_memory(spec: TrainSpec, dtype: torch.dtype) -> Gpt:
    """The model on the device meta, which allocates no memory."""
    assert spec.states is not None
    shape = spec.states.shape
    with torch.device("meta"):
        net = Gpt(
            shape.layers,
            shape.width,
            shape.heads,
            shape.vocabulary,
            spec.sequence,
            recompute=spec.states.recompute,
        )
    net.to(dtype)
    return net


def build(spec: TrainSpec, device: torch.device) -> Gpt:
    """The model in bf16 on a device. With several ranks it is sharded over them."""
    net = build_without_memory(spec, torch.bfloat16)
    if dist.get_world_size() > 1:
        shard(net, device)
    net.to_empty(device=device)
    fill(net, device)
    return net


def shard(net: Gpt, device: torch.device, **options: object) -> None:
    """Apply fully_shard to each block and to the model, over all ranks."""
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for block in net.blocks:
        fully_shard(block, mesh=mesh, **options)
    fully_shard(net, mesh=mesh, **options)


@torch.no_grad()
def fill(net: nn.Module, device: torch.device) -> None:
    """Draw the weights in bf16 on `device`, and copy them to the parameters, one at a time."""
    generator = torch.Generator(device).manual_seed(SEED)
    for name, parameter in net.named_parameters():
        drawn = torch.empty(parameter.shape, dtype=torch.bfloat16, device=device)
        if parameter.dim() > 1:
            drawn.normal_(0, WEIGHT_DEVIATION, generator=generator)
        else:
            # Norms begin as the identity, and biases at 0.
            drawn.fill_(float(name.endswith("weight")))
        if isinstance(parameter, DTensor):
            sharded = distribute_tensor(
                drawn, parameter.device_mesh, parameter.placements, src_data_rank=None
            )
            parameter.to_local().copy_(sharded.to_local())
        else:
            parameter.copy_(drawn)


class Trainer:
    """Forward, backward and update of one method.

    This one updates nothing: it is the method `compute`.
    """

    def __init__(self, net: nn.Module) -> None:
        self.net = net

    def step(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """One step on tokens [batch, sequence].

        Returns the loss. The host does not wait for the device unless the method does.
        """
        loss: torch.Tensor = self.net(inputs, targets)
        loss.backward()
        self.update()
        return loss.detach()

    def update(self) -> None:
        """Update the weights by the gradients, and drop the gradients."""

    def times(self) -> StepTimes | None:
        """Bytes and seconds so far, where the method counts them."""
        return None

    @property
    def pinned(self) -> int:
        """Bytes of host memory that the method itself has pinned, without those of torch."""
        return 0

    def close(self) -> None:
        """End the threads of the method."""


class GpuTrainer(Trainer):
    """Fused AdamW over fp32 copies of the weights.

    It updates block by block, so that fp32 gradients of only one block exist at a time.
    """

    def __init__(self, net: Gpt) -> None:
        super().__init__(net)
        groups = [list(block.parameters()) for block in net.blocks]
        inside = {id(parameter) for group in groups for parameter in group}
        groups.append([parameter for parameter in net.parameters() if id(parameter) not in inside])
        self._groups = [(list(map(_local, group)), group) for group in groups]
        self._masters = [_copy_to_fp32(locals_) for locals_, _ in self._groups]
        self._optimizers = [
            torch.optim.AdamW(group, lr=LEARNING_RATE, fused=True) for group in self._masters
        ]

    @torch.no_grad()
    def update(self) -> None:
        groups = zip(self._groups, self._masters, self._optimizers, strict=True)
        for (locals_, group), masters, optimizer in groups:
            for parameter, master in zip(group, masters, strict=True):
                assert parameter.grad is not None
                master.grad, parameter.grad = _local(parameter.grad).float(), None
            optimizer.step()
            optimizer.zero_grad()
            torch._foreach_copy_(locals_, masters)


class Offloading(Trainer):
    """The method `offload`: busbw_accel.offload."""

    def __init__(self, net: nn.Module, **settings: Any) -> None:
        super().__init__(net)
        adamw = torch.optim.AdamW(net.parameters(), lr=LEARNING_RATE)
        self.optimizer: OffloadedAdamW = offload(net, adamw, **settings)

    def update(self) -> None:
        """End the step. Updates may continue in their thread."""
        self.optimizer.step()
        self.optimizer.zero_grad()

    def times(self) -> StepTimes:
        """The optimizer's counts, once all updates have ended."""
        self.optimizer.ready()
        return self.optimizer.times()

    @property
    def pinned(self) -> int:
        """Bytes of the slots for gradients and weights."""
        return self.optimizer.state_memory.slots.pinned_bytes

    def close(self) -> None:
        self.optimizer.close()


class PlainOptimizer(Trainer):
    """An optimizer that works on the gradients of the parameters."""

    def __init__(self, net: nn.Module, optimizer: Any) -> None:
        super().__init__(net)
        self._optimizer = optimizer

    def update(self) -> None:
        self._optimizer.step()
        self._optimizer.zero_grad()


class DeepSpeed(Trainer):
    """A DeepSpeed engine, which does backward and step itself."""

    def step(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """One step on tokens [batch, sequence]. Returns the loss."""
        loss: torch.Tensor = self.net(inputs, targets)
        self.net.backward(loss)
        self.net.step()
        return loss.detach()


# Yields None once the weights are in place, and then the trainer.
Stages = Iterator[Trainer | None]


def _compute(spec: TrainSpec, device: torch.device, _: StateMethod) -> Stages:
    net = build(spec, device)
    yield None

    def drop(parameter: torch.Tensor) -> None:
        parameter.grad = None

    for parameter in net.parameters():
        parameter.register_post_accumulate_grad_hook(drop)
    yield Trainer(net)


def _adamw(spec: TrainSpec, device: torch.device, _: StateMethod) -> Stages:
    net = build(spec, device)
    yield None
    yield GpuTrainer(net)


def _offload(spec: TrainSpec, device: torch.device, method: StateMethod) -> Stages:
    net = build(spec, device)
    yield None
    yield Offloading(net, **method.offload_settings())


def _fsdp2(spec: TrainSpec, device: torch.device, method: StateMethod) -> Stages:
    offloads = method.row.name == "fsdp2-offload"
    policy = (
        {"offload_policy": CPUOffloadPolicy(pin_memory=device.type == "cuda")} if offloads else {}
    )
    net = build_without_memory(spec, torch.float32)
    shard(net, device, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16), **policy)
    net.to_empty(device="cpu" if offloads else device)
    fill(net, device)
    yield None
    yield PlainOptimizer(net, torch.optim.AdamW(net.parameters(), lr=LEARNING_RATE, fused=True))


def _torchao(spec: TrainSpec, device: torch.device, method: StateMethod) -> Stages:
    try:
        from torchao.optim import CPUOffloadOptimizer
    except ImportError as error:
        raise NoMeasurement(f"torchao is not installed ({error})", "pip install torchao") from error
    if device.type != "cuda":
        raise NoMeasurement("torchao's CPUOffloadOptimizer needs a GPU", "leave it out")
    net = build(spec, device)
    yield None
    optimizer = CPUOffloadOptimizer(
        net.parameters(), torch.optim.AdamW, fused=True, lr=LEARNING_RATE, **method.values
    )
    yield PlainOptimizer(net, optimizer)


def _deepspeed(spec: TrainSpec, device: torch.device, method: StateMethod) -> Stages:
    try:
        import deepspeed
    except ImportError as error:
        raise NoMeasurement(
            f"deepspeed is not installed ({error})", "pip install deepspeed ninja"
        ) from error
    net = build_without_memory(spec, torch.bfloat16)
    net.to_empty(device=device)
    fill(net, device)
    yield None
    settings = {
        "train_micro_batch_size_per_gpu": spec.batch_size,
        "bf16": {"enabled": True},
        "gradient_clipping": 0.0,  # its default is 1.0, and the other ways do not clip
        "optimizer": {"type": "AdamW", "params": {"lr": LEARNING_RATE, "weight_decay": 0.01}},
        "zero_optimization": {
            "stage": method.values.get("stage", 2),
            "offload_optimizer": {"device": "cpu", "pin_memory": True},
            "overlap_comm": True,
            "contiguous_gradients": True,
        },
    }
    try:
        engine, *_ = deepspeed.initialize(
            model=net,
            model_parameters=list(net.parameters()),
            config=settings,
            dist_init_required=False,
        )
    except (RuntimeError, AssertionError, OSError) as error:
        reason = f"{error} ({error.__cause__})" if error.__cause__ else str(error)
        raise NoMeasurement(
            f"deepspeed did not start: {reason}",
            "its CPU Adam is compiled at the start: pip install ninja, nvcc",
        ) from error
    yield DeepSpeed(engine)


_MAKERS: dict[str, Callable[[TrainSpec, torch.device, StateMethod], Stages]] = {
    COMPUTE: _compute,
    ADAMW: _adamw,
    OFFLOAD: _offload,
    "fsdp2": _fsdp2,
    "fsdp2-offload": _fsdp2,
    "torchao": _torchao,
    "deepspeed": _deepspeed,
}


def make_trainer(spec: TrainSpec, device: torch.device, method: StateMethod) -> Stages:
    """Build the model, and then make the trainer of the method.

    Raises:
        NoMeasurement: the method's library is missing, or the states do not fit.
    """
    return _MAKERS[method.row.name](spec, device, method)


def _copy_to_fp32(tensors: Sequence[torch.Tensor]) -> list[nn.Parameter]:
    return [nn.Parameter(tensor.float()) for tensor in tensors]


def _local(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's part of a tensor, which shares memory with it."""
    part: torch.Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return part.detach()
