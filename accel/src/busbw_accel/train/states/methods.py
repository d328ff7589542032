"""The ways to keep a model's states that `busbw train gpt` compares, and their settings.

Needs no torch.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from busbw.core.errors import UsageError
from busbw_accel.offloading.settings import OffloadSettings
from busbw_accel.train.types import COMPUTE

Values = dict[str, object]
ADAMW, OFFLOAD = "adamw", "offload"
DEFAULT = (COMPUTE, OFFLOAD)


def _switch(word: str) -> bool:
    return {"0": False, "1": True}[word]


def _norm(word: str) -> float | None:
    return None if word == "none" else float(word)


@dataclass(frozen=True, slots=True)
class StateMethodRow:
    """One way to keep states.

    `settings` has the function that reads the text of each setting. `exact`: its steps are those of
    AdamW over fp32 weights.
    """

    name: str
    help: str
    exact: bool = True
    settings: Mapping[str, Callable[[str], object]] = field(default_factory=dict)


ROWS = (
    StateMethodRow(
        COMPUTE,
        "forward and backward alone; gradients are dropped and nothing is updated",
        exact=False,
    ),
    StateMethodRow(
        ADAMW,
        "torch's fused AdamW, all states on the GPU: bf16 weights, fp32 master weights and moments",
    ),
    StateMethodRow(
        OFFLOAD,
        "busbw_accel.offload: states in host memory",
        settings={
            "gpu_share": float,
            "max_norm": _norm,
            "stream_weights": _switch,
            "threads": int,
            "skip_nonfinite": _switch,
        },
    ),
    StateMethodRow(
        "fsdp2", "torch's fully_shard on fp32 weights, with bf16 for computation, and fused AdamW"
    ),
    StateMethodRow(
        "fsdp2-offload",
        "the same with CPUOffloadPolicy: weights, gradients and states in pinned host memory, AdamW"
        " on the CPU",
    ),
    StateMethodRow(
        "torchao",
        "torchao's CPUOffloadOptimizer; states and updates in bf16, so not exact",
        exact=False,
        settings={"offload_gradients": _switch},
    ),
    StateMethodRow(
        "deepspeed",
        "DeepSpeed's ZeRO with the optimizer on the CPU; stage 2, or 3 with stage=3",
        settings={"stage": int},
    ),
)
BY_NAME = {row.name: row for row in ROWS}


@dataclass(frozen=True, slots=True)
class StateMethod:
    """One way to keep states, with its settings."""

    name: str
    row: StateMethodRow
    values: Values

    def offload_settings(self) -> Values:
        """The keyword arguments of busbw_accel.offload."""
        return {"max_norm": None} | self.values


def parse(text: str) -> StateMethod:
    """The method that a text describes.

    It is a name such as `offload`, or a name with settings joined by +, as in
    `offload+gpu_share=0.1+max_norm=1`.

    Raises:
        UsageError: an unknown name or setting, or an invalid value.
    """
    name, *words = text.split("+")
    row = BY_NAME.get(name)
    if row is None:
        raise UsageError(
            f"'{name}' of '{text}' is not a way to keep states", f"use {', '.join(BY_NAME)}"
        )
    values: Values = {}
    for word in words:
        key, _, value = word.partition("=")
        if key not in row.settings:
            names = ", ".join(row.settings) or "none"
            raise UsageError(
                f"'{word}' of '{text}' is not a setting of {name}", f"its settings: {names}"
            )
        try:
            values[key] = row.settings[key](value)
        except (ValueError, KeyError):
            raise UsageError(
                f"'{value}' of '{text}' is not a value of {key}",
                "give a number, and 0 or 1 for a switch",
            ) from None
    method = StateMethod(text, row, values)
    _check(method)
    return method


def _check(method: StateMethod) -> None:
    if method.row.name == OFFLOAD:
        OffloadSettings(**method.offload_settings())  # type: ignore[arg-type]
    if method.values.get("stage", 2) not in (2, 3):
        raise UsageError(
            f"'{method.name}': stage is {method.values['stage']}", "give stage=2 or stage=3"
        )


def parse_all(text: str) -> list[StateMethod]:
    """The methods of a comma-separated list.

    Raises:
        UsageError: no method, a duplicate, or an unknown one.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names or len(set(names)) < len(names):
        raise UsageError(
            f"'{text}' names {'one method twice' if names else 'no method'}",
            f"name each once, like {','.join(DEFAULT)}",
        )
    return [parse(name) for name in names]
