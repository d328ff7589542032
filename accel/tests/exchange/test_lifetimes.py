"""What settings a worker gets, what it keeps, saves and refuses, and how it ends, on real ranks."""

from functools import cache

import jobs
import pytest

# each job of ranks is run once
pytestmark = [pytest.mark.torch, pytest.mark.xdist_group("warm_python")]

JOBS = {"2 ranks": (2, 1, {}), "2 hosts of 2": (4, 2, {"ACCEL_2D": "1"})}
WITH_DIGEST = ["resumed", "saved_each_step", "closed"]
OTHERS = [
    "wrong_states",
    "mixed_states",
    "on_a_part_of_the_ranks",
    "other_settings",
    "an_overflow",
    "one_rank_alone",
    "borrowed",
]
TWO_HOSTS = ["resumed", "mixed_states", "on_a_part_of_the_ranks", "an_overflow"]
LIGHT = {
    "LIGHT_2D_ALLREDUCE": "1",
    "LIGHT_TOPK_ALLREDUCE": "1",
    "LIGHT_TOPK_RATIO": "0.1",
    "LIGHT_TOPK_THRESHOLD": "0",
    "LIGHT_TOPK_FP16": "1",
}


@pytest.fixture(scope="module")
def run_once(tmp_path_factory):
    @cache
    def run(job_name):
        ranks, hosts, more = JOBS[job_name]
        names = [*WITH_DIGEST, *OTHERS] if hosts == 1 else TWO_HOSTS
        folder = tmp_path_factory.mktemp("job")
        return jobs.run(folder, "lifetimes", names, ranks, hosts, **more)

    return run


@pytest.fixture(params=list(JOBS))
def job(request, run_once):
    return run_once(request.param)


on_one_host = pytest.mark.parametrize("job", ["2 ranks"], indirect=True)


@pytest.mark.parametrize(
    ("job", "name"),
    [*(("2 ranks", name) for name in WITH_DIGEST), ("2 hosts of 2", "resumed")],
    indirect=["job"],
)
def test_parameters_are_the_same_bits_on_every_rank(job, name):
    assert len({result[name]["digest"] for result in job}) == 1


def test_a_saved_training_resumes_with_the_same_bits(job):
    for result in (result["resumed"] for result in job):
        assert all(result["same"].values()) and all(result["kept"].values()), result


@on_one_host
def test_saving_the_state_in_each_step_changes_nothing(job):
    assert all(
        result["saved_each_step"]["digest"] == result["saved_each_step"]["saved"] for result in job
    )


@on_one_host
def test_close_leaves_no_threads(job):
    for result in (ranks_output["closed"] for ranks_output in job):
        assert result["own"] >= 2 and result["left"] == 0, result
        assert "a gradient was submitted after close()" in result["said"]


@on_one_host
def test_close_leaves_a_communicator_that_was_passed_in(job):
    assert [result["borrowed"] for result in job] == [len(job)] * len(job)


@on_one_host
def test_states_of_other_ranks_and_models_are_refused(job):
    for errors in (result["wrong_states"] for result in job):
        assert len(errors) == 4 and all(
            "save and load it on every rank" in error for error in errors[:2]
        )
        assert (
            "3 values for '0.weight', which has 1280 elements here" in errors[2]
            and "'x', which is not a parameter here" in errors[3]
        )


def test_a_state_with_parts_of_another_rank_is_refused(job):
    assert job[-1]["mixed_states"][:2] == ["loaded", "loaded"], "these are its own"
    for rank in range(len(job) // 2):  # ranks of one row keep the same
        own, *mixed = job[rank]["mixed_states"]
        assert own == "loaded"
        assert all(f"not the one that rank {rank} saved" in error for error in mixed), mixed


def test_replicas_on_a_part_of_the_ranks_exchange_by_themselves(job):
    groups = job[: len(job) // 2], job[len(job) // 2 :]
    digests = [{result["on_a_part_of_the_ranks"]["digest"] for result in group} for group in groups]
    assert [len(group) for group in digests] == [1, 1] and digests[0] != digests[1]
    for result in (result["on_a_part_of_the_ranks"] for result in job):
        assert result["ranks"] == len(job) // 2
        assert result["refused"].startswith("the state is of rank")


@on_one_host
def test_ranks_with_different_settings_all_fail(job):
    for differing, invalid in (result["other_settings"] for result in job):
        assert differing == "rank 1 has other settings than rank 0: values='fp16', not 'fp32'"
        assert invalid.startswith("rank 1: LIGHT_TOPK_RATIO=2 is invalid")


def test_an_overflow_is_passed_on_and_leaves_what_was_kept(job):
    for result in (ranks_output["an_overflow"] for ranks_output in job):
        assert not result["finite"] and result["same"] and result["kept"]


@on_one_host
def test_a_rank_alone_keeps_its_gradients(job):
    assert all(result["one_rank_alone"] for result in job)


def test_lightcc_variables_choose_the_codec_and_its_settings(tmp_path):
    results = jobs.run(tmp_path, "lifetimes", ["switched"], 4, 2, **LIGHT, LIGHT_TOPK_RATE="0.1")
    assert len({result["switched"]["digest"] for result in results}) == 1
    assert results[0]["switched"]["two_d"]
    assert (
        results[0]["switched"]["settings"]
        == "topk two_d=True compress_least=0 ratio=0.1 values=fp16"
    )
    assert (
        "busbw accel: topk two_d=True compress_least=0 ratio=0.1 values=fp16 over 2 x 2 ranks\n"
        in results[0]["stderr"]
    )
    assert (
        "busbw accel: LIGHT_TOPK_RATE is unknown (known: LIGHT_2D_ALLREDUCE, "
        in results[0]["stderr"]
    )
    assert "busbw accel" not in results[1]["stderr"], "one rank says it for all"


@pytest.mark.parametrize(
    ("name", "ranks"), [("lost", 5), ("lost_sharded", 3), ("lost_shards", 3), ("lost_sparse", 3)]
)
def test_a_rank_that_is_lost_is_named_by_the_others(tmp_path, name, ranks):
    results = jobs.run(tmp_path, "lifetimes", [name], ranks, may_fail=True)
    assert [result["code"] for result in results] == [0] * (ranks - 1) + [7]
    for result in results[:-1]:
        assert f"lost: rank {ranks - 1} on host0 (" in result["lost"]
