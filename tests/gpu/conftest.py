"""GPU tests are skipped, with the reason, where NCCL cannot run."""

import pytest

from busbw.core.errors import BusbwError
from busbw.engines.cuda_runtime import device_count
from busbw.engines.registry import engine


@pytest.fixture(scope="session")
def gpus() -> int:
    """GPUs of this host; skips where there are none."""
    reason = engine("nccl").availability()
    if reason:
        pytest.skip(f"NCCL cannot run here: {reason}")
    try:
        return device_count()
    except BusbwError as error:
        pytest.skip(error.message)
