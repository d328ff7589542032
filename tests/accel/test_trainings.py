"""DistributedDataParallel with a lane, on real ranks: replicas stay the same bits, trainings learn, DDP's other features work with it."""

import jobs
import pytest

pytestmark = [pytest.mark.torch, pytest.mark.xdist_group("accel trainings")]  # each job of ranks is run once

JOBS = {"2 ranks": (2, 1, {}), "2 hosts of 2": (4, 2, {"ACCEL_2D": "1"})}
METHODS = ["dense", "bf16", "int8", "topk", "topk_everything", "topk_momentum"]
FEATURES = [
    "accumulated",
    "static_graph",
    "unused_parameters",
    "uneven_inputs",
    "sparse_gradients",
    "mixed_precision",
    "compiled",
    "resumed",
    "fully_sharded",
]
LIGHT = {
    "LIGHT_2D_ALLREDUCE": "1",
    "LIGHT_TOPK_ALLREDUCE": "1",
    "LIGHT_TOPK_RATIO": "0.1",
    "LIGHT_TOPK_THRESHOLD": "0",
    "LIGHT_TOPK_FP16": "1",
}


@pytest.fixture(scope="module", params=list(JOBS))
def job(request, tmp_path_factory):
    ranks, hosts, more = JOBS[request.param]
    names = ["plain", *METHODS, *FEATURES, "wrong_states"]
    return jobs.all_well(jobs.run(tmp_path_factory.mktemp("job"), "trainings", names, ranks, hosts, **more))


@pytest.mark.parametrize("name", METHODS + FEATURES)
def test_parameters_are_the_same_bits_on_every_rank(job, name):
    assert len({said[name]["digest"] for said in job}) == 1


@pytest.mark.parametrize("name", METHODS)
def test_it_learns_as_without(job, name):
    plain, said = job[0]["plain"], job[0][name]
    assert said["loss"] < 0.5 * said["first"]
    assert said["loss"] < plain["loss"] + 0.1


def test_less_goes_over_the_wire(job):
    if len(job) == 2:
        return  # one host: nothing does
    assert job[0]["int8"]["sent"] < 0.5 * job[0]["dense"]["sent"]
    assert job[0]["topk"]["sent"] < 0.6 * job[0]["dense"]["sent"]


def test_accumulated_gradients_are_exchanged_once(job):
    assert job[0]["accumulated"]["steps"] == 6


def test_what_is_kept_follows_the_scale_of_the_loss(job):
    assert all(said["mixed_precision"]["apart"] < 1e-4 for said in job)


def test_a_training_that_was_saved_goes_on(job):
    for said in job:
        assert said["resumed"]["kept"] and said["resumed"]["apart"] < 0.5 * said["resumed"]["forgotten"], said["resumed"]


def test_replicas_of_a_fully_sharded_model_exchange_as_its_own_all_reduce_does(job):
    for said in (one["fully_sharded"] for one in job):
        assert said["apart"]["dense"] < 1e-6 and said["apart"]["int8"] < 1e-2 and said["apart"]["topk"] < 0.2, said
        assert said["kept"] == 3


def test_states_of_others_are_refused(job):
    for errors in (said["wrong_states"] for said in job):
        assert len(errors) == 2 and all("save and load it on every rank" in error for error in errors)


def test_the_switches_of_lightcc_do_it_all(tmp_path):
    said = jobs.all_well(jobs.run(tmp_path, "trainings", ["switched"], 4, 2, **LIGHT, LIGHT_TOPK_RATE="0.1"))
    assert len({one["switched"]["digest"] for one in said}) == 1
    assert said[0]["switched"]["two_d"]
    assert said[0]["switched"]["settings"] == "topk two_d=True compress_least=0 ratio=0.1 values=fp16"
    assert "busbw accel: topk two_d=True compress_least=0 ratio=0.1 values=fp16 over 2 x 2 ranks\n" in said[0]["stderr"]
    assert "busbw accel: LIGHT_TOPK_RATE is no switch (there are LIGHT_2D_ALLREDUCE, " in said[0]["stderr"]
    assert "busbw accel" not in said[1]["stderr"], "one rank says it for all"


def test_a_rank_that_is_lost_is_named_by_the_others(tmp_path):
    said = jobs.run(tmp_path, "trainings", ["lost"], 3)
    assert [one["code"] for one in said] == [0, 0, 7]
    for one in said[:2]:
        assert "lost: rank 2 on host0" in one["lost"]
