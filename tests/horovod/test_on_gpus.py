"""Operations on tensors of two GPUs: see `hvd_on_gpus`."""

import hvd_jobs
import pytest
import torch

pytestmark = [
    pytest.mark.torch,
    pytest.mark.xdist_group("horovod"),
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]


@pytest.mark.parametrize(
    "name",
    ["results_may_be_read_at_once", "memory_of_a_result_is_nobody_elses_while_it_is_read", "scaling_and_splits_are_horovods"],
)
def test_two_gpus(name, tmp_path):
    for said in hvd_jobs.run(tmp_path, "hvd_on_gpus", [name], 2):
        assert said["code"] == 0, (said.get(name), said["stderr"][-3000:])
