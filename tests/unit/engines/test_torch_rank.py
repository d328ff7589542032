"""A rank leaves its process group without aborting, although threads of Gloo still hold callbacks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.timeout(60)]
SOURCE = str(Path(__file__).parents[3] / "src")
SCRIPT = """
import sys, torch, torch.distributed as dist
from busbw.engines.torch_rank import wait_for_callbacks
rank, folder = int(sys.argv[1]), sys.argv[2]
for number in range(20):
    dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/{number}", 2), rank=rank, world_size=2)
    group = dist.group.WORLD

    def exchange():
        held = dist.group.WORLD  # as the PowerSGD hook does
        return dist.all_reduce(torch.ones(9), async_op=True).get_future().then(lambda future: held and future.value()[0])

    for _ in range(3):
        exchange().wait()
    dist.destroy_process_group()
    wait_for_callbacks(group)
    del group
"""


def test_callbacks_that_hold_a_destroyed_group_do_not_end_it_in_their_own_thread(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    ranks = [
        subprocess.Popen([sys.executable, "-c", SCRIPT, str(rank), str(tmp_path)], env=environment, stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    ends = [(rank.communicate(timeout=50)[1], rank.returncode) for rank in ranks]
    assert [code for _, code in ends] == [0, 0], ends
