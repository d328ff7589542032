"""Codecs between real ranks, flat and over two emulated hosts: the right sums, the same bits
everywhere, nothing lost.
"""

from functools import cache

import exchanges
import jobs
import pytest
import torch

from busbw_accel.methods import BLOCK

# each job of ranks is run once
pytestmark = [pytest.mark.torch, pytest.mark.xdist_group("warm_python")]

GPUS = {"ACCEL_DEVICE": "cuda"}
JOBS = {"3 ranks": (3, 1, {}), "2 hosts of 2": (4, 2, {"ACCEL_2D": "1"})}
if torch.cuda.is_available():  # ranks of different hosts may share a GPU
    JOBS |= {"3 ranks apart on GPUs": (3, 3, GPUS)}
if torch.cuda.device_count() > 1:
    JOBS |= {
        "2 ranks on GPUs": (2, 1, GPUS),
        "2 hosts of 2 on GPUs": (4, 2, {"ACCEL_2D": "1", **GPUS}),
    }
WITHOUT_DIGEST = {
    "room",
    "not_finite",
    "large_values",
    "sums_are_kept",
    "other_default_types",
    "doubles",
    "smallest_halves",
    "half_overflows",
    "powersgd_warms_up",
}
SCENARIOS = exchanges.scenarios_of(exchanges)


FLAT_JOBS = [name for name, (_, _, more) in JOBS.items() if "ACCEL_2D" not in more]


def scenarios_of(job_name):
    """The names of the scenarios that a job runs."""
    flat = job_name in FLAT_JOBS
    return [name for name in SCENARIOS if flat or not hasattr(getattr(exchanges, name), "flat")]


@pytest.fixture(scope="module")
def run_once(tmp_path_factory):
    @cache
    def run(job_name):
        ranks, hosts, more = JOBS[job_name]
        names, folder = scenarios_of(job_name), tmp_path_factory.mktemp("job")
        return jobs.run(folder, "exchanges", names, ranks, hosts, **more)

    return run


@pytest.fixture(params=list(JOBS))
def job(request, run_once):
    return request.param, run_once(request.param)


def for_each(*names, **limits):
    """Run a test for each of these scenarios, with its limit if it has one, in each job with it."""
    argument_names = ("job", "name", "limit") if limits else ("job", "name")
    rows = list(limits.items()) if limits else [(name,) for name in names]
    cases = [(job, *row) for job in JOBS for row in rows if row[0] in scenarios_of(job)]
    return pytest.mark.parametrize(argument_names, cases, indirect=["job"])


in_flat_jobs = pytest.mark.parametrize("job", FLAT_JOBS, indirect=True)


@for_each(*(name for name in SCENARIOS if name not in WITHOUT_DIGEST))
def test_every_rank_has_the_same_bits(job, name):
    assert len({result[name]["digest"] for result in job[1]}) == 1


# The largest relative error of a method whose bound is known: rounding of fp32 and bf16 (several
# additions), and to 254 and 14 steps of a block's largest, twice.
@for_each(
    dense=1e-6,
    dense_bf16=1e-2,
    exact=1e-6,
    int8=3e-2,
    int4=0.5,
    topk_all=1e-6,
    powersgd_without_a_matrix=1e-6,
)
def test_the_average_is_right(job, name, limit):
    assert max(result[name]["error"] for result in job[1]) < limit


@pytest.mark.parametrize(
    "more",
    [{}, GPUS] if torch.cuda.device_count() > 1 else [{}],
    ids=lambda more: "GPUs" if more else "CPUs",
)
# more ranks add in another order
def test_top_k_of_everything_between_two_ranks_equals_all_reduce(more, tmp_path):
    for result in jobs.run(tmp_path, "exchanges", ["topk_all"], 2, **more):
        assert result["topk_all"]["digest"] == result["topk_all"]["plain"]


@for_each("topk", "topk_half")
def test_the_largest_elements_arrive(job, name):
    assert 0.05 < job[1][0][name]["error"] < 0.8, (
        "5 % of these gradients carry most of their norm, and not all"
    )


@for_each(
    "int8_conserves",
    "int4_conserves",
    "topk_conserves",
    "topk_half_conserves",
    "powersgd_conserves",
    "powersgd_rough_conserves",
    "topk_conserves_over_other_buckets",
    "int8_conserves_over_other_buckets",
    "crossing",
)
def test_nothing_is_lost(job, name):
    result = job[1][0][name]
    assert result["missing"] < 1e-5
    assert result.get("unsent", 1) > 1e-4, "and there was something to keep"


@for_each(powersgd=1e-3, powersgd_rough=3e-2)
def test_a_matrix_of_low_rank_arrives_whole(job, name, limit):
    for result in job[1]:
        assert max(result[name]["errors"]) < limit, result[name]


def test_powersgd_sends_few_bytes(job):
    job_name, result = job
    if job_name.startswith("2 hosts"):
        rank, others = 10, 3_018
        for name, width in {"powersgd": 4, "powersgd_rough": 2}.items():
            sent = 3 * (width * rank * (250 + 280) + 4 * others)
            assert result[0][name]["traffic"] == [0, pytest.approx(1.5 * sent / 2, rel=0.01)], (
                "a ring of four leaves each host once"
            )


@in_flat_jobs
def test_warm_up_steps_are_dense(job):
    first, second, third = job[1][0]["powersgd_warms_up"]["errors"]
    assert max(first, second) < 1e-6 and third > 0.1


@in_flat_jobs
def test_without_feedback_what_is_not_sent_is_lost(job):
    assert job[1][0]["topk_without_feedback"]["missing"] > 0.1


def test_the_threshold_follows_the_gradients(job):
    job_name, result = job
    sent, room = result[0]["room"]["sent"], result[0]["room"]["room"]
    ranks = int(job_name.split()[0]) if "hosts" not in job_name else 2
    assert sent[exchanges.ZEROS] == 0
    for number, count in enumerate(sent):
        # Ranks choose different elements, as a rule: together at most so many, and at least one
        # rank's.
        assert number == exchanges.ZEROS or 0.45 * room < count <= ranks * room * 1.1, (
            number,
            sent,
        )


def test_momentum_correction_of_all_elements_changes_nothing(job):
    assert max(job[1][0]["momentum"]["errors"]) < 1e-4


def test_nan_and_inf_reach_all_ranks_and_are_gone_in_the_next_step(job):
    for result in job[1]:
        for case, (finite, after) in result["not_finite"].items():
            assert not finite and after, case


def test_values_beyond_fp16_are_scaled(job):
    assert job[1][0]["large_values"]["finite"] and job[1][0]["large_values"]["error"] < 1e-3


def test_gradients_in_bf16_are_kept_in_fp32(job):
    result = job[1][0]["half_gradients"]
    assert (result["dtype"], result["kept"]) == ("torch.bfloat16", "torch.float32")


def test_gradients_in_fp64_lose_nothing(job):
    assert max(result["doubles"] for result in job[1]) < 1e-15


@in_flat_jobs
def test_the_smallest_halves_arrive(job):
    everything = sum(exchanges.LENGTHS)
    for result in job[1]:
        assert result["smallest_halves"] == dict.fromkeys(("topk", "int8", "int4"), everything)


def test_int8_keeps_what_the_sum_lost(job):
    assert all(result["sums_are_kept"] for result in job[1])


def test_bytes_that_leave_the_host_are_those_of_the_method(job):
    job_name, results = job
    total, room = sum(exchanges.LENGTHS), -(-sum(exchanges.LENGTHS) * 5 // 100)
    if "apart" in job_name:  # all that is sent leaves
        assert all(
            result["topk"]["traffic"][1] == pytest.approx(2 * 6 * room, rel=0.02)
            for result in results
        )
    elif not job_name.startswith("2 hosts"):  # one host
        assert all(
            result[name]["traffic"] == [0, 0]
            for result in results
            for name in ("dense", "int8", "int4", "topk")
        )
    else:
        assert results[0]["dense"]["two_d"]
        inside, across = results[0]["dense"]["traffic"]
        # Each rank sends its half once to the other host; inside, halves are sent twice.
        assert abs(across - 4 * total / 2) < 100 and abs(inside - 4 * total) < 100
        assert results[0]["topk"]["traffic"][1] == pytest.approx(6 * room / 2, rel=0.02)
        assert results[0]["topk_half"]["traffic"][1] == pytest.approx(4 * room / 2, rel=0.02)
        # A byte per element and a scale per block in both directions; small pieces are padded to
        # whole blocks.
        assert results[0]["int8"]["traffic"][1] == pytest.approx(
            total / 2 * (1 + 4 / BLOCK), rel=0.03
        )
        assert results[0]["int4"]["traffic"][1] == pytest.approx(
            total / 2 * (0.5 + 4 / BLOCK), rel=0.03
        )


def test_the_programs_default_type_changes_nothing(job):
    for result in job[1]:
        for norms in result["other_default_types"].values():
            assert norms[0] == norms[1] == norms[2] > 1


def test_an_average_that_fp16_cannot_have_leaves_what_is_kept(job):
    assert all(
        result["half_overflows"] == {"finite": False, "same": True, "kept": True}
        for result in job[1]
    )
