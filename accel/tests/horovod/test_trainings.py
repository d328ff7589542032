"""Gradients, optimizers and their states on real ranks: each contract of `hvd_trainings`."""

import hvd_jobs
import hvd_trainings
import pytest

pytestmark = [pytest.mark.torch, pytest.mark.xdist_group("warm_python")]

HELPERS = {"net", "batches", "own_part", "trained", "alone", "distributed"}
APART = {"light_variables_choose_the_exchange_of_gradients"}
CONTRACTS = hvd_jobs.contracts(hvd_trainings, HELPERS | APART)


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("job")
    return hvd_jobs.run(folder, "hvd_trainings", CONTRACTS, 2, HVD_FOLDER=str(folder))


@pytest.mark.parametrize("name", CONTRACTS)
def test_trainings(job, name):
    hvd_jobs.results_of(job, name)


@pytest.mark.parametrize(
    ("more", "two_d", "describes", "apart"),
    [
        (
            {
                "HOROVOD_TORUS_ALLREDUCE": "1",
                "LIGHT_TOPK_ALLREDUCE": "1",
                "LIGHT_TOPK_RATIO": "0.2",
                "LIGHT_TOPK_THRESHOLD": "0",
            },
            True,
            "topk two_d=True compress_least=0 ratio=0.2",
            1.0,
        )
    ],
)
def test_light_variables_select_the_gradient_exchange(tmp_path, more, two_d, describes, apart):
    name = "light_variables_choose_the_exchange_of_gradients"
    results = hvd_jobs.run(
        tmp_path, "hvd_trainings", [name], 4, 2, HOROVOD_AUTOTUNE="1", LIGHT_TOPK_RATE="1", **more
    )
    for result in hvd_jobs.results_of(results, name):
        assert result[:2] == [two_d, describes] and result[2] < apart
    assert f"busbw horovod: gradients are exchanged by {describes}\n" in results[0]["stderr"]
    assert "busbw horovod: variables without effect: HOROVOD_AUTOTUNE\n" in results[0]["stderr"]
    assert "busbw horovod: LIGHT_TOPK_RATE is unknown\n" in results[0]["stderr"]
    assert "busbw horovod" not in results[1]["stderr"]
