"""What the frontends for DistributedDataParallel and fully_shard share: a model with a
communication worker, and the state of that worker in a checkpoint.
"""

import dataclasses
import functools
import os
import sys
import zlib
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed as dist

from busbw.core.errors import UsageError
from busbw_accel import lightcc_env
from busbw_accel.codecs import coder
from busbw_accel.comm_worker import CommWorker
from busbw_accel.residual_state import BucketPiece, UnsplitState
from busbw_accel.settings import Settings
from busbw_accel.traffic import Traffic

_SAVE_HINT = (
    "save and load it on every rank by torch.save(attached.state_dict(),"
    ' f"accel.{dist.get_rank()}") and torch.load'
)
_COMPILED = "_orig_mod."  # torch.compile adds it to the names of a module's parameters


def plain(name: str) -> str:
    """The name of a parameter or module, whether the model is compiled or not."""
    return name.replace(_COMPILED, "")


class Attachment:
    """A model whose gradients are exchanged by a communication worker."""

    def __init__(self, worker: CommWorker, lengths: Mapping[str, int] | None = None) -> None:
        """`worker` belongs to this model.

        `lengths`: elements of each parameter by name, if known.
        """
        self.worker = worker
        self._lengths = lengths
        self.steps = 0
        self._scale: torch.Tensor | float | None = None

    @property
    def settings(self) -> Settings:
        return self.worker.settings

    @property
    def traffic(self) -> Traffic:
        """Bytes that this rank has sent so far."""
        return self.worker.traffic

    def follow(self, scaler: Any) -> None:
        """Rescale the residuals when the scale of the GradScaler has changed.

        `scaler`: None if the loss is not scaled.
        """
        if scaler is None or not scaler.is_enabled():
            return
        # The scale is a tensor on the device, for which get_scale() would wait.
        scale = getattr(scaler, "_scale", None)
        scale = scaler.get_scale() if scale is None else scale
        if self._scale is not None:
            before = self._scale
            if isinstance(scale, torch.Tensor) and isinstance(before, torch.Tensor):
                before = before.to(scale.device)
            self.worker.memory.scale(scale / before)
        self._scale = scale.clone() if isinstance(scale, torch.Tensor) else scale

    def reset_residual(self) -> None:
        """Discard the residuals, as after a jump of the learning rate or loading parameters."""
        with self.worker.at_rest():
            self.worker.memory.clear()

    def silent(self) -> AbstractContextManager[None]:
        """Exchange without a network, to time steps. Results are wrong."""
        return self.worker.silent()

    def close(self) -> None:
        """Stop the worker and its communicators.

        Every rank must call it after the last backward.
        """
        self.worker.close()

    def state_dict(self) -> dict[str, Any]:
        """What the codecs keep between steps, by parameter, on the CPU.

        Every rank must call it, and save its own state: residuals differ between ranks.
        """
        by_parameter: dict[str, dict[str, torch.Tensor]] = {}
        with self.worker.at_rest():
            for parameter, name, tensor in self.worker.memory.single():
                by_parameter.setdefault(parameter, {})[name] = tensor.to("cpu", copy=True)
            buckets = [
                _plain(names, unsplit) for names, unsplit in self.worker.memory.unsplit().items()
            ]
        self.worker.check()
        scale = self._scale
        if isinstance(scale, torch.Tensor):
            scale = scale.to("cpu", copy=True)
        state = {
            "ranks": dist.get_world_size(),
            "rank": dist.get_rank(),
            "steps": self.steps,
            "scale": scale,
            "kept": by_parameter,
            "buckets": buckets,
            "settings": self.settings.describe(),
        }
        return state | {"checksum": _checksum(state)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict` that this rank has saved.

        With the same settings, training continues with the same bits as without the interruption.

        Raises:
            UsageError: the state is from another rank, another number of ranks, or another model,
                has parts of several ranks, or is of local steps where these settings have none, or
                the other way round.
        """
        self.check_kind(state)
        rank, ranks = dist.get_rank(), dist.get_world_size()
        if (state["ranks"], state["rank"]) != (ranks, rank):
            raise UsageError(
                f"the state is of rank {state['rank']} of {state['ranks']}, and this is rank"
                f" {rank} of {ranks}",
                f"{_SAVE_HINT}; with another number of ranks leave it out: the residuals are then"
                " lost once",
            )
        for parameter, tensors in state["kept"].items():
            for tensor in tensors.values():
                self._check_length(parameter, tensor.numel())
        if "checksum" in state and state["checksum"] != _checksum(state):
            raise UsageError(
                f"the state is not the one that rank {rank} saved: it has parts of other"
                " ranks, or lacks parts, as torch.distributed.checkpoint loads it",
                _SAVE_HINT,
            )
        with self.worker.at_rest():
            self.worker.memory.clear()
            self.steps, self._scale = state["steps"], state["scale"]
            for parameter, tensors in state["kept"].items():
                for name, tensor in tensors.items():
                    self.worker.memory.put_single(parameter, name, tensor)
            if state.get("settings") == self.settings.describe():
                self.worker.memory.put_unsplit(dict(map(_unsplit, state["buckets"])))

    def check_kind(self, state: Mapping[str, Any]) -> None:
        """Raise a UsageError if one of the state and this object has local steps."""
        every = self.settings.every
        if ("outer" in state) == (every > 1):
            return
        words = f"gradients, and every={every} exchanges parameters"
        if every == 1:
            words = "parameters after many steps, and these settings exchange gradients"
        raise UsageError(
            f"the state is of an exchange of {words}",
            "leave out the state of attach, and load the model and its optimizer on every rank",
        )

    def _check_length(self, parameter: str, count: int) -> None:
        if self._lengths is None or self._lengths.get(parameter) == count:
            return
        mismatch = "is not a parameter here"
        if parameter in self._lengths:
            mismatch = f"has {self._lengths[parameter]} elements here"
        raise UsageError(
            f"the state has {count} values for '{parameter}', which {mismatch}",
            "load the state of the same model",
        )


def _plain(names: tuple[str, ...], unsplit: UnsplitState) -> dict[str, Any]:
    """What a bucket keeps, as a checkpoint has it."""
    return {
        "names": list(names),
        "pieces": [[piece.begin, piece.length, piece.padding] for piece in unsplit.pieces],
        "states": [
            {name: tensor.to("cpu", copy=True) for name, tensor in state.items()}
            for state in unsplit.states
        ],
    }


def _unsplit(bucket: Mapping[str, Any]) -> tuple[tuple[str, ...], UnsplitState]:
    pieces = tuple(BucketPiece(*numbers) for numbers in bucket["pieces"])
    states = [
        {name: tensor.to("cpu", copy=True) for name, tensor in kept.items()}
        for kept in bucket["states"]
    ]
    return tuple(bucket["names"]), UnsplitState(pieces, states)


def _checksum(state: Mapping[str, Any]) -> int:
    """A checksum of a rank's state. Tensors are summed as integers, which is as fast as a copy."""
    tensors = {**state["kept"]}
    for bucket in state.get("buckets", ()):
        for number, kept in enumerate(bucket["states"]):
            tensors[f"{bucket['names']} {number}"] = kept
    sums = {
        (owner, name): int(tensor.view(torch.int32).sum())
        for owner, kept in tensors.items()
        for name, tensor in kept.items()
    }
    facts = state["ranks"], state["rank"], state["steps"], sorted(sums.items())
    return zlib.crc32(repr(facts).encode())


def agree_on_settings(settings: Settings | None) -> tuple[Settings, list[str]]:
    """The settings that all ranks have, and unknown LIGHT_* variables.

    `settings`: None takes those that the LIGHT_* variables select.

    Raises:
        UsageError: a variable is invalid, or ranks have different settings. Raised on every rank.
    """
    error = ""
    unknown: list[str] = []
    if settings is None:
        unknown = lightcc_env.unknown(os.environ)
        try:
            settings = lightcc_env.from_env(os.environ)
        except UsageError as invalid:
            error = invalid.message
    words = {} if settings is None else dataclasses.asdict(settings)
    gathered = [(error, words)] * dist.get_world_size()
    dist.all_gather_object(gathered, (error, words))
    failures = [f"rank {rank}: {reason}" for rank, (reason, _) in enumerate(gathered) if reason]
    if failures:
        raise UsageError("; ".join(failures), "set it on every rank, for example with mpirun -x")
    first = gathered[0][1]
    differing = [rank for rank, (_, other) in enumerate(gathered) if other != first]
    if differing or settings is None:
        other = gathered[differing[0]][1]
        changed = [name for name in other if other[name] != first.get(name)]
        raise UsageError(
            f"{_ranks_have(differing)} other settings than rank 0: "
            + ", ".join(f"{name}={other[name]!r}, not {first.get(name)!r}" for name in changed),
            "use the same settings on every rank",
        )
    return settings, unknown


def _ranks_have(ranks: list[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]} has"
    return f"ranks {', '.join(map(str, ranks))} have"


def refuse_local_steps(settings: Settings, frontend: str) -> None:
    if settings.every > 1:
        raise UsageError(
            f"every={settings.every} is for DistributedDataParallel, not for {frontend}",
            "leave out every",
        )


def announce(worker: CommWorker, unknown: list[str], note: str = "") -> None:
    """Rank 0 prints how gradients are exchanged, once if several models are attached alike.

    `note`: what else is worth a line.
    """
    if dist.get_rank():
        return
    mesh, settings = worker.mesh, worker.settings
    known_names = ", ".join(switch.name for switch in lightcc_env.SWITCHES)
    shape = f"{mesh.world.size}"
    if mesh.inside and mesh.across:
        shape = f"{mesh.across.size} x {mesh.inside.size}"
    lines = [f"{settings.describe()} over {shape} ranks"]
    if settings == Settings():
        lines[0] += (
            ": nothing is compressed; Settings(method='int8') sends a quarter, and `busbw plan --"
            " COMMAND` says which method pays off"
        )
    exact = "exact" in (settings.method, settings.last, settings.gather)
    slow = coder.note_where_slow() if exact else ""
    lines += filter(None, [mesh.note, note, slow])
    lines += [f"{name} is unknown (known: {known_names})" for name in unknown]
    _print_once("".join(f"busbw accel: {line}\n" for line in lines))


@functools.cache
def _print_once(text: str) -> None:
    sys.stderr.write(text)
