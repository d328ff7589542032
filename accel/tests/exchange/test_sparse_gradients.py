"""Sparse gradients on real ranks: the average of DDP, the same bits on every rank, by each way
to exchange rows.
"""

from functools import cache

import jobs
import pytest

from busbw_accel import sparse

# each job of ranks is run once
pytestmark = [pytest.mark.torch, pytest.mark.xdist_group("warm_python")]

JOBS = {"2 ranks": (2, 2, {}), "2 hosts of 2": (4, 2, {"ACCEL_2D": "1"})}
SCENARIOS = ["ways", "gradients", "sums_of_halves", "refused", "alone", "trainings"]


@pytest.fixture(scope="module")
def run_once(tmp_path_factory):
    @cache
    def run(job_name):
        ranks, hosts, more = JOBS[job_name]
        folder = tmp_path_factory.mktemp("job")
        return jobs.run(folder, "sparse_gradients", SCENARIOS, ranks, hosts, **more)

    return run


@pytest.fixture(params=list(JOBS))
def job(request, run_once):
    return run_once(request.param)


def test_each_way_is_taken_where_it_sends_the_fewest_bytes(job):
    chosen_ways = [result["way"] for result in job[0]["ways"].values() if "way" in result]
    assert chosen_ways == (
        [sparse.GATHER] * 3 if len(job) == 2 else [sparse.GATHER, sparse.OWNERS, sparse.DENSE]
    )


# Relative to the largest value: fp32 sums of a few terms, each rounded to the type of the gradient
# or of the wire, and the average too.
ERRORS = {"float64": 1e-14, "bfloat16": 1e-2, "bf16": 1e-2, "float16": 1e-3}


@pytest.mark.parametrize("scenario", ["ways", "gradients"])
def test_every_rank_has_the_average_with_the_same_bits(job, scenario):
    for name, first in job[0][scenario].items():
        assert len({result[scenario][name]["digest"] for result in job}) == 1, name
        assert first["rows"] and first["same"], name
        assert first["error"] <= next(
            (limit for word, limit in ERRORS.items() if word in name), 1e-6
        ), (name, first["error"])


def test_bytes_that_leave_the_host_are_counted(job):
    ranks, reports = len(job), job[0]["ways"]
    room, table = (
        36 * (ranks - 1) * max(reports["few"]["counts"]),
        2 * (ranks - 1) * 36 * 200 // ranks,
    )
    share, counts = ranks // 2, 8 * (ranks - 1)  # a ring leaves a host once for all of its ranks
    assert reports["few"]["across"] == pytest.approx((room + counts) / share, abs=2)
    if ranks == 4:
        # two of the three other ranks are on the other host; counts are of ranks (twice) and of
        # owners
        half = reports["half"]
        assert half["across"] == pytest.approx(
            (6 * counts + 36 * 3 * max(half["owned"])) / share + 36 * half["sent"] * 2 / 3, abs=4
        )
        assert reports["most"]["across"] == pytest.approx((table + counts) / share, abs=2)


FEATURES = [
    "sgd",
    "bucket views",
    "static graph",
    "accumulated",
    "uneven inputs",
    "sparse adam",
    "int8",
]


@pytest.mark.parametrize(
    ("job", "name"),
    [*(("2 ranks", name) for name in FEATURES), ("2 hosts of 2", "sgd"), ("2 hosts of 2", "2D")],
    indirect=["job"],
)
def test_a_training_equals_that_of_ddp(job, name):
    assert len({result["trainings"]["apart"][name][0] for result in job}) == 1
    assert job[0]["trainings"]["apart"][name][1] < (2e-2 if name == "int8" else 1e-5)


def test_sums_are_computed_in_fp32(job):
    assert all(result["sums_of_halves"] for result in job)


@pytest.mark.parametrize("job", ["2 ranks"], indirect=True)
def test_a_codec_compresses_the_dense_parameters_only(job):
    assert job[0]["trainings"]["kept"] == [
        f"layers.{number}.{kind}" for number in (0, 2) for kind in ("bias", "weight")
    ]


def test_other_layouts_and_types_are_refused(job):
    for layout, kind in (result["refused"] for result in job):
        assert "a sparse gradient of shape (3, 3) has 2 sparse dimensions" in layout
        assert "a sparse gradient of shape (3, 2) has type torch.int32" in kind


def test_without_a_network_a_rank_has_its_own_gradient(job):
    assert max(result["alone"] for result in job) < 1e-6
