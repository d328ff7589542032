"""The codecs: how ranks of a communicator average a part of a gradient.

`busbw_accel.methods` is their registry.
"""

from importlib import import_module

from busbw_accel.codecs.base import Codec
from busbw_accel.methods import BY_NAME
from busbw_accel.settings import Settings


def codec_for(method: str, settings: Settings, shapes: tuple[tuple[int, ...], ...] = ()) -> Codec:
    """The codec with this name; `shapes` are those of the parameters in the part."""
    module, name = BY_NAME[method].implementation.split(":")
    codec: type[Codec] = getattr(import_module(f"busbw_accel.codecs.{module}"), name)
    return codec(settings, shapes)
