"""The outer optimizer of local steps: the parameters that all ranks share, in fragments.

DiLoCo (arXiv 2311.08105) and Streaming DiLoCo (arXiv 2501.18512): a rank's change of the parameters
is averaged over ranks, and SGD with Nesterov momentum applies the average to the outer parameters.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from busbw.core.errors import UsageError
from busbw_accel.attachment import plain
from busbw_accel.settings import Settings

BUCKET_BYTES = 32 << 20  # of outer parameters that are exchanged together


@dataclass(slots=True)
class OuterBucket:
    """Parameters that are exchanged together, and their outer values, flat and in fp32.

    fp64 stays fp64. A complex parameter is a real one with another dimension of 2.
    """

    names: list[str]
    tensors: list[torch.Tensor]  # of this rank
    dense: bool  # no codec: biases, norms and buffers
    lr: float
    momentum: float
    share: float  # of the outer parameters in the mean that the rank continues from
    outer: torch.Tensor = field(init=False)
    velocity: torch.Tensor | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.restart()

    @property
    def shapes(self) -> list[torch.Size]:
        return [part.shape for part in map(_real, self.tensors)]

    def restart(self) -> None:
        """Begin with the parameters of this rank, without momentum."""
        self.outer = self._local()
        self.velocity = torch.zeros_like(self.outer) if self.momentum else None

    def change(self) -> torch.Tensor:
        """The outer parameters minus those of this rank, which is what a gradient would be."""
        local = self._local()
        # A buffer may hold inf, as masks do: inf minus inf is not 0.
        return torch.where(local == self.outer, 0.0, self.outer - local)

    def step(self, change: torch.Tensor) -> None:
        """Apply the average of all ranks' changes, which is overwritten."""
        if self.velocity is not None:
            self.velocity.mul_(self.momentum).add_(change)
            change.add_(self.velocity, alpha=self.momentum)
        self.outer.sub_(change, alpha=self.lr)

    def mix(self, share: float) -> None:
        """Move this rank's parameters to the outer ones by a share of the way."""
        for tensor, part in zip(self.tensors, self.split(self.outer), strict=True):
            local = _real(tensor)
            outer = part.view(local.shape).to(local.dtype)
            if share == 1:
                local.copy_(outer)  # a buffer may hold inf
            else:
                local.lerp_(outer, share)

    def split(self, flat: torch.Tensor) -> list[torch.Tensor]:
        return list(flat.split([shape.numel() for shape in self.shapes]))

    def states(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The name and the tensor of all that the outer optimizer keeps."""
        yield "outer", self.outer
        if self.velocity is not None:
            yield "velocity", self.velocity

    def _local(self) -> torch.Tensor:
        parts = list(map(_real, self.tensors))
        kind = torch.promote_types(parts[0].dtype, torch.float32)
        return torch.cat([part.reshape(-1).to(kind) for part in parts])


def _real(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def divide(lengths: Sequence[int], parts: int) -> list[range]:
    """Consecutive indices in `parts` ranges of about equal sums, none of them empty."""
    ends = list(itertools.accumulate(lengths))
    ranges, begin = [], 0
    for number in range(1, parts + 1):
        end = begin + 1
        while end < len(lengths) - (parts - number):
            middle = ends[end] - lengths[end] / 2
            if number < parts and middle > ends[-1] * number / parts:
                break
            end += 1
        ranges.append(range(begin, end))
        begin = end
    return ranges


def parameters_of(module: nn.Module) -> dict[str, torch.Tensor]:
    """The parameters that a training changes."""
    return {
        plain(name): parameter
        for name, parameter in module.named_parameters()
        if parameter.requires_grad
    }


def buffers_of(module: nn.Module) -> dict[str, torch.Tensor]:
    """The floating-point buffers that a checkpoint of the model has, as of BatchNorm."""
    kept = module.state_dict()
    return {
        plain(name): buffer
        for name, buffer in module.named_buffers()
        if name in kept and (buffer.is_floating_point() or buffer.is_complex())
    }


def fragments_of(module: nn.Module, settings: Settings) -> list[list[OuterBucket]]:
    """The buckets of each fragment. The first one also has the buffers, which are averaged.

    Raises:
        UsageError: there are more fragments than parameters.
    """
    named = list(parameters_of(module).items())
    if settings.fragments > len(named):
        raise UsageError(
            f"fragments={settings.fragments}, and the model has {len(named)} parameters to train",
            f"set fragments to {len(named)} or less",
        )
    outer = (settings.outer_lr, settings.outer_momentum, settings.mix if settings.delay else 1.0)
    fragments = []
    for indices in divide([parameter.numel() for _, parameter in named], settings.fragments):
        parts: dict[bool, list[tuple[str, torch.Tensor]]] = {False: [], True: []}
        for name, parameter in (named[at] for at in indices):
            parts[settings.dense_below_2d and parameter.dim() < 2].append((name, parameter))
        fragments.append(
            [bucket for dense, few in parts.items() for bucket in _buckets(few, dense, *outer)]
        )
    fragments[0] += _buckets(list(buffers_of(module).items()), True, 1.0, 0.0, 1.0)
    return fragments


def _buckets(
    named: Sequence[tuple[str, torch.Tensor]], dense: bool, lr: float, momentum: float, share: float
) -> Iterator[OuterBucket]:
    """Consecutive tensors of one type and at most BUCKET_BYTES, or one that is larger."""
    names: list[str] = []
    tensors: list[torch.Tensor] = []
    for name, tensor in named:
        nbytes = 4 * (sum(map(torch.Tensor.numel, tensors)) + tensor.numel())
        if tensors and (nbytes > BUCKET_BYTES or tensor.dtype != tensors[0].dtype):
            yield OuterBucket(names, tensors, dense, lr, momentum, share)
            names, tensors = [], []
        names.append(name)
        tensors.append(tensor)
    if tensors:
        yield OuterBucket(names, tensors, dense, lr, momentum, share)


def renew(buckets: Sequence[OuterBucket], module: nn.Module) -> str:
    """Take the tensors that the module has now, since it may replace them.

    Returns the name of one that is new, frozen, gone or of another shape or type; '' if all are as
    before. The buckets are unchanged then.
    """
    found = parameters_of(module) | buffers_of(module)
    before = {
        name: tensor
        for bucket in buckets
        for name, tensor in zip(bucket.names, bucket.tensors, strict=True)
    }
    for name in sorted(found.keys() ^ before.keys()):
        return name
    for name, tensor in before.items():
        if (found[name].shape, found[name].dtype) != (tensor.shape, tensor.dtype):
            return name
    for bucket in buckets:
        bucket.tensors = [found[name] for name in bucket.names]
    return ""


def save(buckets: Sequence[OuterBucket]) -> dict[str, dict[str, torch.Tensor]]:
    """What the outer optimizer keeps, by parameter, on the CPU."""
    saved: dict[str, dict[str, torch.Tensor]] = {}
    for bucket in buckets:
        for kind, flat in bucket.states():
            for name, part in zip(bucket.names, bucket.split(flat), strict=True):
                saved.setdefault(name, {})[kind] = part.to("cpu", copy=True)
    return saved


def load(buckets: Sequence[OuterBucket], saved: Mapping[str, Mapping[str, torch.Tensor]]) -> None:
    """Continue with what `save` gave.

    Raises:
        UsageError: it is of another model, or of another outer optimizer. Nothing has changed then.
    """
    pairs = []
    for bucket in buckets:
        for kind, flat in bucket.states():
            for name, part in zip(bucket.names, bucket.split(flat), strict=True):
                kept = saved.get(name, {}).get(kind)
                if kept is None or kept.numel() != part.numel():
                    has = "no" if kept is None else f"{kept.numel()}"
                    raise UsageError(
                        f"the state has {has} {kind} values for '{name}', which has {part.numel()}",
                        "load the state of the same model and settings",
                    )
                pairs.append((part, kept))
    for part, kept in pairs:
        part.copy_(kept)
