"""Process sets, starts, ends, faults and elastic restarts on real ranks: each contract of
`hvd_worlds`.
"""

import hvd_jobs
import hvd_worlds
import pytest

pytestmark = [pytest.mark.torch, pytest.mark.xdist_group("warm_python")]

APART = {
    "a_lost_rank_fails_operations",
    "long_waits_are_reported_and_fail",
    "init_works_again_and_again",
}
CONTRACTS = hvd_jobs.contracts(hvd_worlds, {"hvd_size"} | APART)


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("job")
    return hvd_jobs.run(
        folder, "hvd_worlds", CONTRACTS, 2, HVD_FOLDER=str(folder), BUSBW_IFNAME="127.0.0.0/8"
    )


@pytest.mark.parametrize("name", CONTRACTS)
def test_worlds(job, name):
    hvd_jobs.results_of(job, name)


def test_init_works_again_and_again(tmp_path):
    hvd_jobs.results_of(
        hvd_jobs.run(tmp_path, "hvd_worlds", ["init_works_again_and_again"], 2),
        "init_works_again_and_again",
    )


def test_long_waits_are_reported_then_fail(tmp_path):
    more = {
        "HOROVOD_STALL_CHECK_TIME_SECONDS": "0.5",
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "1.5",
        "HVD_FOLDER": str(tmp_path),
    }
    results = hvd_jobs.run(tmp_path, "hvd_worlds", ["long_waits_are_reported_and_fail"], 3, **more)
    hvd_jobs.results_of(results, "long_waits_are_reported_and_fail")
    assert "allreduce.forgotten has waited" in results[0]["stderr"]
    assert (
        "for rank 1 on host0, rank 2 on host0; it was submitted by ranks 0" in results[0]["stderr"]
    )
    assert "has waited" not in results[1]["stderr"]


def test_a_rank_that_is_lost_is_named_by_all_others(tmp_path):
    results = hvd_jobs.run(
        tmp_path, "hvd_worlds", ["a_lost_rank_fails_operations"], 4, may_fail=True
    )
    assert [result["code"] for result in results] == [0, 7, 0, 0], results[0]["stderr"]
    for result in (results[0], results[2], results[3]):
        assert len(result["a_lost_rank_fails_operations"]) == 2, "at once, and ever after"
        assert all(
            "lost: rank 1 on host0 (" in message
            for message in result["a_lost_rank_fails_operations"]
        ), result["a_lost_rank_fails_operations"]
