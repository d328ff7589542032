"""Exchanges through the host's memory, by busbw-native: the bits that torch's backend gives, and
errors that name who and why.
"""

import jobs
import pytest
import torch

pytestmark = [pytest.mark.torch, pytest.mark.xdist_group("warm_python")]

GPUS = {"ACCEL_DEVICE": "cuda"}
JOBS = {"3 ranks": (3, 1, {}), "2 hosts of 2": (4, 2, {"ACCEL_2D": "1"})}
if torch.cuda.is_available():  # ranks of different hosts may share a GPU
    JOBS |= {"4 ranks on GPUs": (4, 4, GPUS)}
if torch.cuda.device_count() > 1:
    JOBS |= {
        "2 ranks on GPUs": (2, 1, GPUS),
        "2 hosts of 2 on GPUs": (4, 2, {"ACCEL_2D": "1", **GPUS}),
    }


@pytest.mark.parametrize("job_name", list(JOBS))
def test_results_have_the_bits_that_the_backend_gives(job_name, staging_env, tmp_path):
    ranks, hosts, more = JOBS[job_name]
    results = jobs.run(
        tmp_path,
        "staging_checks",
        ["same_bits", "again", "closed", "dropped", "local_steps"],
        ranks,
        hosts,
        **staging_env,
        **more,
    )
    for result in results:
        assert result["again"] and result["dropped"], "neither leaves a thread"
        local = result["local_steps"]
        assert local["host"] == local["backend"] == results[0]["local_steps"]["host"]
        assert (
            result["closed"]
            == "a gradient was submitted after close(); an exchange was started after close()"
        )
        for method, report in result["same_bits"].items():
            assert report["host"] == report["backend"] == results[0]["same_bits"][method]["host"], (
                method
            )
            if hosts > 1 and method == "exact":  # the backend's rows have the length of the longest
                assert report["host sent"] < report["backend sent"]
            else:
                assert report["host sent"] == report["backend sent"], method
            assert report["error"] < 1, method


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("ranks", [2, 4])
def test_exchanges_on_several_streams_have_the_bits_of_one_stream(ranks, staging_env, tmp_path):
    results = jobs.run(tmp_path, "staging_checks", ["streams"], ranks, ranks, **staging_env, **GPUS)
    for result in results:
        for case, by_lanes in result["streams"].items():
            assert by_lanes["1"] == by_lanes["2"] == results[0]["streams"][case]["1"], case


@pytest.mark.parametrize(
    ("ranks", "hosts", "more"), [(3, 1, {}), (4, 2, {"ACCEL_2D": "1"})], ids=["flat", "2D"]
)
def test_a_rank_without_the_library_is_named_on_every_rank(
    ranks, hosts, more, staging_env, tmp_path
):
    results = jobs.run(tmp_path, "staging_checks", ["refused"], ranks, hosts, **staging_env, **more)
    assert {result["refused"] for result in results} == {
        "host staging is not possible: rank 1: BUSBW_PLUGIN=/none.so: no such file"
    }


@pytest.mark.parametrize(
    "more",
    [{}, GPUS] if torch.cuda.is_available() else [{}],
    ids=lambda more: "GPUs" if more else "CPUs",
)
def test_a_rank_that_is_lost_is_named_by_the_others(more, staging_env, tmp_path):
    results = jobs.run(
        tmp_path, "staging_checks", ["lost"], 3, 3, **staging_env, **more, may_fail=True
    )
    assert [result["code"] for result in results] == [0, 0, 7], results[0]["stderr"]
    for result in results[:2]:
        assert "lost: rank 2 on host2 (" in result["lost"]
        assert result["finite"] == [True, True, True, *([False] if more else [])]
        assert result["after_s"] < 30, "long before any limit"
