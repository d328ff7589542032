"""Shards of fully_shard (FSDP2) exchanged by codecs, on real ranks: sums and parameters equal
references, trainings learn, FSDP's other features work with it.
"""

import jobs
import pytest
import torch

from busbw_accel import fsdp
from busbw_accel.settings import Settings

# each job of ranks is run once
pytestmark = [pytest.mark.torch, pytest.mark.xdist_group("warm_python")]

TRAININGS = ["bf16", "int8", "int8_gathered", "int4", "fp32", "exact"]
SCENARIOS = [
    "plain",
    "same",
    *TRAININGS,
    "references",
    "coded",
    "gathered",
    "unsharded_early",
    "bytes_sent",
    "accumulated",
    "policies",
    "divided",
    "unused",
    "features",
    "frozen",
    "swapped",
    "of_replicas",
    "resumed",
    "not_finite",
    "fed_back",
    "closed",
]
FOUR = [
    "plain",
    "same",
    *TRAININGS,
    "references",
    "coded",
    "gathered",
    "bytes_sent",
    "resumed",
    "replicas",
    "gathered_by_fewer",
]


@pytest.fixture(scope="module", params=[2, 4])
def job(request, tmp_path_factory):
    ranks = request.param
    names = SCENARIOS if ranks == 2 else FOUR
    folder = tmp_path_factory.mktemp("job")
    return jobs.run(folder, "shard_trainings", names, ranks, ranks)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_gpus_trainings_learn_with_equal_parameters(tmp_path):
    names = ["plain", "same", *TRAININGS, "gathered", "accumulated", "policies", "divided"]
    results = jobs.run(tmp_path, "shard_trainings", names, 2, 2, ACCEL_DEVICE="cuda")
    for name in (*TRAININGS, "gathered"):
        assert len({result[name]["digest"] for result in results}) == 1, name
    first = results[0]
    assert first["same"]["digest"] == first["plain"]["digest"]
    assert first["exact"]["digest"] == first["fp32"]["digest"]
    assert all(first[name]["loss"] < 0.5 * first[name]["first"] for name in TRAININGS)
    for name in ("accumulated", "policies", "divided"):
        found = first[name].get("apart", first[name])
        assert all(error < 0.06 for error in found.values()), name


def _of(job, name):
    """What each rank says of a scenario; nothing where another number of ranks runs it."""
    return [result[name] for result in job if name in result]


def test_without_a_codec_the_bits_are_those_of_fsdp(job):
    assert job[0]["same"]["digest"] == job[0]["plain"]["digest"]


def test_sums_and_parameters_are_the_reference_bit_for_bit(job):
    for equal in _of(job, "references"):
        assert equal == {"fp32": True, "bf16": True, "gather": True, "exact": True}


def test_exact_has_the_bits_of_fp32_in_fewer_bytes(job):
    assert job[0]["exact"]["digest"] == job[0]["fp32"]["digest"]
    assert job[0]["exact"]["sent"] < job[0]["fp32"]["sent"]
    for result in _of(job, "coded"):
        plain, summed, gathered = result["sent"]
        assert result["same"]
        assert gathered < summed < plain


def test_gathered_parameters_are_the_same_on_every_rank(job):
    results = _of(job, "gathered")
    assert len({result["digest"] for result in results}) == 1
    for result in results:
        assert 0 < result["error"] <= result["most"]
        assert result["rounded_rows"] == result["owned_rows"], "the own shard is rounded too"
        assert result["masters"], "owners keep theirs"


def test_gathers_of_backward_among_fewer_ranks(job):
    assert all(_of(job, "gathered_by_fewer"))


def test_loss_falls_as_without_a_codec(job):
    plain = job[0]["plain"]
    for name in TRAININGS:
        result = job[0][name]
        assert len({ranks_output[name]["digest"] for ranks_output in job}) == 1, name
        assert result["loss"] < 0.5 * result["first"], name
        assert result["loss"] < plain["loss"] + 0.1, name


def test_bytes_are_those_that_leave_the_host(job):
    for counted in _of(job, "bytes_sent"):
        for name, (sent, expected) in counted.items():
            assert sent == expected, name
        assert 2 * counted["bf16"][0] == counted["same"][0]


def test_a_gather_that_was_started_early_is_complete(job):
    assert all(_of(job, "unsharded_early"))


def test_accumulated_gradients(job):
    for result in _of(job, "accumulated"):
        assert result["buckets"] == {"once": 3, "each": 12}
        assert all(error < 0.02 for error in result["apart"].values()), result


def test_policies_of_mixed_precision(job):
    for found in _of(job, "policies"):
        # the gradients themselves are of other parameters where these are rounded to int8
        assert all(error < (0.06 if "gather" in name else 0.02) for name, error in found.items())


def test_gradients_are_divided_as_the_program_says(job):
    for found in _of(job, "divided"):
        assert all(error < 0.02 for error in found.values()), found


def test_a_part_without_gradients_leaves_what_is_kept(job):
    assert all(result == {"kept": True, "goes_on": True} for result in _of(job, "unused"))


def test_features_of_fsdp_work_with_it(job):
    for found in _of(job, "features"):
        assert len(found) == 5 and all(error < 0.03 for error in found.values()), found


def test_a_frozen_unit_is_left_out(job):
    words = "the state has 1344 values for '0', of which 1280 elements are trained"
    for result in _of(job, "frozen"):
        refused = result.pop("refused")
        assert words in refused and "with the same parameters frozen" in refused
        assert result == {"buckets": 6, "kept": ["", "0"], "lengths": [1280, 1280, 1344]}


def test_what_is_kept_is_of_the_parameters_that_are_trained_now(job):
    for result in _of(job, "swapped"):  # without the first bias: 3 rows are padded to 4
        assert result == {"fresh": True, "assigned": 4 * 20 + 4 * 20 + 4}


def test_replicas_may_freeze_parameters_and_leave_out_gradients(job):
    for result in _of(job, "of_replicas"):
        assert result == {"kept": True, "lengths": [126, 126, 126, 63]}


def test_a_checkpoint_continues_with_the_same_bits(job):
    for result in _of(job, "resumed"):
        assert "which was not given to fully_shard here" in result.pop("refused")
        same = {"with": True, "compiled": True, "without": False}
        assert result == same | {"kept": 3, "steps": [8, 4]}


def test_what_is_not_finite_arrives_and_is_not_kept(job):
    for rank, result in enumerate(_of(job, "not_finite")):
        for found in result.values():
            assert found["nan"] and found["finite"], result
        if rank == 1:
            assert result["int8"]["kept"]


def test_error_feedback_makes_up_for_rounding(job):
    for found in _of(job, "fed_back"):
        assert found["True"] < 0.2 * found["False"], found


def test_shards_and_their_replicas_have_settings_of_their_own(job):
    for result in _of(job, "replicas"):
        assert result["apart"] < 0.02
        assert result["buckets"] == [3, 3] and result["kept"] == [0, 3]


def test_a_model_is_evaluated_before_attach_and_after_close(job):
    for result in _of(job, "closed"):
        assert result["kept"] == ["", "0", "3"]
        assert result["equal"] and "after close()" in result["refused"]


def test_residuals_are_announced_once(job):
    said = "busbw accel: error feedback keeps 0.00 GB on each rank, 4 bytes for each element"
    assert said in job[0]["stderr"] and said not in job[1]["stderr"]


def test_exact_keeps_nothing_and_announces_nothing():
    assert fsdp._kept(Settings(method="int8"), [], 2)
    assert not fsdp._kept(Settings(method="exact"), [], 2)


REFUSALS = {
    "no shards": "a Sequential without fully_shard has no shards to exchange",
    "hybrid": "rank 0: the parameters of FSDPSequential are on a mesh of 2 dimensions (across, inside)",
    "two meshes": "rank 0: FSDPSequential is sharded over ranks (0, 1), 0 over (0,)",
    "replicated": "rank 0: the parameters of ReplicateSequential are replicated, not sharded",
    "top-k": "top-k cannot exchange the shards of fully_shard | use dense, exact, int8, int4; between",
    "PowerSGD": "PowerSGD needs whole matrices, which fully_shard divides | use dense, exact, int8, int4",
    "last": "a method for the last bucket is for DistributedDataParallel",
    "staging": "staging=host does one exchange at a time, and fully_shard gathers while it reduces",
    "gather of replicas": "gather=bf16 is for shards, and replicas have the same ones",
    "gather of DDP": "gather=exact is for fully_shard: DistributedDataParallel gathers no parameters",
    "second argument": "attach_fully_sharded(model, settings=Settings(...))",
    "timeout": "timeout=9 s has no effect on shards, which are exchanged in the process group of",
    "other settings": "rank 1 has other settings than rank 0",
}


def test_what_cannot_be_exchanged_is_refused(tmp_path):
    results = jobs.run(tmp_path, "shard_trainings", ["refused"], 2)
    refused = results[0]["refused"]
    assert set(refused) == set(REFUSALS)
    for name, words in REFUSALS.items():
        assert words in refused[name], name
