"""The table of sweep options: nccl-tests' letters, long names and defaults, one row for each
field of a sweep.
"""

import msgspec
import pytest

from busbw.core.options import BY_FIELD, OPTIONS, Option
from busbw.core.sweep import SweepSpec

# nccl-tests 2.20.0: letter, long name, default
NCCL_TESTS = {
    "t": ("nthreads", 1),
    "g": ("ngpus", 1),
    "b": ("minbytes", 32 << 20),
    "e": ("maxbytes", 32 << 20),
    "i": ("stepbytes", 1 << 20),
    "f": ("stepfactor", 1),
    "n": ("iters", 20),
    "m": ("agg_iters", 1),
    "w": ("warmup_iters", 1),
    "N": ("run_cycles", 1),
    "c": ("check", 1),
    "p": ("parallel_init", 0),
    "o": ("op", "sum"),
    "d": ("datatype", "float"),
    "r": ("root", "0"),
    "z": ("blocking", 0),
    "y": ("stream_null", 0),
    "T": ("timeout", 0),
    "G": ("cudagraph", 0),
    "C": ("report_cputime", 0),
    "a": ("average", 1),
    "R": ("local_register", 0),
    "x": ("cta_policy", -1),
    "D": ("device_implementation", 0),
    "V": ("device_cta_count", 16),
    "S": ("report_timestamps", 0),
    "J": ("output_file", ""),
    "M": ("memory", 0),
    "u": ("unalign", 0),
    "I": ("per_iter_timing", 0),
    "K": ("per_iter_skip", 0),
    "U": ("tuning", 0),
}
# the argument, and what nccl-tests does not have
OWN_FIELDS = {"collective", "check_timed", "soak_s", "counts", "sampling"}
KIND = {"int": int, "size": int, "word": str}


def test_letters_names_and_defaults_are_those_of_nccl_tests() -> None:
    assert {row.short: (row.long, row.default) for row in OPTIONS} == NCCL_TESTS


def test_options_and_sweep_fields_correspond_one_to_one() -> None:
    assert {row.field for row in OPTIONS} | OWN_FIELDS == set(SweepSpec.__struct_fields__)
    assert {row.field: row for row in OPTIONS} == BY_FIELD


@pytest.mark.parametrize("attribute", ["short", "long", "field"])
def test_option_names_are_unique(attribute: str) -> None:
    names = [getattr(row, attribute) for row in OPTIONS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("row", OPTIONS, ids=lambda row: row.long)
def test_the_defaults_are_among_the_values_allowed(row: Option) -> None:
    if row.kind == "word":
        assert (row.allowed, row.choices) == ("", ())
        return
    assert all(
        row.holds(value, strict=strict)
        for value in (row.default, row.default_for_run)
        for strict in (True, False)
    )
    assert not (row.choices and row.least is not None), "choices or a range, not both"


def test_allowed_values_are_described() -> None:
    assert BY_FIELD["average"].allowed == "0, 1, 2 or 3"
    assert BY_FIELD["cta_policy"].allowed == "-1, 0, 1 or 2"
    assert BY_FIELD["check"].allowed == "at least 0"
    assert BY_FIELD["iters"].allowed == "from 0 to 10000000"
    assert BY_FIELD["op"].allowed == ""


def test_each_frontend_uses_its_own_option_names() -> None:
    assert [BY_FIELD["agg_iters"].name(strict=strict) for strict in (True, False)] == [
        "--agg-iters",
        "-m",
    ]


@pytest.mark.parametrize("row", OPTIONS, ids=lambda row: row.long)
def test_every_option_has_help_and_defaults_of_the_right_type(row: Option) -> None:
    assert row.help
    assert not row.help.endswith(".")
    assert type(row.default) is type(row.default_for_run) is KIND[row.kind]
    assert len(row.short) == 1


def test_busbw_run_changes_only_the_defaults_of_the_size_range() -> None:
    assert {
        row.short: row.default_for_run for row in OPTIONS if row.default_for_run != row.default
    } == {"b": 8, "e": 8 << 30, "f": 2}


def test_a_default_sweep_uses_one_of_the_two_defaults() -> None:
    spec = msgspec.structs.asdict(SweepSpec(collective="all_reduce"))
    assert all(spec[row.field] in (row.default, row.default_for_run) for row in OPTIONS)
