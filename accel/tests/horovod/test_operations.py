"""Operations on real ranks: each contract of `hvd_contracts`, over two and three ranks."""

import hvd_contracts
import hvd_jobs
import pytest

pytestmark = [pytest.mark.torch, pytest.mark.xdist_group("warm_python")]

OWN = {"rank_tensor", "total", "fails"}
STEADY = "a_steady_step_negotiates_nothing"  # in a cache that holds its 50 operations
CONTRACTS = hvd_jobs.contracts(hvd_contracts, OWN)


@pytest.fixture(scope="module", params=[2, 3])
def job(request, tmp_path_factory):
    more = (
        {}
        if request.param == 2
        else {"HOROVOD_CACHE_CAPACITY": "8", "HOROVOD_FUSION_THRESHOLD": "0"}
    )
    names = [name for name in CONTRACTS if name != STEADY or request.param == 2]
    return hvd_jobs.run(
        tmp_path_factory.mktemp("job"), "hvd_contracts", names, request.param, **more
    )


@pytest.mark.parametrize("name", [name for name in CONTRACTS if name != STEADY])
def test_operations(job, name):
    for result in job:
        assert name in result, [(result["code"], result["stderr"][-3000:]) for result in job]
        assert "failed" not in (result[name] or {}), result[name]["failed"]


def test_a_steady_step_negotiates_nothing(job):
    if len(job) == 3:
        pytest.skip("50 operations and a cache of 8")
    for result in job:
        assert isinstance(result[STEADY], int), result
