"""DistributedDataParallel with a worker, on real ranks: replicas stay the same bits, trainings
learn, DDP's other features work with it.
"""

import jobs
import pytest
import torch

# each job of ranks is run once
pytestmark = [pytest.mark.torch, pytest.mark.xdist_group("warm_python")]

JOBS = {"2 ranks": (2, 1, {}), "2 hosts of 2": (4, 2, {"ACCEL_2D": "1"})}
METHODS = [
    "dense",
    "bf16",
    "exact",
    "int8",
    "int4",
    "int4_and_factors_last",
    "powersgd",
    "topk",
    "topk_everything",
    "topk_momentum",
]
FEATURES = [
    "accumulated",
    "static_graph",
    "unused_parameters",
    "uneven_inputs",
    "sparse_gradients",
    "mixed_precision",
    "compiled",
    "fully_sharded",
    "unusual_parameters",
]


# what rows of ranks do otherwise; each codec over them is in test_exchanges.py
TWO_HOSTS = {
    "plain",
    "dense",
    "exact",
    "int8",
    "int4_and_factors_last",
    "topk_everything",
    "fully_sharded",
    "unusual_parameters",
    "silenced",
}


def _of(ranks, names):
    """The names of those trainings that a job of this many ranks runs."""
    if ranks == 2:
        return [name for name in names if name != "fully_sharded"]  # between two, nothing is
    return [name for name in names if name in TWO_HOSTS]


@pytest.fixture(scope="module", params=list(JOBS))
def job(request, tmp_path_factory):
    ranks, hosts, more = JOBS[request.param]
    names = _of(ranks, ["plain", *METHODS, *FEATURES, "silenced"])
    return jobs.run(tmp_path_factory.mktemp("job"), "trainings", names, ranks, hosts, **more)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_on_gpus_replicas_stay_the_same_and_learn(tmp_path):
    names = ["plain", *METHODS, "accumulated", "unused_parameters"]
    results = jobs.run(tmp_path, "trainings", names, 2, ACCEL_DEVICE="cuda")
    for name in names:
        assert len({result[name]["digest"] for result in results}) == 1, name
    assert all(results[0][name]["loss"] < 0.5 * results[0][name]["first"] for name in METHODS)
    # by DDP itself, and straight from the hook over DDP's communicator
    plain, dense = results[0]["plain"], results[0]["dense"]
    assert (
        dense["early"] == pytest.approx(plain["early"], rel=1e-3)
        and dense["loss"] < plain["loss"] + 0.1
    )


def test_parameters_are_the_same_bits_on_every_rank(job):
    for name in _of(len(job), METHODS + FEATURES):
        assert len({result[name]["digest"] for result in job}) == 1, name


def test_loss_falls_as_without_a_codec(job):
    plain = job[0]["plain"]
    for name in _of(len(job), METHODS):
        result = job[0][name]
        assert result["loss"] < 0.5 * result["first"], name
        assert result["loss"] < plain["loss"] + 0.1, name


def test_codecs_send_fewer_bytes(job):
    dense, int8 = (job[0][name]["sent"] for name in ("dense", "int8"))
    if len(job) == 2:  # one host: nothing leaves it
        assert dense == int8 == 0
    else:
        assert 0 < int8 < 0.5 * dense


def test_the_last_bucket_has_a_method_of_its_own(job):
    for result in job:
        kept = result["int4_and_factors_last"]["kept"]
        assert len(kept) > 1 and sorted(map(any, kept)) == [False] * (len(kept) - 1) + [True]
        assert len(job) == 4 or not any(map(any, result["int4"]["kept"]))


def test_over_a_perfect_network_nothing_is_exchanged(job):
    for result in job:
        counts = result["silenced"]
        assert counts["steps"] == counts["methods"] * 3 * 2
        assert counts["exchanges"] >= counts["methods"] * 2


def test_accumulated_gradients_are_exchanged_once(job):
    assert len(job) == 4 or job[0]["accumulated"]["steps"] == 6


def test_residuals_follow_the_scale_of_the_loss(job):
    assert len(job) == 4 or all(result["mixed_precision"]["apart"] < 1e-4 for result in job)


def test_fsdp_replicas_match_the_plain_all_reduce(job):
    for result in (ranks_output["fully_sharded"] for ranks_output in job if len(job) == 4):
        assert (
            result["apart"]["dense"] < 1e-6
            and result["apart"]["int8"] < 1e-2
            and result["apart"]["topk"] < 0.2
        ), result
        assert result["kept"] == 2


def test_gradients_of_unusual_parameters_are_those_of_ddp(job):
    for apart in (result["unusual_parameters"]["apart"] for result in job):
        assert len(job) == 4 or apart["dense"] == 0, "bit for bit"
        assert all(error < 1e-5 for error in apart.values()), apart


def test_steps_are_counted_whatever_the_first_bucket_is(job):
    assert len(job) == 4 or all(
        (result["sparse_gradients"]["steps"], result["sparse_gradients"]["comm_worker"]) == (6, 4)
        for result in job
    )
