"""A SweepSpec expands to sizes and series in nccl-tests' order, and one that would never end is
refused.
"""

from itertools import islice, pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.core.collectives import collective
from busbw.core.dtypes import DTYPES
from busbw.core.errors import UsageError
from busbw.core.redops import REDOPS
from busbw.core.sweep import (
    SweepSpec,
    check_elements,
    check_spec,
    dtypes,
    from_first_full_row,
    series,
    sizes,
    warmup_sizes,
)


def spec(name: str = "all_reduce", /, **fields: object) -> SweepSpec:
    return msgspec.convert({"collective": name, **fields}, SweepSpec)


def sizes_of(**fields: object) -> list[int]:
    sweep = spec(**fields)
    return list(sizes(sweep, sweep.max_bytes))


def test_a_factor_multiplies_and_wins_over_the_step() -> None:
    assert sizes_of(min_bytes=8, max_bytes=64, step_factor=2, step_bytes=1) == [8, 16, 32, 64]
    assert sizes_of(min_bytes=8, max_bytes=1000, step_factor=5) == [8, 40, 200, 1000]


def test_without_a_factor_sizes_grow_by_the_step() -> None:
    assert sizes_of(min_bytes=8, max_bytes=20, step_factor=1, step_bytes=5) == [8, 13, 18]
    grown = sizes_of(min_bytes=8, max_bytes=128 << 20, step_factor=1)
    assert (len(grown), grown[:2]) == (128, [8, 8 + (1 << 20)])


def test_sizes_have_whole_elements_where_that_is_asked() -> None:
    check_elements(spec(min_bytes=6, datatype="half"))
    with pytest.raises(UsageError, match="--minbytes 3: an element of bfloat16 has 2 bytes"):
        check_elements(spec(min_bytes=3, datatype="bfloat16"))
    with pytest.raises(UsageError, match="--datatype all: one type at a time"):
        check_elements(spec(datatype="all"))


def test_a_hint_offers_all_types_only_where_a_sweep_takes_them() -> None:
    with pytest.raises(UsageError, match="unknown data type 'foo'") as of_one:
        check_elements(spec(datatype="foo"))
    with pytest.raises(UsageError, match="unknown data type 'foo'") as of_sweep:
        dtypes(spec(datatype="foo"))
    assert of_one.value.hint.endswith("f8e5m2")
    assert of_sweep.value.hint.endswith("f8e5m2, or all")


def test_one_size() -> None:
    assert sizes_of(min_bytes=64, max_bytes=64, step_factor=2) == [64]
    assert sizes_of(min_bytes=64, max_bytes=64, step_factor=1, step_bytes=0) == [64], (
        "a single size needs no step"
    )


@given(
    st.integers(1, 1 << 20), st.integers(1, 1 << 24), st.integers(-2, 9), st.integers(1, 1 << 18)
)
def test_sizes_rise_from_the_smallest_to_at_most_the_largest(
    low: int, high: int, factor: int, step: int
) -> None:
    sweep = spec(min_bytes=low, max_bytes=high, step_factor=factor, step_bytes=step)
    if low > high:
        with pytest.raises(UsageError, match=f"-b {low} is larger than -e {high}"):
            check_spec(sweep)
        return
    check_spec(sweep)
    sweep_sizes = list(islice(sizes(sweep, high), 1000))
    assert sweep_sizes[0] == low
    assert all(b == (a * factor if factor > 1 else a + step) for a, b in pairwise(sweep_sizes))
    assert sweep_sizes[-1] <= high
    assert (
        len(sweep_sizes) == 1000
        or (sweep_sizes[-1] * factor if factor > 1 else sweep_sizes[-1] + step) > high
    )


def test_little_memory_lowers_both_ends_of_the_range() -> None:
    sweep = spec(min_bytes=1024, max_bytes=1 << 20, step_factor=2)
    assert list(sizes(sweep, 4096)) == [1024, 2048, 4096]
    assert list(sizes(sweep, 100)) == [100]
    assert list(warmup_sizes(sweep, 100)) == [100]


def test_warm_up_sizes_double_for_any_step() -> None:
    sweep = spec(min_bytes=24, max_bytes=200, step_factor=1, step_bytes=8)
    assert list(warmup_sizes(sweep, sweep.max_bytes)) == [24, 48, 96, 192]


def test_series_are_ordered_by_type_operator_and_root() -> None:
    keys = [
        (row.dtype, row.op, row.root)
        for row in series(spec("reduce", datatype="all", op="all", root="all"), 3)
    ]
    assert keys == [
        (dtype.name, op.name, root) for dtype in DTYPES for op in REDOPS for root in range(3)
    ]


@pytest.mark.parametrize(
    ("name", "ops", "roots"),
    [
        ("all_reduce", ["sum"], [-1]),
        ("broadcast", [""], [0]),
        ("reduce", ["sum"], [0]),
        ("all_gather", [""], [-1]),
        ("alltoall", [""], [-1]),
        ("hypercube", [""], [-1]),
        ("gather", [""], [0]),
        ("sendrecv", ["sum"], [-1]),
    ],
)
def test_the_default_series_of_each_collective(name: str, ops: list[str], roots: list[int]) -> None:
    assert [(row.dtype, row.op, row.root) for row in series(spec(name), 2)] == [
        ("float", op, root) for op in ops for root in roots
    ]


def test_only_sendrecv_repeats_for_operators_it_does_not_use() -> None:
    assert [row.op for row in series(spec("sendrecv", op="all"), 2)] == [op.name for op in REDOPS]
    assert [row.op for row in series(spec("all_gather", op="all"), 2)] == [""]


@pytest.mark.parametrize(
    ("root", "roots"),
    [
        ("all", [0, 1, 2, 3]),
        ("ALL", [0, 1, 2, 3]),
        ("-1", [0, 1, 2, 3]),
        ("2", [2]),
        ("0x3", [3]),
        ("1x", [1]),
    ],
)
def test_roots(root: str, roots: list[int]) -> None:
    assert [row.root for row in series(spec("broadcast", root=root), 4)] == roots


@pytest.mark.parametrize("root", ["4", "-2", "99"])
def test_an_invalid_root_is_refused(root: str) -> None:
    with pytest.raises(UsageError, match=f"-r {root}: not one of the 4 ranks") as caught:
        list(series(spec("broadcast", root=root), 4))
    assert "0 to 3" in caught.value.hint


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"min_bytes": 0}, "-b 0: sizes from 0 bytes on would never grow"),
        ({"step_factor": 1, "step_bytes": 0}, "-i 0: a step of 0 never reaches -e 1048576"),
        ({"step_factor": -2, "step_bytes": 0}, "-i 0: a step of 0 never reaches"),
        ({"min_bytes": 2 << 20}, "-b 2097152 is larger than -e 1048576"),
        ({"iters": -1}, "-n -1: must be from 0 to 10000000"),
        ({"agg_iters": 0}, "-m 0: must be from 1 to 10000000"),
        ({"warmup_iters": -3}, "-w -3: "),
        ({"run_cycles": -1}, "-N -1: "),
        ({"check": -1}, "-c -1: "),
        ({"unalign": -1}, "-u -1: "),
        ({"ngpus": 0}, "-g 0: "),
        ({"nthreads": 0}, "-t 0: "),
        ({"cudagraph": -1}, "-G -1: "),
        ({"iters": 10**7 + 1}, "-n 10000001: must be at most 10000000"),
        (
            {"iters": 10**6, "agg_iters": 11},
            "-n 1000000 x -m 11: more than 10000000 operations for each size",
        ),
        ({"warmup_iters": 1 << 40}, "-w 1099511627776: must be at most 2147483647"),
        ({"max_bytes": 10**30}, "-e 1000000000000000000000000000000: larger than any memory"),
    ],
)
def test_an_invalid_sweep_is_refused(fields: dict[str, int], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_spec(spec(**({"min_bytes": 8, "max_bytes": 1 << 20, "step_factor": 2} | fields)))
    assert caught.value.message.startswith(words)
    assert caught.value.hint


@pytest.mark.parametrize(
    "fields",
    [
        {"iters": 0},
        {"run_cycles": 0},
        {"check": 0},
        {"min_bytes": 1},
        {"step_bytes": 0, "step_factor": 2},
    ],
)
def test_values_that_nccl_tests_allows_are_allowed(fields: dict[str, int]) -> None:
    check_spec(spec(**fields))


SOFT: list[dict[str, object]] = [
    {"blocking": -1},
    {"timeout": -5},
    {"average": 9},
    {"local_register": 7},
    {"cta_policy": 99},
    {"per_iter_timing": 2},
    {"per_iter_skip": -1},
    {"per_iter_timing": 1, "per_iter_skip": 20},
    {"per_iter_timing": 1, "iters": 0},
    {"step_factor": -2},
    {"report_cputime": 5},
    {"root": "xyz"},
    {"root": "1x"},
    {"root": "-2"},
    {"root": "010"},
    {"root": ""},
]


@pytest.mark.parametrize("fields", SOFT, ids=str)
def test_busbw_run_refuses_odd_values_that_nccl_tests_accepts(fields: dict[str, object]) -> None:
    check_spec(spec(**fields))
    with pytest.raises(UsageError) as caught:
        check_spec(spec(**fields), strict=True)
    assert caught.value.message.startswith("--")
    assert caught.value.hint


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"iters": -1}, "--iters -1: must be from 0 to 10000000"),
        ({"average": 9}, "--average 9: must be 0, 1, 2 or 3"),
        ({"timeout": -5}, "--timeout -5: must be at least 0"),
        (
            {"iters": 10**6, "agg_iters": 11},
            "--iters 1000000 x --agg-iters 11: more than 10000000 operations for each size",
        ),
        (
            {"per_iter_timing": 1, "per_iter_skip": 20},
            "--per-iter-skip 20: must be less than --iters 20",
        ),
        ({"min_bytes": 64, "max_bytes": 8}, "--minbytes 64 is larger than --maxbytes 8"),
        ({"min_bytes": 0}, "--minbytes 0: sizes from 0 bytes on would never grow"),
        (
            {"step_factor": 1, "step_bytes": 0},
            "--stepbytes 0: a step of 0 never reaches --maxbytes 8589934592",
        ),
        ({"root": "xyz"}, "--root 'xyz': not a rank"),
    ],
)
def test_messages_of_busbw_run_have_long_option_names(
    fields: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        check_spec(spec(**fields), strict=True)
    assert caught.value.message == message


@pytest.mark.parametrize(
    "fields",
    [
        {"per_iter_timing": 1, "per_iter_skip": 19},
        {"per_iter_skip": 30},
        {"iters": 0},
        {"iters": 10**7},
        {"root": "all"},
        {"root": "ALL"},
        {"root": "-1"},
        {"root": "7"},
        {"root": "0x1f"},
        {"cudagraph": 3},
        {"step_factor": 1},
    ],
    ids=str,
)
def test_busbw_run_accepts_valid_values(fields: dict[str, object]) -> None:
    check_spec(spec(**fields), strict=True)


def test_8_bytes_of_float_on_two_ranks_gather_no_elements() -> None:
    for name in ("all_gather", "reduce_scatter", "gather", "scatter", "alltoall", "hypercube"):
        buffers = collective(name).buffers(8 // 4, 2, 4)
        assert (buffers.send, buffers.recv, buffers.count) == (0, 0, 0)


def test_unknown_types_and_operators_are_refused() -> None:
    with pytest.raises(UsageError, match="unknown data type"):
        list(series(spec(datatype="float16x"), 2))
    with pytest.raises(UsageError, match="unknown reduction operator"):
        list(series(spec(op="xor"), 2))


@pytest.mark.parametrize(
    ("name", "ranks", "fields", "first"),
    [
        ("alltoall", 8, {}, 128),
        ("all_gather", 3, {}, 64),
        ("alltoall", 8, {"step_factor": 1, "step_bytes": 24}, 128),
        ("all_reduce", 8, {}, 8),
        ("all_reduce", 8, {"min_bytes": 1, "datatype": "all"}, 8),
        ("alltoall", 1024, {}, 8),  # no size up to the largest is enough
    ],
)
def test_a_sweep_can_begin_where_every_rank_has_an_element(
    name: str, ranks: int, fields: dict[str, object], first: int
) -> None:
    sweep_fields = {
        "collective": name,
        "min_bytes": 8,
        "max_bytes": 4096,
        "step_factor": 2,
    } | fields
    assert from_first_full_row(msgspec.convert(sweep_fields, SweepSpec), ranks).min_bytes == first
