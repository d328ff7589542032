"""Small formats of the kernel and systemd, and any text in their place."""

import pytest
from healthy_os import LIMITS
from hypothesis import given
from hypothesis import strategies as st

from busbw.host.settings import bracketed, cpu_set, logind_setting, named_counts, numbers, soft_limit, uptime


def test_soft_limits():
    assert soft_limit(LIMITS, "Max open files") == "1048576"
    assert soft_limit(LIMITS, "Max locked memory") == "unlimited"
    assert soft_limit(LIMITS, "Max file locks") is None
    assert soft_limit("Max open files", "Max open files") is None


def test_choice_in_brackets():
    assert bracketed("always [madvise] never") == "madvise"
    assert bracketed("always madvise never") is None


def test_counts_by_name():
    assert named_counts("oom 1\noom_kill 2\nbad\nnegative -1") == {"oom": 1, "oom_kill": 2}


def test_numbers_of_a_line():
    assert numbers("4096\t131072\t6291456") == [4096, 131072, 6291456]
    assert numbers("4096 x") == []


@pytest.mark.parametrize("text, cpus", [("0-3,8", {0, 1, 2, 3, 8}), ("", set()), ("0-", set()), ("3-x", set()), ("0-99999999", set())])
def test_cpus_of_a_list(text, cpus):
    assert cpu_set(text) == cpus


def test_seconds_since_boot():
    assert uptime("100000.25 5.00") == 100000.25
    assert uptime("unknown") == 0


class TestLogind:
    def test_last_value_counts(self):
        assert logind_setting(["[Login]\nRemoveIPC=yes", "RemoveIPC = no\n"], "RemoveIPC") == "no"

    def test_comment_shows_the_default(self):
        assert logind_setting(["#RemoveIPC=yes"], "RemoveIPC") == "yes"
        assert logind_setting(["RemoveIPC=no", "#RemoveIPC=yes"], "RemoveIPC") == "no"

    def test_file_without_it(self):
        assert logind_setting(["[Login]", ""], "RemoveIPC") is None


@given(st.text())
def test_any_text_is_read(text):
    soft_limit(text, "Max open files")
    bracketed(text)
    named_counts(text)
    cpu_set(text)
    uptime(text)
    logind_setting([text], "RemoveIPC")
    assert all(isinstance(value, int) for value in numbers(text))
