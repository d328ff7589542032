"""Coded gradients between real ranks: the bits of an exchange of plain ones, in fewer bytes."""

import jobs
import pytest
import torch

DEVICES = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
pytestmark = [pytest.mark.torch, pytest.mark.xdist_group("warm_python")]


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_averages_have_the_bits_of_plain_ones(ranks, tmp_path):
    results = jobs.run(tmp_path, "exact_gradients", ["averages"], ranks, ranks)
    for name, report in results[0]["averages"].items():
        assert report["right"] and report["same"], name
        assert len({result["averages"][name]["digest"] for result in results}) == 1, name
        if name.endswith("noise"):  # of more than two ranks the last has a row with zeros behind it
            least = 1.0 if ranks == 2 else 0.9
            assert least * report["plain"] <= report["coded"] <= report["plain"], name
        elif name.startswith("bf16"):
            assert report["coded"] < 0.9 * report["plain"], name
        else:
            assert report["coded"] <= report["plain"], name
    shares = {
        name: report["coded"] / report["plain"] for name, report in results[0]["averages"].items()
    }
    assert shares["fp32 narrow"] < (0.45 if ranks == 2 else 0.75)
    assert shares["fp32 gradient"] < 0.95


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("device", DEVICES)
def test_ranks_may_have_rows_of_other_kinds(device, ranks, staging_env, tmp_path):
    env = staging_env | {"ACCEL_DEVICE": device}
    results = jobs.run(tmp_path, "exact_gradients", ["mixed"], ranks, ranks, **env)
    mixed = [result["mixed"] for result in results]
    assert [report[where]["wrong"] for report in mixed for where in report] == [[]] * 2 * ranks
    # over a backend all send as many bytes as the longest row has
    assert len({report["backend"]["sent"] for report in mixed}) == 1
    assert all(report["host"]["sent"] < report["backend"]["sent"] for report in mixed)


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_shards_have_the_bits_of_plain_ones(ranks, tmp_path):
    results = jobs.run(tmp_path, "exact_gradients", ["halves"], ranks, ranks)
    for result in results:
        for name, report in result["halves"].items():
            assert report["right"] and report["kept"], name
            for coded, plain in zip(report["coded"], report["plain"], strict=True):
                if name.endswith("noise"):
                    assert coded == plain, name
                elif "special" not in name and not name.startswith("fp16"):
                    assert coded < 0.95 * plain, name
                else:
                    assert coded <= plain, name


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_training_has_the_weights_of_one_with_plain_gradients(ranks, tmp_path):
    results = jobs.run(tmp_path, "exact_gradients", ["trainings"], ranks, ranks)
    weights = {result["trainings"][name][0] for result in results for name in ("coded", "plain")}
    assert len(weights) == 1
    if ranks == 2:  # DDP adds in the same order
        assert weights == {result["trainings"]["ddp"][0] for result in results}
    sent = {name: results[0]["trainings"][name][1] for name in ("coded", "plain")}
    assert sent["coded"] < 0.8 * sent["plain"]


@pytest.mark.parametrize("ranks", [2, 3])
def test_bytes_of_no_row_are_an_error(ranks, tmp_path):
    results = jobs.run(tmp_path, "exact_gradients", ["damaged"], ranks)
    for rank, result in enumerate(results):
        assert f"an exchange failed at rank {rank}" in result["damaged"]
        assert f"(from rank {int(rank == 0)}: " in result["damaged"]
        assert "coded block" in result["damaged"]


@pytest.mark.parametrize("device", DEVICES)
def test_a_message_that_is_too_short_for_its_row_is_an_error(device, staging_env, tmp_path):
    env = staging_env | {"ACCEL_DEVICE": device}
    results = jobs.run(tmp_path, "exact_gradients", ["too_short"], 2, **env)
    for rank, result in enumerate(results):
        if device == "cuda":  # which tells the host later
            assert "coded block" in result["too_short"]
        else:
            assert f"(from rank {1 - rank}: 0 bytes of" in result["too_short"]


def test_a_rank_that_is_lost_is_named_by_the_others(tmp_path):
    results = jobs.run(tmp_path, "exact_gradients", ["lost"], 3, 3, may_fail=True)
    assert [result["code"] for result in results] == [0, 0, 7], results[0]["stderr"]
    assert all("lost: rank 2 on host2 (" in result["lost"] for result in results[:2])
