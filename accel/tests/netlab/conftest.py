"""The emulated hosts of busbw's tests."""

from tests.netlab.conftest import here, three_hosts, two_hosts

__all__ = ["here", "three_hosts", "two_hosts"]
