"""Which GPUs of this host the ranks of a process use, and the versions of the packages that drive
them.
"""

import os
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from busbw.core.errors import NoMeasurement
from busbw.core.sizes import parse_int
from busbw.engines.cuda_runtime import device_count

DEVICE_VARIABLE = "NCCL_TESTS_DEVICE"


def requested(devices: Sequence[int]) -> list[int]:
    """The devices, or as many from NCCL_TESTS_DEVICE on, which is the same on every process."""
    first = parse_int(os.environ.get(DEVICE_VARIABLE, "-1"))
    return list(devices) if first < 0 else [first + number for number in range(len(devices))]


def checked(devices: Sequence[int]) -> Sequence[int]:
    """The devices; NoMeasurement if there are none, or if this host lacks one of them."""
    present = device_count()
    missing = [index for index in devices if not 0 <= index < present]
    if missing or not devices:
        request = f"GPU {missing[0]} was asked for" if missing else "no GPU was asked for"
        raise NoMeasurement(
            f"{request} on {platform.node()}, which has {present}",
            "start fewer ranks on this host, or check CUDA_VISIBLE_DEVICES",
        )
    return devices


def package_version(name: str) -> str:
    """The version of an installed package; '' if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
