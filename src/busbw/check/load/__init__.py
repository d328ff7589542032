"""Measurements of `busbw check --load`, each in a process of its own."""

from busbw.check.load.gpu_copies import longest_s
from busbw.check.load.source import Loaded, begin

__all__ = ["Loaded", "begin", "longest_s"]
