"""Embeddings that ranks share: each row is as in a dictionary, training as on one rank,
checkpoints are whole and re-shard.
"""

import embeddings
import jobs
import pytest
import torch
from exchanges import scenarios_of
from torch import nn

from busbw.core.errors import UsageError
from busbw_accel import DynamicEmbedding, TableSettings
from busbw_accel.embedding import prefixed
from busbw_accel.embedding.exchange import owners

# each job of ranks is run once
pytestmark = [pytest.mark.torch, pytest.mark.xdist_group("warm_python")]

SCENARIOS = scenarios_of(embeddings)
FOUR = ["trained_sum_of_bags", "not_finite", "without_data", "resharded"]
TWO = [name for name in SCENARIOS if name not in ("trained_sum_of_bags", "resharded")]


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    return jobs.run(tmp_path_factory.mktemp("job"), "embeddings", TWO, 2)


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    return jobs.run(tmp_path_factory.mktemp("job"), "embeddings", FOUR, 4)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_on_gpus_rows_equal_those_of_a_dictionary(tmp_path):
    names = [name for name in SCENARIOS if name != "documented"]
    results = jobs.run(tmp_path, "embeddings", names, 2, ACCEL_DEVICE="cuda")
    assert (
        max(result[name]["kept"] for result in results for name in ("sgd", "adam", "summed")) < 1e-5
    )
    assert (
        max(
            result[name]["rows"]
            for result in results
            for name in ("trained_adam", "trained_sum_of_bags")
        )
        < 1e-4
    )
    assert all(
        result["resharded"]["loaded"] == [0.0] * 2 and result["refused"]["same"]
        for result in results[:1]
    )


@pytest.fixture(params=["two", "four"])
def job(request):
    return request.getfixturevalue(request.param)


def of(job, name):
    """The result of each rank that ran a scenario."""
    return [result[name] for result in job if name in result]


@pytest.mark.parametrize("name", ["sgd", "adam", "summed"])
def test_rows_equal_those_of_a_dictionary(two, name):
    for result in of(two, name):
        assert result["forward"] < 1e-5 and result["kept"] < 1e-5 and result["rows"] > 100, result


def test_rows_are_admitted_by_steps(two):
    for result in of(two, "admitted_at_the_second_sight"):
        assert result["forward"] < 1e-5 and result["kept"] < 1e-5 and 0 < result["rows"] < 100, (
            result
        )


def test_bf16_on_the_wire_rounds_each_value(two):
    for result in of(two, "bf16"):
        assert 0 < result["forward"] < 0.01 and 0 < result["kept"] < 0.01, result


@pytest.mark.parametrize("name", ["trained_adam", "trained_mean_of_bags", "trained_sum_of_bags"])
def test_a_training_under_ddp_equals_one_rank_with_the_whole_batch(two, four, name):
    for result in of(two, name) + of(four, name):
        assert result["dense"] < 1e-5 and result["rows"] < 1e-4, result
        assert result["losses"][-1] < result["losses"][0] and result["parameters"] == 0


def test_a_gradient_that_is_not_finite_changes_no_row_of_any_rank(job):
    for result in of(job, "not_finite"):
        assert (
            f"the gradient of id {result['id']} at rank {len(job) - 1} on host0 has nan"
            in result["said"]
        )
        assert result["changed"] == 0


def test_ranks_without_data_take_part(job):
    assert of(job, "without_data") == [10] * len(job)


def test_rows_that_are_looked_up_often_stay(two):
    for result in of(two, "evicting"):
        assert result["often"] and result["stored"] == result["moved"] <= 12


def test_ranks_with_different_embeddings_all_fail(two):
    for differing, _ in of(two, "differing"):
        assert (
            differing.startswith("ranks 1 make another embedding")
            and f"dim={embeddings.DIM + 1}" in differing
        )
    assert [outside for _, outside in of(two, "differing")] == [
        "",
        "rank 1 is not in the group of the embedding",
    ]


def test_checkpoints_reshard(four):
    first = four[0]["resharded"]
    assert first["loaded"] == [0.0] * 4, "bit by bit"
    assert max(first["continued"]) < 1e-4 and first["rows"] > 100
    assert first["parts"] > 4 and first["saves"] == 1


def test_a_save_that_fails_keeps_the_checkpoint_before(two):
    for result in of(two, "refused"):
        assert (
            "the embedding was not saved: rank 1: " in result["full"]
            and "is unchanged" in result["full"]
        ), result["full"]
        assert result["left"] == ["manifest", "save-000001"] and result["same"]
        assert result["killed"] == ["manifest", "save-000042"]


def test_checkpoints_that_do_not_fit_are_refused_on_every_rank(two):
    for result in of(two, "refused"):
        assert "rows already" in result["twice"]
        assert "has optimizer adam, and the table has sgd" in result["optimizer"]
        assert f"has dim {embeddings.DIM}, and the table has {embeddings.DIM + 1}" in result["dim"]
        assert "capacity of 2 rows" in result["capacity"]
        assert "cut off or damaged" in result["cut"] and "shard-00001" in result["cut"]
        assert "is missing in" in result["missing"] and "there is no checkpoint" in result["absent"]


def test_the_training_of_the_docs_runs(two):
    for result in of(two, "documented"):
        assert result["loss"] < 0.5 and result["same"], result


def test_an_exchange_that_fails_names_the_rank(tmp_path):
    first, last = jobs.run(tmp_path, "embeddings", ["lost"], 2, may_fail=True)
    assert (first["code"], last["code"]) == (0, 7), first["stderr"]
    assert (
        "the exchange of gradients of an embedding failed at rank 0 of 2; all ranks are alive, so"
        " one of them" in first["absent"]
    )
    assert (
        "the exchange of ids of an embedding failed at rank 0 of 2; lost: rank 1 on host0"
        in first["lost"]
    )


@pytest.mark.parametrize("pooling", ["none", "sum", "mean"])
def test_on_one_rank_an_embedding_equals_that_of_torch(pooling):
    embedding = DynamicEmbedding(
        5, TableSettings(optimizer="sgd", lr=0.5), pooling=pooling, device="cpu"
    )
    all_ids = torch.arange(40)
    weight = embedding.eval()(all_ids if pooling == "none" else all_ids[:, None]).requires_grad_()
    embedding.train()
    # the second bag is empty
    ids, offsets = torch.tensor([3, 8, 3, 30, 3, 9]), torch.tensor([0, 2, 2])
    if pooling == "none":
        result, expected = (
            embedding(ids.view(2, 3).int()),
            nn.functional.embedding(ids.view(2, 3), weight),
        )
    else:
        result, expected = (
            embedding(ids, offsets),
            nn.functional.embedding_bag(ids, weight, offsets, mode=pooling),
        )
    torch.testing.assert_close(result, expected)
    for rows in (result, expected):
        (rows**2).sum().backward()
    torch.testing.assert_close(
        embedding.eval()(all_ids if pooling == "none" else all_ids[:, None]),
        weight.detach() - 0.5 * weight.grad,
    )
    assert embedding.table.counters.stored == 4


def test_in_a_compiled_model_an_embedding_is_not_compiled():
    embedding, graphs = DynamicEmbedding(5, device="cpu").eval(), []

    def backend(graph, _):
        graphs.append([node.name for node in graph.graph.nodes if node.op == "call_function"])
        return graph.forward

    compiled = torch.compile(lambda ids: 2 * embedding(ids), backend=backend)
    torch.testing.assert_close(compiled(torch.arange(3)), 2 * embedding(torch.arange(3)))
    assert graphs == [["mul"]]


def test_one_rank_refuses_what_it_cannot_take():
    unpooled, pooled = (
        DynamicEmbedding(5, device="cpu", pooling=pooling) for pooling in ("none", "sum")
    )
    for embedding, arguments, message in (
        (unpooled, (torch.zeros(3),), "ids are torch.float32"),
        (unpooled, (torch.arange(3), torch.arange(1)), "offsets are for bags"),
        (pooled, (torch.arange(3),), "without offsets"),
        (pooled, (torch.zeros(3, 2).long(), torch.arange(1)), "with offsets"),
    ):
        with pytest.raises(UsageError, match=message):
            embedding(*arguments)
    for words in ({"dim": 0}, {"dim": 2, "pooling": "max"}, {"dim": 2, "wire": "fp8"}):
        with pytest.raises(UsageError):
            DynamicEmbedding(**words)


def test_ids_in_sequence_are_spread_evenly():
    # the first output of SplitMix64 with seed 0
    assert owners(torch.tensor([0]), 1 << 31).item() == 0xE220A8397B1DCDAF >> 33
    for ids in (
        torch.arange(-40_000, 40_000),
        torch.arange(80_000) * 8,
        torch.arange(80_000) << 40,
    ):
        for ranks in (2, 3, 8):
            counts = torch.bincount(owners(ids, ranks), minlength=ranks)
            assert counts.min() > 0.95 * 80_000 / ranks


def test_features_share_a_table_without_sharing_rows():
    ids = torch.tensor([0, 1, (1 << 48) - 1])
    prefixed_ids = torch.cat([prefixed(ids, feature) for feature in (0, 1, 32767)])
    assert len(prefixed_ids.unique()) == 9 and int(prefixed_ids.min()) == 0
    for invalid_ids, feature in ((ids, 32768), (ids, -1), (ids - 1, 0), (ids + 1, 0)):
        with pytest.raises(UsageError):
            prefixed(invalid_ids, feature)
