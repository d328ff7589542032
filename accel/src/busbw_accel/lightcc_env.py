"""LightCC's environment variables (`LIGHT_*`), and the settings that they select.

Names, defaults and units are those of Tencent's public guide to TACO Train: bytes; 2D for data up
to its threshold, top-k for data from its threshold on. Error feedback, which the guide does not
mention, is on.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from busbw.core.errors import UsageError
from busbw_accel.methods import DENSE, TOPK
from busbw_accel.settings import Settings

PREFIX = "LIGHT_"


@dataclass(frozen=True, slots=True)
class Switch:
    """One variable.

    `read` raises ValueError for an invalid value; `wanted` describes valid ones.
    """

    name: str
    default: str
    meaning: str
    wanted: str = "text"
    read: Callable[[str], object] = str

    def value(self, environ: Mapping[str, str], error: type[UsageError] = UsageError) -> object:
        """The value in `environ`, or the default. Raises `error` if it is invalid."""
        word = environ.get(self.name, "").strip() or self.default
        try:
            return self.read(word)
        except ValueError:
            raise error(
                f"{self.name}={word} is invalid: {self.meaning}", f"give {self.wanted}"
            ) from None


def _parse_flag(word: str) -> bool:
    if word not in {"0", "1"}:
        raise ValueError(word)
    return word == "1"


def parse_whole(word: str, least: int = 0) -> int:
    """Read a whole number. ValueError if it is below `least`."""
    if int(word) < least:
        raise ValueError(word)
    return int(word)


def _parse_share(word: str) -> float:
    value = float(word)
    if not (math.isfinite(value) and 0 < value <= 1):
        raise ValueError(word)
    return value


SWITCHES = (
    Switch(
        "LIGHT_2D_ALLREDUCE",
        "0",
        "all-reduce in two dimensions: inside hosts, then across them",
        "0 or 1",
        _parse_flag,
    ),
    Switch(
        "LIGHT_INTRA_SIZE",
        "8",
        "ranks of a 2D group",
        "a number of ranks",
        partial(parse_whole, least=1),
    ),
    Switch(
        "LIGHT_HIERARCHICAL_THRESHOLD", "1073741824", "2D up to this size", "bytes", parse_whole
    ),
    Switch("LIGHT_TOPK_ALLREDUCE", "0", "send only the largest elements", "0 or 1", _parse_flag),
    Switch(
        "LIGHT_TOPK_RATIO",
        "0.01",
        "the share that is sent",
        "a share above 0, at most 1",
        _parse_share,
    ),
    Switch("LIGHT_TOPK_THRESHOLD", "1048576", "top-k from this size on", "bytes", parse_whole),
    Switch("LIGHT_TOPK_FP16", "0", "send values as fp16", "0 or 1", _parse_flag),
)


def unknown(environ: Mapping[str, str]) -> list[str]:
    """LIGHT_* variables that are not in the table."""
    known = {switch.name for switch in SWITCHES}
    return sorted(name for name in environ if name.startswith(PREFIX) and name not in known)


def from_env(environ: Mapping[str, str]) -> Settings:
    """The settings that the variables select.

    Raises:
        UsageError: a value is invalid.
    """
    value = {switch.name: switch.value(environ) for switch in SWITCHES}
    topk = value["LIGHT_TOPK_ALLREDUCE"]
    # Unset: the ranks of a host. LightCC's default of 8 fits its machines.
    intra_size = None
    if environ.get("LIGHT_INTRA_SIZE", "").strip():
        intra_size = int(str(value["LIGHT_INTRA_SIZE"]))
    return Settings(
        method=TOPK if topk else DENSE,
        two_d=bool(value["LIGHT_2D_ALLREDUCE"]),
        intra_size=intra_size,
        two_d_most=int(str(value["LIGHT_HIERARCHICAL_THRESHOLD"])),
        compress_least=int(str(value["LIGHT_TOPK_THRESHOLD"])),
        ratio=float(str(value["LIGHT_TOPK_RATIO"])),
        values="fp16" if value["LIGHT_TOPK_FP16"] else "fp32",
    )
