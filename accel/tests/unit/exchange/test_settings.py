"""Settings, LightCC's variables, and the rows of a mesh: arithmetic without ranks."""

from datetime import timedelta
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.core.errors import UsageError
from busbw_accel import lightcc_env, mesh
from busbw_accel.codecs.topk import ratio_at
from busbw_accel.communicator import Communicator
from busbw_accel.mesh import rows_of
from busbw_accel.methods import DENSE, NAMES, TOPK
from busbw_accel.settings import Settings
from busbw_accel.staging import HostStaging


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"method": "top-k"}, f"method 'top-k' is not one of {', '.join(NAMES)}"),
        ({"wire": "fp8"}, "wire 'fp8' is not one of same, fp32, bf16, fp16"),
        ({"values": "bf16"}, "values 'bf16' is not one of fp32, fp16"),
        ({"method": "int8", "staging": "rdma"}, "staging 'rdma' is not one of backend, host"),
        ({"staging": "host"}, "staging=host has no effect on dense gradients"),
        ({"ratio": 0.0}, "ratio is 0.0, and must be a share above 0, at most 1"),
        ({"ratio": 1.5}, "ratio is 1.5"),
        ({"ratio": float("nan")}, "ratio is nan"),
        ({"momentum": 1.0}, "momentum is 1.0"),
        (
            {"momentum": 0.9, "method": "topk"},
            "momentum correction with parts that use another method",
        ),
        (
            {"momentum": 0.9, "method": "int8", "compress_least": 0, "dense_below_2d": False},
            "momentum correction is for top-k, and the method is int8",
        ),
        ({"method": "powersgd", "factors": "fp16"}, "factors 'fp16' is not one of fp32, bf16"),
        ({"last": "top"}, f"last 'top' is not one of {', '.join(NAMES)}"),
        (
            {"warmup_steps": 10, "method": "int4", "last": "int8"},
            "a warm-up is for PowerSGD and top-k, and the method is int4",
        ),
        (
            {
                "momentum": 0.9,
                "method": "topk",
                "last": "int4",
                "compress_least": 0,
                "dense_below_2d": False,
            },
            "momentum correction with parts that use another method",
        ),
        ({"warmup_steps": 10}, "a warm-up is for PowerSGD and top-k, and the method is dense"),
        (
            {"method": "powersgd", "two_d": True},
            "PowerSGD needs whole matrices, which two_d divides",
        ),
        ({"matrix_rank": 0}, "matrix_rank is 0: a factor has at least one column"),
        ({"momentum": 0.9, "feedback": False}, "momentum correction needs error feedback"),
        ({"compress_least": -1}, "compress_least is -1, and cannot be negative"),
        ({"intra_size": 0}, "intra_size is 0: a 2D group has at least one rank"),
        ({"chunk": 100}, "chunk is 100 bytes"),
        ({"every": 0}, "every is 0, and must be at least 1"),
        ({"fragments": 2}, "fragments has no effect where gradients are exchanged in each step"),
        ({"outer_lr": 0.5}, "outer_lr has no effect where gradients are exchanged in each step"),
        ({"every": "30"}, "every is '30', of type str"),
        ({"every": 30.0}, "every is 30.0, of type float"),
        ({"matrix_rank": True}, "matrix_rank is True, of type bool"),
        ({"feedback": 1}, "feedback is 1, of type int"),
        ({"chunk": 1e6}, "chunk is 1000000.0, of type float"),
        ({"every": 30, "fragments": 4}, "every=30 is not a multiple of fragments=4"),
        (
            {"every": 30, "fragments": 3, "delay": 10},
            "delay is 10, and a fragment is exchanged every 10 steps",
        ),
        ({"every": 30, "delay": -1}, "delay is -1"),
        ({"every": 30, "mix": 0.7}, "mix has no effect without delay"),
        ({"every": 30, "delay": 1, "mix": 0.0}, "mix is 0.0"),
        ({"every": 30, "outer_lr": float("nan")}, "outer_lr is nan, and must be above 0"),
        ({"every": 30, "outer_momentum": 1.0}, "outer_momentum is 1.0"),
        (
            {"every": 30, "method": "int4", "last": "int8"},
            "last is for gradients, and every=30 exchanges changes of parameters",
        ),
    ],
)
def test_invalid_settings_are_named(words, message):
    with pytest.raises(UsageError) as caught:
        Settings(**words)
    assert caught.value.message.startswith(message)
    assert caught.value.hint


@pytest.mark.parametrize(
    "words",
    [
        {"ratio": 1.0},
        {"every": 30, "fragments": 3, "delay": 9, "mix": 1.0, "outer_momentum": 0.0},
        {"matrix_rank": 1},
        {"intra_size": 1},
        {"chunk": 1 << 16},
        {"two_d_most": 0, "compress_least": 0},
        {"method": TOPK, "last": "int8", "warmup_steps": 1},
        {"method": "int8", "last": DENSE, "staging": "host"},
    ],
)
def test_the_least_and_the_most_are_valid(words):
    assert Settings(**words).describe()


def test_thresholds_are_of_bytes_and_inclusive():
    settings = Settings(method=TOPK, two_d=True, two_d_most=1000, compress_least=100)
    assert [settings.method_for(nbytes) for nbytes in (99, 100, 101)] == [DENSE, TOPK, TOPK]
    assert [settings.two_d_for(nbytes, TOPK) for nbytes in (999, 1000, 1001)] == [True, True, False]
    assert not Settings().two_d_for(10, DENSE) and not settings.two_d_for(1000, "powersgd"), (
        "which needs whole matrices"
    )


def test_the_last_bucket_may_have_its_own_method():
    settings = Settings(method="int4", last="powersgd", compress_least=100)
    assert [settings.method_for(100, last=last) for last in (False, True)] == ["int4", "powersgd"]
    assert settings.method_for(99, last=True) == DENSE
    assert Settings(method=TOPK, compress_least=0).method_for(1, last=True) == TOPK
    assert settings.describe() == "int4 last=powersgd compress_least=100"
    assert (
        not settings.small and Settings(method=TOPK, last="powersgd").small and not Settings().small
    )
    assert (
        not Settings(method=TOPK, ratio=0.1).small
        and not Settings(method="powersgd", warmup_steps=1).small
    )


def test_the_seven_switches_have_lightccs_defaults():
    defaults = {switch.name: switch.default for switch in lightcc_env.SWITCHES}
    assert defaults == {
        "LIGHT_2D_ALLREDUCE": "0",
        "LIGHT_INTRA_SIZE": "8",
        "LIGHT_HIERARCHICAL_THRESHOLD": "1073741824",
        "LIGHT_TOPK_ALLREDUCE": "0",
        "LIGHT_TOPK_RATIO": "0.01",
        "LIGHT_TOPK_THRESHOLD": "1048576",
        "LIGHT_TOPK_FP16": "0",
    }
    assert lightcc_env.from_env({}) == Settings()
    assert lightcc_env.from_env({"LIGHT_TOPK_RATIO": " "}) == Settings(), (
        "an empty value is an unset one"
    )


def test_switches_become_settings():
    given_words = {
        "LIGHT_2D_ALLREDUCE": "1",
        "LIGHT_INTRA_SIZE": "4",
        "LIGHT_HIERARCHICAL_THRESHOLD": "5",
        "LIGHT_TOPK_ALLREDUCE": "1",
        "LIGHT_TOPK_RATIO": "0.05",
        "LIGHT_TOPK_THRESHOLD": "2097152",
        "LIGHT_TOPK_FP16": "1",
        "OTHER": "x",
    }
    assert lightcc_env.from_env(given_words) == Settings(
        method=TOPK,
        two_d=True,
        intra_size=4,
        two_d_most=5,
        compress_least=2097152,
        ratio=0.05,
        values="fp16",
    )
    limits = {
        "LIGHT_INTRA_SIZE": "1",
        "LIGHT_HIERARCHICAL_THRESHOLD": "0",
        "LIGHT_TOPK_RATIO": "1",
        "LIGHT_TOPK_THRESHOLD": "0",
    }
    assert lightcc_env.from_env(limits) == Settings(
        intra_size=1, two_d_most=0, ratio=1.0, compress_least=0
    )
    assert lightcc_env.unknown(given_words | {"LIGHT_TOPK": "1", "LIGHT_2D": "1"}) == [
        "LIGHT_2D",
        "LIGHT_TOPK",
    ]


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("LIGHT_2D_ALLREDUCE", "yes"),
        ("LIGHT_INTRA_SIZE", "0"),
        ("LIGHT_INTRA_SIZE", "two"),
        ("LIGHT_HIERARCHICAL_THRESHOLD", "1G"),
        ("LIGHT_TOPK_RATIO", "0"),
        ("LIGHT_TOPK_RATIO", "nan"),
        ("LIGHT_TOPK_RATIO", "1.01"),
        ("LIGHT_TOPK_THRESHOLD", "-1"),
    ],
)
def test_an_invalid_variable_is_named_with_its_value(name, word):
    with pytest.raises(UsageError, match=f"{name}={word} is invalid"):
        lightcc_env.from_env({name: word})


@pytest.mark.parametrize(
    ("hosts", "size", "rows"),
    [
        ("aabb", None, [[0, 1], [2, 3]]),
        ("abab", None, [[0, 2], [1, 3]]),
        ("aaaa", 2, [[0, 1], [2, 3]]),
    ],
)
def test_rows_are_the_ranks_of_a_host_or_blocks(hosts, size, rows):
    assert rows_of(hosts, size) == (rows, "")


def test_a_2d_group_over_hosts_gets_a_note():
    rows, note = rows_of("aabbcc", 3)
    assert rows == [[0, 1, 2], [3, 4, 5]]
    assert (
        note == "the 2D group of ranks 0, 1, 2 spans hosts, so its inner traffic uses the network"
    )


@pytest.mark.parametrize(
    ("hosts", "size", "reason"),
    [
        ("aab", None, "hosts have different numbers of ranks (a: 2, b: 1)"),
        ("aaaa", None, "all 4 ranks are one 2D group"),
        ("abcd", None, "each host has one rank"),
        ("aabb", 8, "4 ranks are not a multiple of 8 in a 2D group"),
        ("aabbc", 2, "5 ranks are not a multiple of 2 in a 2D group"),
        ("aabb", 1, "a 2D group needs at least two ranks"),
    ],
)
def test_one_dimension_has_a_reason(hosts, size, reason):
    assert rows_of(hosts, size) == ([], f"one dimension only: {reason}")


def test_bytes_that_leave_a_host_by_ring_and_direct():
    flat, column, row = (
        Communicator(None, 4, 0, 2),
        Communicator(None, 2, 0, 1),
        Communicator(None, 2, 1, 2),
    )
    assert [line.ring(600) for line in (flat, column, row)] == [300, 600, 0]
    assert [line.direct(600) for line in (flat, column, row)] == [400, 600, 0]
    assert [line.all_gather_bytes(200) for line in (flat, column, row)] == [300, 200, 0]


def test_host_staging_sends_to_each_rank_of_another_host():
    staged = Communicator(None, 4, 0, 2, cast(HostStaging, object()))
    assert staged.all_gather_bytes(200) == 400


@pytest.mark.parametrize("seconds", [0, -1])
def test_a_timeout_that_is_no_time_is_refused_and_not_the_default(seconds):
    with pytest.raises(UsageError, match=f"timeout={seconds} s: an exchange needs time"):
        mesh._timeout_or_default(timedelta(seconds=seconds))


@given(st.integers(0, 500), st.floats(1e-4, 1.0), st.integers(0, 400))
def test_a_warm_up_falls_to_the_ratio_and_never_below(step, ratio, warmup):
    ratio_now, ratio_next = ratio_at(step, ratio, warmup), ratio_at(step + 1, ratio, warmup)
    assert ratio <= ratio_next <= ratio_now <= max(ratio, 0.25) * (1 + 1e-12)
    assert ratio_at(warmup, ratio, warmup) == ratio
