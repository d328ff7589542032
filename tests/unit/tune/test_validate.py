"""Which sweeps a tuning accepts."""

import pytest

from busbw.core.errors import UsageError
from busbw.core.sweep import SweepSpec
from busbw.tune.validate import MAX_SIZES, count_sizes


def spec(collective="all_reduce", **fields):
    return SweepSpec(collective=collective, **fields)


@pytest.mark.parametrize(
    ("fields", "count"),
    [
        ({"min_bytes": 8, "max_bytes": 8}, 1),
        ({"min_bytes": 1024, "max_bytes": 1 << 20, "step_factor": 2}, 11),
        (
            {
                "min_bytes": 1 << 20,
                "max_bytes": MAX_SIZES << 20,
                "step_bytes": 1 << 20,
                "step_factor": 1,
            },
            MAX_SIZES,
        ),
    ],
)
def test_the_number_of_sizes(fields, count):
    assert count_sizes(spec(**fields)) == count


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"collective": "all_to_all"}, "all_to_all: NCCL has no choice"),
        ({"datatype": "all"}, "--datatype all: a tuning is of one"),
        ({"op": "all"}, "--op all: a tuning is of one"),
        (
            {
                "min_bytes": 1 << 20,
                "max_bytes": (MAX_SIZES + 1) << 20,
                "step_bytes": 1 << 20,
                "step_factor": 1,
            },
            "more than 64 sizes",
        ),
        ({"min_bytes": 1 << 20, "max_bytes": 8}, "min"),
    ],
)
def test_options_that_a_tuning_refuses(fields, words):
    with pytest.raises(UsageError, match=words):
        count_sizes(spec(**fields))
