"""The launcher's command line: GPUs of this machine are counted only if the number of ranks
depends on them.
"""

from importlib.util import find_spec

import pytest

from busbw.core.sweep import SweepSpec
from busbw.measure import launch_plan
from busbw.measure.job import SweepJob
from busbw.measure.target import LaunchTarget


@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
def test_gpus_are_counted_only_for_hosts_without_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    monkeypatch.delenv("OMPI_MCA_plm", raising=False)  # of images without ssh
    counts = iter([3])
    monkeypatch.setattr(launch_plan, "torch_gpus", lambda: next(counts))  # which may import PyTorch
    job = SweepJob(sweep=SweepSpec(collective="all_reduce"), engine="torch")

    def slots(placement: LaunchTarget) -> list[int]:
        prepared = launch_plan.launcher_command(job, placement)
        assert prepared is not None
        return [host.slots for host in prepared.hosts]

    assert (
        slots(LaunchTarget(hosts="h1:2,h2:2"))
        == slots(LaunchTarget(hosts="h1,h2", ranks=4))
        == [2, 2]
    )
    assert slots(LaunchTarget(hosts="h1:2,h2")) == [2, 3]
