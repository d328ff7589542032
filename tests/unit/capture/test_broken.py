"""No file, however broken, raises anything but UsageError."""

from pathlib import Path

import pytest
from chakra_messages import node, stream
from hypothesis import given, settings
from hypothesis import strategies as st
from pattern_records import record

from busbw.capture.registry import BY_NAME
from busbw.core import pattern_lines
from busbw.core.errors import UsageError

FOLDER = Path(__file__).parents[2] / "recorded" / "patterns"
SAMPLES = {file.name: file.read_bytes() for file in sorted(FOLDER.iterdir()) if file.suffix not in (".md", ".py")} | {
    "made.0.et": stream(*(node(number, 7, comm_type=number % 10, comm_size=64, ranks=[0, 1], pg_name="p") for number in range(1, 12)))
}
SAMPLES["record.jsonl"] = b"".join(pattern_lines.lines(record(SAMPLES["clog_v1.log"])))


def survives(data: bytes, **options: object) -> None:
    try:
        pattern = record(data, names=("broken.1",), **options)
    except UsageError as error:
        assert error.hint or error.message
    else:
        assert (pattern.rows or pattern.header.source) and all(row.calls >= 0 and row.bytes >= 0 for row in pattern.rows)


@pytest.mark.parametrize("name", SAMPLES)
def test_every_cut_is_survived(name):
    data = SAMPLES[name]
    for at in range(0, len(data), max(1, len(data) // 60)):
        survives(data[:at])


@pytest.mark.parametrize("name", SAMPLES)
@settings(max_examples=40)
@given(data=st.data())
def test_garbage_in_the_middle_is_survived(name, data):
    whole = SAMPLES[name]
    at = data.draw(st.integers(0, len(whole)))
    garbage = data.draw(st.binary(max_size=12))
    survives(whole[:at] + garbage + whole[at + data.draw(st.integers(0, 12)) :])


@pytest.mark.parametrize("name", BY_NAME)
@settings(max_examples=30)
@given(data=st.binary(max_size=200))
def test_garbage_is_survived_by_every_reader(name, data):
    survives(data, given=name)


@pytest.mark.parametrize("name", BY_NAME)
def test_files_of_other_formats_are_survived_by_every_reader(name):
    for data in SAMPLES.values():
        survives(data, given=name)
