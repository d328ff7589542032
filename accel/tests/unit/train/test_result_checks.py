"""Files of trainings and plans that were edited, or are of another version."""

import pytest
from damaged_results import damaged

from busbw.core.errors import UsageError
from busbw.report import results
from busbw.report.read import read
from busbw.report.registry import render
from busbw_accel.train.kinds import PlanResult
from busbw_accel.train.plan_types import LOSSES


# The last has all fields of a plan; others have other values in `plan`.
@pytest.mark.parametrize(
    ("kind", "within"),
    [
        ("trained", ""),
        ("planned", "plan"),
        ("planned_in_rounds", "plan"),
        ("planned_for_record", ""),
    ],
)
def test_a_training_or_plan_with_junk_is_refused_or_shown(
    kind: str, within: str, request: pytest.FixtureRequest
) -> None:
    read_again = damaged(request.getfixturevalue(kind), within)
    assert (
        sum(
            all(render(reread, name) is not None for name in ("table", "json"))
            for reread in read_again
        )
        > 50
    )


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        (
            "transport",
            "udp",
            "the transport is 'udp', this busbw knows as-is, sockets, tree, busbw",
        ),
        ("loss", 99, f"the loss is 99, this busbw knows 0 to {len(LOSSES) - 1}"),
        ("bucket_s", [0.1], "1 times for 2 buckets"),
        ("checked_s", 0.0, "a bucket takes less than 0 s, or its checked step no time"),
    ],
)
def test_a_plan_of_another_version_is_refused(
    planned: PlanResult, field: str, value: object, message: str
) -> None:
    assert planned.plan
    setattr(planned.plan.exchanges[1], field, value)
    with pytest.raises(UsageError) as caught:
        read(results.render(planned).encode(), "p.json")
    assert caught.value.message.startswith(
        f"p.json: the plan's exchange by int8: {message}; it begins with "
    )
    assert caught.value.hint
