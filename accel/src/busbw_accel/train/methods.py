"""Parses the methods that `busbw train --compare` and `busbw plan --try` name.

They are plain DDP, torch's own hooks, torchft's DiLoCo, and combinations of busbw_accel's settings.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from busbw.core.errors import UsageError
from busbw_accel.methods import APART, NAMES
from busbw_accel.settings import Settings
from busbw_accel.train.plan_types import LocalExchange

NONE = "none"
TORCHFT_DILOCO = "torchft-diloco"
TORCHFT_EVERY = 30  # steps between two exchanges of torchft's DiLoCo
# Names that stand for settings.
WORDS: dict[str, dict[str, object]] = {
    NAMES[0]: {},
    "bf16": {"wire": "bf16"},
    "fp16": {"wire": "fp16"},
    **{name: {"method": name} for name in NAMES[1:]},
    "2d": {"two_d": True},
    "host": {"staging": "host"},
}
# Torch's own hooks, with the arguments of DDP's register_comm_hook.
HOOKS = {
    "torch-bf16": "None, default_hooks.bf16_compress_hook",
    "torch-fp16": "None, default_hooks.fp16_compress_hook",
    "torch-powersgd": (
        "powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2),"
        " powerSGD_hook.powerSGD_hook"
    ),
}
_FIELDS = {setting.name: setting for setting in dataclasses.fields(Settings)}
_READ: dict[Any, tuple[Callable[[str], object], str]] = {
    bool: (lambda word: {"0": False, "1": True}[word], "0 or 1"),
    int: (int, "a whole number"),
    int | None: (int, "a whole number"),
    float: (float, "a number"),
    str: (str, "text"),
}


@dataclass(frozen=True, slots=True)
class Method:
    """One way to exchange gradients: `settings` for busbw_accel, a hook of torch, torchft's DiLoCo,
    or plain DDP.
    """

    name: str
    hook: str = ""
    settings: Settings | None = None

    @property
    def plain(self) -> bool:
        return self.settings is None and not self.hook and not self.torchft

    @property
    def torchft(self) -> bool:
        return self.name == TORCHFT_DILOCO

    @property
    def settles(self) -> int:
        """The number of exchanges after which the exchanges of a new hook take equally long.

        This is for a method that has run before in this process.
        """
        return 3 if self.hook == "powersgd" else 1  # torch's PowerSGD begins with two dense ones

    @property
    def every(self) -> int:
        """The number of steps after which all parameters have been exchanged."""
        if self.settings is None:
            return TORCHFT_EVERY if self.torchft else 1
        return self.settings.every

    @property
    def local(self) -> LocalExchange | None:
        """How local steps exchange parameters; None if gradients are exchanged in each step."""
        if self.settings is None or self.every == 1:
            return None
        return LocalExchange(self.every, self.settings.fragments, self.settings.delay)

    @property
    def loss(self) -> int:
        """An index into train.plan_types.LOSSES."""
        if self.settings is None:
            return {"": 0, "bf16": 1, "fp16": 1, "powersgd": 3}[self.hook]
        return APART if self.every > 1 else self.settings.loss

    @property
    def code(self) -> str:
        """The line of Python that applies the method to a `model` under DDP; '' for plain DDP."""
        if self.settings is None:
            return f"model.register_comm_hook({HOOKS[f'torch-{self.hook}']})" if self.hook else ""
        changed = []
        for setting in dataclasses.fields(Settings):
            value = getattr(self.settings, setting.name)
            if value != setting.default:
                changed.append(f"{setting.name}={value!r}")
        optimizer = ", optimizer=optimizer" if self.every > 1 else ""
        return f"busbw_accel.attach(model, busbw_accel.Settings({', '.join(changed)}){optimizer})"


def parse(text: str) -> Method:
    """The method that a text describes.

    It is `none`, a hook such as `torch-bf16`, `torchft-diloco`, or names and settings of
    busbw_accel joined by +, as in `2d+topk+ratio=0.001`.

    Raises:
        UsageError: an unknown name or an invalid value.
    """
    if text in (NONE, TORCHFT_DILOCO):
        return Method(text)
    if text in HOOKS:
        return Method(text, hook=text.removeprefix("torch-"))
    values: dict[str, object] = {}
    for word in text.split("+"):
        values |= _values(word, text)
    return Method(text, settings=Settings(**values))  # type: ignore[arg-type]


def _values(word: str, text: str) -> dict[str, object]:
    if word in WORDS:
        return WORDS[word]
    name, equals, value = word.partition("=")
    if equals and name in _FIELDS:
        read, valid = _READ[_FIELDS[name].type]
        try:
            return {name: read(value)}
        except (ValueError, KeyError):
            raise UsageError(
                f"'{value}' of '{text}' is not a value of {name}", f"give {valid}"
            ) from None
    choices = ", ".join([NONE, *HOOKS, TORCHFT_DILOCO, *WORDS])
    raise UsageError(
        f"'{word}' of '{text}' is not a method",
        f"use {choices}, or join names with +, as in 2d+topk+ratio=0.001",
    )


def parse_all(text: str) -> list[Method]:
    """The methods of a comma-separated list.

    Raises:
        UsageError: no method, a duplicate, or an unknown one.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    twice = sorted({name for name in names if names.count(name) > 1})
    if not names or twice:
        fault = f"{twice[0]} twice" if twice else "no method"
        raise UsageError(f"'{text}' names {fault}", "name each once, like none,bf16,2d+int8")
    return [parse(name) for name in names]


def parse_for_plan(text: str) -> list[Method]:
    """As `parse_all`.

    Raises:
        UsageError: also for torchft's DiLoCo, whose exchange `busbw plan` cannot measure alone.
    """
    methods = parse_all(text)
    if any(method.torchft for method in methods):
        raise UsageError(
            f"{TORCHFT_DILOCO} is not measured by busbw plan",
            f"busbw train MODEL --compare none,{TORCHFT_DILOCO}",
        )
    return methods
