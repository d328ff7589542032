"""Damaged files of `busbw backends` are refused."""

import json

import msgspec
import pytest

from busbw.backends.types import EAGER, BackendsResult, BackendsRow, BackendTime, MeasuredRail
from busbw.core.errors import UsageError
from busbw.core.result import Cell
from busbw.core.sweep import SweepSpec
from busbw.report import results
from busbw.report.read import read

RESULT = BackendsResult(
    spec=SweepSpec(collective="sendrecv", datatype="bfloat16"),
    default="gloo@eth0",
    backends=["gloo@eth0"],
    rails=[MeasuredRail("eth0", 1e9, {"UCX_NET_DEVICES": "eth0"})],
    rows=[
        BackendsRow(
            size_bytes=1024,
            times=[BackendTime(backend="gloo@eth0", mode=EAGER, cell=Cell(1e-3, 1e6, 1e6))],
        )
    ],
)
ROW = "row 1, of 1024 bytes by gloo@eth0"
TIME = ("rows", 0, "times", 0)


def test_a_whole_file_is_read() -> None:
    assert read(results.render(RESULT).encode(), "r.json")


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("rails", 0, "rate"), -1, "rail eth0: a rate of -1 bytes per second"),
        (("rails", 0, "rate"), "inf", "rail eth0: a rate of inf bytes per second"),
        ((*TIME, "operations"), -1, f"{ROW}: -1 operations"),
        ((*TIME, "operations"), 0, f"{ROW}: 0 operations"),
        ((*TIME, "mode"), "often", f"{ROW}: the mode 'often'"),
        ((*TIME, "cell", "time_s"), -1, f"{ROW}: a time of -1 seconds"),
    ],
)
def test_figures_that_no_run_gives_are_named(path, value, message: str) -> None:
    document = json.loads(results.render(RESULT))
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(UsageError, match=message):
        read(msgspec.json.encode(document), "r.json")
