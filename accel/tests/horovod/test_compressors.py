"""Compressors that use Horovod's operations work as they do with Horovod: each contract of
`hvd_compressors`, on three ranks.
"""

import hvd_compressors
import hvd_jobs
import pytest

pytestmark = [pytest.mark.torch, pytest.mark.xdist_group("warm_python")]

CONTRACTS = hvd_jobs.contracts(hvd_compressors, set())


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    return hvd_jobs.run(tmp_path_factory.mktemp("job"), "hvd_compressors", CONTRACTS, 3)


@pytest.mark.parametrize("name", CONTRACTS)
def test_compressors(job, name):
    hvd_jobs.results_of(job, name)
