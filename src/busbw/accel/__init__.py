"""Gradients that hardly notice a slow network: exchanged in two dimensions, in narrower formats, or by their largest elements alone.

Needs torch (`busbw[torch]`) and nothing of the command line.
"""

from busbw.accel.ddp import Attached, attach
from busbw.accel.fsdp import Sharded, attach_fully_sharded
from busbw.accel.lane import Lane, Traffic
from busbw.accel.settings import Settings

__all__ = ["Attached", "Lane", "Settings", "Sharded", "Traffic", "attach", "attach_fully_sharded"]
