"""Runs of the history as lines of text, and lines as runs."""

from datetime import UTC, datetime

import pytest

from busbw.history.exported import indented, line, split, when

ADDED = "2026-11-20T10:00:00+00:00"
OWN, NONE = (
    '{"schema":"busbw.result/1","start":"2026-11-21T10:00:00+00:00"}',
    '{"schema":"busbw.result/1","start":""}',
)


@pytest.mark.parametrize(
    ("text", "added"), [(OWN, None), (NONE, datetime(2026, 11, 20, 10, tzinfo=UTC))]
)
def test_a_line_has_the_time_of_adding_only_if_the_run_has_no_start(text, added):
    exported_line = line(text, ADDED)
    assert exported_line == (text if added is None else f'{text[:-1]},"added":"{ADDED}"}}') + "\n"
    assert when(exported_line.encode()) == added
    assert indented(exported_line).endswith(b"}\n")


@pytest.mark.parametrize("data", [b"no JSON", b'{"added":"yesterday"}', b"\xff"])
def test_lines_without_a_time_have_none(data):
    assert when(data) is None


def test_a_file_of_lines_is_split_and_any_other_is_one_result():
    first, second = OWN.encode(), NONE.encode()
    assert split(first + b"\n\n" + second + b"\n", "f") == [
        ("f line 1", first),
        ("f line 3", second),
    ]
    for content in (first, first + b"\n", b'{\n"schema":"busbw.result/1"\n}', b"text\nof a log\n"):
        assert split(content, "f") == [("f", content)]
