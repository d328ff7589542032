"""Threads of torch's operations on the host."""

import os

import pytest

from busbw.launch.control import SoloControl


def test_a_rank_of_mpirun_uses_all_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from busbw.measure.processors import share_processors
    from busbw_accel import host_adam

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    processors = len(os.sched_getaffinity(0))
    with host_adam.torch_threads(1):  # as torch begins under mpirun
        with host_adam.torch_threads(host_adam.usable()):
            assert torch.get_num_threads() == min(processors, 16)
        assert torch.get_num_threads() == 1
        share_processors(SoloControl())
        assert torch.get_num_threads() == processors


def test_omp_num_threads_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from busbw.measure.processors import share_processors
    from busbw_accel import host_adam

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    # as torch begins with that variable, and after this test as before
    with host_adam.torch_threads(1):
        with host_adam.torch_threads(host_adam.usable()):
            assert torch.get_num_threads() == min(len(os.sched_getaffinity(0)), 16)
        share_processors(SoloControl())
        assert torch.get_num_threads() == 1


@pytest.mark.parametrize(
    ("own_affinity", "other_ranks", "threads"),
    [
        (("a", [0, 1, 2, 3]), [], 4),
        # `b` is another machine
        (("a", [0, 1, 2, 3]), [("a", [0, 1, 2, 3]), ("b", [0, 1, 2, 3])], 2),
        (("a", [0, 1]), [("a", [0, 1])] * 3, 1),  # four containers on two cores
        (("a", [0]), [("a", [1])], 1),
        (("a", [0, 1, 2, 3]), [("a", [2, 3])], 3),
        (("a", [0, 1, 2]), [("a", [0, 1, 2])] * 2, 1),
    ],
)
def test_each_rank_of_a_machine_gets_its_share_of_the_cores(
    own_affinity, other_ranks, threads
) -> None:
    from busbw.measure.processors import share_of

    assert share_of(own_affinity, [own_affinity, *other_ranks]) == threads


def test_a_machine_is_known_by_its_boot_id() -> None:
    from busbw.measure.processors import machine

    assert len(machine()) == 36, "also in a container"
