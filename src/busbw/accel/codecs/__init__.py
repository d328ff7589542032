"""The codecs: how ranks of a communicator average a part of a gradient.

`busbw.accel.methods` is their registry.
"""

from importlib import import_module

from busbw.accel.codecs.base import Codec
from busbw.accel.methods import BY_NAME
from busbw.accel.settings import Settings


def codec_for(method: str, settings: Settings, shapes: tuple[tuple[int, ...], ...] = ()) -> Codec:
    """The codec with this name; `shapes` are those of the parameters in the part."""
    module, name = BY_NAME[method].implementation.split(":")
    codec: type[Codec] = getattr(import_module(f"busbw.accel.codecs.{module}"), name)
    return codec(settings, shapes)
