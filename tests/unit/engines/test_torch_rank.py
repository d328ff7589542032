"""A rank leaves its process group without aborting, although threads of Gloo still hold
callbacks.
"""

from importlib.util import find_spec
from pathlib import Path

import jobs
import pytest

pytestmark = [
    pytest.mark.torch,
    pytest.mark.xdist_group("warm_python"),  # which imports PyTorch for all jobs of ranks
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed"),
]
MODULE = Path(__file__).with_name("gloo_callbacks.py")


def test_callbacks_that_hold_a_destroyed_group_do_not_end_it_in_their_own_thread(
    tmp_path: Path,
) -> None:
    rank_reports = jobs.run(
        tmp_path, str(MODULE), ["left_with_callbacks"], 2, program=jobs.AS_TORCHRUN
    )
    assert [report["left_with_callbacks"] for report in rank_reports] == [20, 20]
