"""Exchanges of a communicator with host staging, and without a network."""

from dataclasses import dataclass

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from busbw_accel.communicator import Communicator  # noqa: E402

pytestmark = pytest.mark.torch


@dataclass
class StagingOnGpu:
    """Both ranks have the same part, and the exchange has failed or not."""

    failed: "torch.Tensor"

    def all_gather(self, gathered, tensor):
        gathered.copy_(tensor)


@pytest.mark.parametrize("failed", [0, 1])
def test_a_staged_average_of_a_failed_exchange_is_not_a_number(failed):
    comm = Communicator(None, 2, 0, 1, StagingOnGpu(torch.tensor([failed], dtype=torch.int32)))
    part = torch.tensor([1.0, -2.0])
    comm.average(part)
    assert part.isnan().all() if failed else part.tolist() == [1.0, -2.0]


def test_without_a_network_shards_are_gathered_in_place():
    gathered = torch.tensor([1.0, 2.0, 3.0, 4.0])
    comm = Communicator(None, 2, 1, 1)
    comm.begin_all_gather(gathered, gathered[2:]).wait()
    assert gathered.tolist() == [3.0, 4.0, 3.0, 4.0]
