"""Local steps on real ranks: the parameters of a plain implementation, the same bits on every rank,
checkpoints that continue, and errors that name the rank.
"""

from functools import cache

import jobs
import pytest
import torch

# each job of ranks is run once
pytestmark = [pytest.mark.torch, pytest.mark.xdist_group("warm_python")]

GPUS = {"ACCEL_DEVICE": "cuda"}
JOBS = {"2 ranks": (2, 1, {}), "2 hosts of 2": (4, 2, {"ACCEL_2D": "1"})}
if torch.cuda.device_count() > 1:
    JOBS |= {
        "2 ranks on GPUs": (2, 1, GPUS),
        "2 hosts of 2 on GPUs": (4, 2, {"ACCEL_2D": "1", **GPUS}),
    }
ON_ONE_HOST = ["alone_is_plain", "same_data", "codecs_learn", "faults", "skipped"]
EVERYWHERE = ["like_reference", "resumed", "received", "other_kinds"]
STEPS = 24
# GPUs sum in another order for another size of batch
ROUNDING = 1e-4 if torch.cuda.device_count() > 1 else 1e-5


@pytest.fixture(scope="module")
def run_once(tmp_path_factory):
    @cache
    def run(job_name):
        ranks, hosts, more = JOBS[job_name]
        names = [*EVERYWHERE, *(ON_ONE_HOST if hosts == 1 else [])]
        folder = tmp_path_factory.mktemp("job")
        return jobs.run(folder, "local_trainings", names, ranks, hosts, **more)

    return run


@pytest.fixture(params=list(JOBS))
def job(request, run_once):
    return run_once(request.param)


FLAT_JOBS = [name for name, (_, hosts, _) in JOBS.items() if hosts == 1]
on_one_host = pytest.mark.parametrize("job", FLAT_JOBS, indirect=True)


@on_one_host
def test_a_rank_alone_trains_as_without_local_steps(job):
    assert all(result["alone_is_plain"] for result in job)


@on_one_host
def test_ranks_with_the_same_data_are_as_one(job):
    assert len({result["same_data"]["digest"] for result in job}) == 1
    assert job[0]["same_data"]["apart"] < ROUNDING


@pytest.mark.parametrize("case", ["at once", "late", "in turn", "in turn, late"])
def test_parameters_are_those_of_a_plain_implementation(job, case):
    for result in job:
        found = result["like_reference"][case]
        assert found["apart"] < ROUNDING
        assert found["moved"] > 0.1
        assert found["outer"] == job[0]["like_reference"][case]["outer"], "after each step"
        assert len(set(found["outer"])) > 3


def test_only_the_exchange_leaves_the_host(job):
    inside, across = job[0]["like_reference"]["at once"]["traffic"]
    parameters = 5_827 * 4
    if len(job) == 2:  # one host
        assert (inside, across) == (0, 0)
    else:  # 4 exchanges, in which a rank sends its half; in each step the gradients inside
        assert across == pytest.approx(4 * parameters / 2, rel=0.05)
        assert inside == pytest.approx((STEPS + 4) * parameters, rel=0.05)


@on_one_host
def test_codecs_learn_as_dense(job):
    results = job[0]["codecs_learn"]
    for method, found in results.items():
        assert found["loss"] < 0.6 * found["first"], method
        assert found["loss"] < results["dense"]["loss"] + 0.1, method
        assert (found["kept"] > 0) == (method != "dense"), method


def test_a_checkpoint_continues_with_the_same_bits(job):
    for result in job:
        assert result["resumed"] == {
            "between exchanges": [True, True, False],
            "in an exchange": [True, True, True],
        }


def test_a_rank_without_a_state_gets_that_of_another(job):
    for result in job:
        assert result["received"]["same"] and result["received"]["steps"] == 9
    for name in ("digest", "outer", "again"):
        assert len({result["received"][name] for result in job}) == 1


def test_parameters_of_all_kinds_and_buffers_are_exchanged(job):
    assert len({result["other_kinds"]["digest"] for result in job}) == 1
    for found in (result["other_kinds"] for result in job):
        assert found["mask"] and found["still"] and found["moved"] > 0.1
        assert not found["broadcast"]
    assert len({result["other_kinds"]["local"] for result in job}) > 1, "not in each step"


SAID = {
    "other every": "rank 1 has other settings than rank 0",
    "no optimizer": "every=2 counts the steps of the optimizer, which attach does not have",
    "strange optimizer": "the optimizer has no parameter of the model",
    "two optimizers": "the steps of a list cannot be counted",
    "wrapper": "the steps of a Wrapper cannot be counted",
    "zero": "ZeroRedundancyOptimizer trains each parameter on one rank",
    "twice": "the model has a communication hook already",
    "Join": "in Join, a rank that has ended takes no part in exchanges, and every=6 needs all",
    "no step": "the optimizer that attach has made no step",
    "closed": "a gradient was submitted after close()",
    "state of gradients": "the state is of an exchange of gradients, and every=6 exchanges",
    "state of local steps": "the state is of an exchange of parameters after many steps, and these",
    "fully_shard": "every=2 is for DistributedDataParallel, not for fully_shard",
    "offload": "every=2 is for DistributedDataParallel, not for offload",
    "fragments": "fragments=9, and the model has 8 parameters to train",
    "nan": "rank 1 on host0: its parameters are not finite after step 6; nothing was applied",
    "late nan": "rank 1 on host0: its parameters are not finite after step 6; nothing was applied",
    "frozen": "was frozen, added, removed, or has another shape or type, since attach",
    "added": "was frozen, added, removed, or has another shape or type, since attach",
    "other parameters": "rank 1 on host0: its outer parameters are not those of rank 0 on host0",
    "uneven": "different numbers of optimizer steps (rank 0 on host0: 2, rank 1 on host0: 3)",
}


@on_one_host
@pytest.mark.parametrize("fault", SAID)
def test_every_rank_names_the_rank_with_a_fault(job, fault):
    for result in job:
        assert SAID[fault] in result["faults"][fault]
        assert "hint: " in result["faults"][fault]


@on_one_host
def test_the_rank_itself_names_the_parameter(job):
    assert "rank 1 on host0: a parameter was" in job[0]["faults"]["frozen"]
    assert "rank 1 on host0: '0.weight' was" in job[1]["faults"]["frozen"]


@on_one_host
def test_a_skipped_step_does_not_count(job):
    assert [result["skipped"]["batches"] for result in job] == [6, 7]
    assert len({result["skipped"]["digest"] for result in job}) == 1


def test_a_rank_that_is_lost_is_named_by_the_others(tmp_path):
    results = jobs.run(tmp_path, "local_faults", ["lost"], 3, may_fail=True)
    assert [result["code"] for result in results] == [0, 0, 7], results[0]["stderr"]
    for result in results[:2]:
        assert "lost: rank 2 on host0 (" in result["lost"]


@pytest.mark.parametrize("scenario", ["absent", "absent_from_gradients", "absent_from_shards"])
def test_a_rank_that_lives_and_does_not_come_is_named_by_the_others(scenario, tmp_path):
    results = jobs.run(tmp_path, "local_faults", [scenario], 3, may_fail=True)
    for result in results[:2]:
        assert "all ranks are alive, but not all came to it: rank 2 on host0" in result["absent"]
        assert " began fewer exchanges" in result["absent"]


def test_ranks_that_do_not_reach_the_rendezvous_store_end_too(tmp_path):
    results = jobs.run(tmp_path, "local_faults", ["store_stopped"], 3, may_fail=True)
    said = "lost: rank 0 or its launcher, which has the rendezvous store (no answer in 2.4 s)"
    for result in results[:2]:
        assert said in result["stopped"]


def test_close_returns_after_an_exchange_that_failed_without_process_groups(tmp_path):
    results = jobs.run(tmp_path, "local_faults", ["failed_after_destroy"], 2)
    assert all(result["closed"] for result in results)
