"""Counts of CPUs from the kernel's lists."""

import pytest

from busbw.host.cpu import count_list


@pytest.mark.parametrize(
    ("text", "count"),
    [("0-3", 4), ("0", 1), ("0-3,8", 5), ("", 0), ("0-1,4-7,9", 7), ("x", 0), ("1-x", 0)],
)
def test_a_kernel_list_is_counted(text: str, count: int) -> None:
    assert count_list(text) == count
