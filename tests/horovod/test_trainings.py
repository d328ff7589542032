"""Gradients, process sets, optimizers, states and faults on real ranks: each contract of `hvd_trainings`."""

import inspect

import hvd_jobs
import hvd_trainings
import pytest

pytestmark = [pytest.mark.torch, pytest.mark.xdist_group("horovod")]

HELPERS = {"net", "batches", "own", "trained", "alone", "distributed", "hvd_size"}
APART = {"gradients_go_as_light_variables_say", "one_is_lost", "what_waits_too_long_is_told_and_fails", "init_works_again_and_again"}
CONTRACTS = [
    name
    for name, one in vars(hvd_trainings).items()
    if inspect.isfunction(one) and one.__module__ == hvd_trainings.__name__ and name not in HELPERS | APART
]


def well(said, name):
    for one in said:
        assert name in one, one["stderr"][-3000:]
        assert not isinstance(one[name], dict), one[name]["failed"]
    return [one[name] for one in said]


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("job")
    return hvd_jobs.run(folder, "hvd_trainings", CONTRACTS, 2, HVD_FOLDER=str(folder))


@pytest.mark.parametrize("name", CONTRACTS)
def test_trainings(job, name):
    well(job, name)


def test_init_works_again_and_again(tmp_path):
    well(hvd_jobs.run(tmp_path, "hvd_trainings", ["init_works_again_and_again"], 2), "init_works_again_and_again")


def test_what_waits_too_long_is_told_and_fails(tmp_path):
    more = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "0.5", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "1.5", "HVD_FOLDER": str(tmp_path)}
    said = hvd_jobs.run(tmp_path, "hvd_trainings", ["what_waits_too_long_is_told_and_fails"], 3, **more)
    well(said, "what_waits_too_long_is_told_and_fails")
    assert "allreduce.forgotten has waited" in said[0]["stderr"]
    assert "for rank 1 on host0, rank 2 on host0; it came from ranks 0" in said[0]["stderr"]
    assert "has waited" not in said[1]["stderr"]


@pytest.mark.parametrize(
    ("more", "two_d", "describes", "apart"),
    [
        (
            {"HOROVOD_TORUS_ALLREDUCE": "1", "LIGHT_TOPK_ALLREDUCE": "1", "LIGHT_TOPK_RATIO": "0.2", "LIGHT_TOPK_THRESHOLD": "0"},
            True,
            "topk two_d=True compress_least=0 ratio=0.2",
            1.0,
        ),
    ],
)
def test_gradients_go_as_light_variables_say(tmp_path, more, two_d, describes, apart):
    name = "gradients_go_as_light_variables_say"
    said = hvd_jobs.run(tmp_path, "hvd_trainings", [name], 4, 2, HOROVOD_AUTOTUNE="1", LIGHT_TOPK_RATE="1", **more)
    for one in well(said, name):
        assert one[:2] == [two_d, describes] and one[2] < apart
    assert f"busbw horovod: gradients go {describes}\n" in said[0]["stderr"]
    assert "busbw horovod: no effect here: HOROVOD_AUTOTUNE\n" in said[0]["stderr"]
    assert "busbw horovod: LIGHT_TOPK_RATE is no switch\n" in said[0]["stderr"]
    assert "busbw horovod" not in said[1]["stderr"]


def test_a_rank_that_is_lost_is_named_by_all_others(tmp_path):
    said = hvd_jobs.run(tmp_path, "hvd_trainings", ["one_is_lost"], 4)
    assert [one["code"] for one in said] == [0, 7, 0, 0], said[0]["stderr"]
    for one in (said[0], said[2], said[3]):
        assert len(one["one_is_lost"]) == 2, "at once, and ever after"
        assert all("lost: rank 1 on host0 (" in words for words in one["one_is_lost"]), one["one_is_lost"]
