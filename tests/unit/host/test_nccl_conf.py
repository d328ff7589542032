"""Files with NCCL's variables: lines, and what NCCL would make of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.host.nccl_packages import parse, user_file

NAMES = st.from_regex(r"NCCL_[A-Z][A-Z_]{0,10}", fullmatch=True)
VALUES = st.text(st.characters(exclude_characters="\n", codec="utf-8"), max_size=20)


@given(st.lists(st.tuples(NAMES, VALUES)))
def test_written_lines_are_read_back(pairs):
    text = "".join(f"{name}={value}\n" for name, value in pairs)
    assert [(line.name, line.value) for line in parse(text)] == pairs


@given(st.text())
def test_any_text_gives_lines_with_numbers_of_it(text):
    lines = text.split("\n")
    for assignment in parse(text):
        assert lines[assignment.line - 1] == f"{assignment.name}={assignment.value}"


def test_comments_and_lines_without_a_value_are_left_out():
    assert parse("# NCCL_ALGO=Ring\nNCCL_ALGO\n\nNCCL_PROTO=LL")[0].line == 4


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("NCCL_SOCKET_IFNAME==eth0", ""),
        ("NCCL_ALGO = Ring", "beside the name"),
        ("NCCL_ALGO= Ring", "beside the value"),
        ("NCCL_ALGO=Ring\r", "beside the value"),
        ("export NCCL_ALGO=Ring", "export"),
        ('NCCL_ALGO="Ring"', "quotes"),
    ],
)
def test_line_with_a_misleading_form(line, fault):
    (assignment,) = parse(line)
    assert fault in assignment.fault and bool(assignment.fault) == bool(fault)


def test_named_file_comes_in_place_of_the_home_directory():
    assert user_file("/opt/nccl.conf", "/home/a") == "/opt/nccl.conf"
    assert user_file("", "/home/a/") == "/home/a/.nccl.conf"
    assert user_file("", "") == ""
