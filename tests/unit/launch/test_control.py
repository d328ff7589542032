"""Which control channel a process joins, and when it refuses to start without the other ranks."""

import pytest

from busbw.core.errors import NoMeasurement
from busbw.launch import rendezvous

OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}


def test_a_plain_process_is_a_job_of_one():
    solo = rendezvous.join({}, expect=None)
    assert (solo.process, solo.processes) == (0, 1)
    assert (solo.bcast("x"), solo.gather("x"), solo.allgather("x")) == ("x", ["x"], ["x"])
    assert solo.reduce_all([1.5, 2.0], "max") == [1.5, 2.0]
    assert (solo.split(3).process, solo.split(3).processes) == (0, 1)
    solo.barrier()
    solo.close()
    assert rendezvous.join({}, expect=1).processes == 1


def test_a_plain_process_expecting_four_ranks_is_refused():
    with pytest.raises(
        NoMeasurement, match="4 ranks expected, but no launcher gave this process a rank"
    ) as caught:
        rendezvous.join({}, expect=4)
    assert "busbw run ... -np 4" in caught.value.hint


def test_a_missing_library_is_named_with_its_installation(monkeypatch):
    monkeypatch.setattr(rendezvous, "find_spec", lambda _name: None)
    with pytest.raises(
        NoMeasurement, match=r"mpi4py is not installed .* the 2 ranks that Open MPI started"
    ) as caught:
        rendezvous.join(OPEN_MPI, expect=None)
    assert "busbw[mpi]" in caught.value.hint
    with pytest.raises(NoMeasurement, match="torch is not installed"):
        rendezvous.join({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "h1"}, expect=None)


def test_one_rank_under_mpirun_needs_no_mpi4py(monkeypatch):
    monkeypatch.setattr(rendezvous, "find_spec", lambda _name: None)
    assert rendezvous.join({**OPEN_MPI, "OMPI_COMM_WORLD_SIZE": "1"}, expect=1).processes == 1
