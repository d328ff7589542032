"""An offloaded AdamW on real ranks, under DistributedDataParallel and with fully_shard."""

import jobs
import pytest

pytestmark = [pytest.mark.torch, pytest.mark.xdist_group("warm_python")]
NAMES = ["ddp", "ddp_clipped", "ddp_int8", "ddp_late", "fsdp", "fsdp_clipped", "ddp_replaced"]
OTHERS = [
    "gathered_early",
    "not_finite_elsewhere",
    "wide_shards",
    "wide_replicas",
    "frozen_replicas",
    "streamed_replicas",
]


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    return jobs.run(tmp_path_factory.mktemp("job"), "offloads", [*NAMES, *OTHERS], 3)


@pytest.mark.parametrize("name", NAMES)
def test_weights_equal_those_of_adamw(job, name):
    for result in job:
        assert result[name]["worst"] < 1e-6
        assert result[name].get("same", True)


@pytest.mark.parametrize("name", NAMES)
def test_ranks_have_the_same_weights_and_norm(job, name):
    assert len({(result[name]["digest"], round(result[name]["norm"], 6)) for result in job}) == 1


def test_gradients_are_exchanged_as_the_caller_says(job):
    for result in job:
        assert (
            result["ddp_late"]["digest"] == result["ddp"]["digest"] != result["ddp_int8"]["digest"]
        )


def test_weights_that_are_gathered_early_are_waited_for(job):
    for result in job:
        at_once, later = result["gathered_early"]["losses"]
        assert at_once == later
        # the root, the first block with the two that are fetched ahead, each block, and the norm
        # and the head, which are one group
        assert result["gathered_early"]["units"] == [[0], [1, 2, 3], [2], [3], [4, 5], [4, 5]]


def test_gradients_that_are_not_finite_on_one_rank_change_nothing_on_any(job):
    for rank, result in enumerate(job):
        where = "some of another rank" if rank else "blocks.0.1.weight"
        assert result["not_finite_elsewhere"] == {
            "said": f"gradients are not finite in step 1: {where}; nothing was updated",
            "same": True,
        }


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wide_shards", "not in bf16"),
        ("wide_replicas", "not in bf16"),
        ("frozen_replicas", "taken"),
        ("streamed_replicas", "stream_weights does not work under DistributedDataParallel"),
    ],
)
def test_models_that_cannot_be_offloaded_are_refused(job, name, message):
    assert all(message in result[name]["said"] for result in job)


def test_a_rank_that_ends_in_backward_is_named(tmp_path):
    results = jobs.run(tmp_path, "offloads", ["dies"], 2, may_fail=True)
    assert results[0]["code"] == 1
    assert "rank 1" in results[0]["stderr"], results[0]["stderr"]
