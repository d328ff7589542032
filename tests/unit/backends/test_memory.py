"""A backend whose memory is lacking on one rank is left out on all, and the others are measured."""

from importlib.util import find_spec
from pathlib import Path

import jobs
import pytest

pytestmark = [
    pytest.mark.torch,
    pytest.mark.xdist_group("warm_python"),  # which imports PyTorch for all jobs of ranks
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed"),
]
MODULE = Path(__file__).with_name("memory_rank.py")
needs_nixl = pytest.mark.skipif(
    find_spec("nixl_cu13") is None, reason="NIXL is not installed: pip install nixl-cu13"
)


@pytest.mark.parametrize(
    ("function", "lacking"),
    [("grouped", "gloo-grouped"), pytest.param("one_sided", "nixl", marks=needs_nixl)],
)
def test_memory_that_one_rank_lacks_leaves_out_that_backend_alone(
    function: str, lacking: str, tmp_path: Path
) -> None:
    ranks = jobs.run(tmp_path, str(MODULE), [function], 2, program=jobs.AS_TORCHRUN)
    first, second = (rank[function] for rank in ranks)
    assert list(first["left_out"]) == [lacking]
    assert first["left_out"][lacking].startswith("rank 1: ")
    assert "allocate memory" in first["left_out"][lacking]
    assert second["left_out"] == first["left_out"]
    assert first["timed"] == ["gloo", "gloo-packed"]
