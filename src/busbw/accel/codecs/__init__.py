"""How a part of a gradient becomes the sum over the ranks of a line: one module a method, and the registry."""

from busbw.accel.codecs.base import Codec
from busbw.accel.codecs.dense import Dense
from busbw.accel.codecs.integers import Int4, Int8
from busbw.accel.codecs.powersgd import PowerSgd
from busbw.accel.codecs.topk import TopK
from busbw.accel.settings import DENSE, INT4, INT8, POWERSGD, TOPK, Settings

REGISTRY: dict[str, type[Codec]] = {DENSE: Dense, INT8: Int8, INT4: Int4, POWERSGD: PowerSgd, TOPK: TopK}


def codec_for(method: str, settings: Settings, shapes: tuple[tuple[int, ...], ...] = ()) -> Codec:
    """The codec of a method."""
    return REGISTRY[method](settings, shapes)
