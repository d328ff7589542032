"""A rank's reports survive encoding as a line, and other lines are not decoded as reports."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.core.rank_messages import PREFIX, Gone, Here, Leaving, Stalled, decode, encode

STALLED = Stalled(3, "h2", 77, "timing", "1M in place", 12, 60.5, ["a.py:1 f"], {78: "T"}, ["eth0"])


@given(st.text(), st.integers(0, 9999), st.lists(st.text()))
def test_reports_are_decoded_behind_a_launcher_prefix(
    host: str, pid: int, doing: list[str]
) -> None:
    for message in (
        Here(1, host, pid, 3, host),
        Leaving(pid),
        Gone(1, host, pid),
        Stalled(0, host, pid, "init", "", 2, 1.0, doing, {pid: "S"}, doing, "x\ny"),
    ):
        line = encode(message)
        assert "\n" not in line
        assert decode(f"[1,3]<stderr>: {line}") == message


@pytest.mark.parametrize(
    "line", ["", "NCCL WARN", PREFIX, f"{PREFIX}{{", f'{PREFIX}{{"type":"other"}}']
)
def test_other_lines_are_not_reports(line: str) -> None:
    assert decode(line) is None


def test_a_stall_message_names_rank_host_and_stopped_process() -> None:
    assert (
        STALLED.message()
        == "rank 3 on h2: timing of 1M in place (step 12) made no progress for 60 s: a.py:1 f;"
        " local process 78 is stopped"
    )
