"""The fixtures of busbw's tests of command lines."""

from tests.e2e.conftest import here, no_gpus, other_hosts, run

__all__ = ["here", "no_gpus", "other_hosts", "run"]
