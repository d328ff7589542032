"""What a pattern asks of NCCL's tuner."""

import os
from pathlib import Path

import pytest

from busbw.core.pattern import Header, Pattern
from busbw.core.pattern_tally import Arguments, Tally
from busbw.launch.control import SoloControl
from busbw.measure import tuner_table


def pattern(*rows: Arguments) -> Pattern:
    tally = Tally(Header(), ordered=False)
    tally.comm(8)
    tally.comm(2)
    for row in rows:
        tally.add(row)
    return tally.pattern()


RING = Arguments(0, "all_gather", 1024, algorithm="Ring", protocol="LL128")


def test_lines_are_in_nccls_numbers():
    small = Arguments(1, "all_reduce", 8, algorithm="NVLSTree", protocol="Simple")
    assert tuner_table.lines(pattern(RING, small)) == (["8 2 1024 1 1", "2 4 8 5 2"], 0)


def test_rows_that_the_tuner_cannot_tell_apart_are_counted():
    other = Arguments(0, "all_gather", 1024, dtype="half", algorithm="Tree", protocol="LL")
    same = Arguments(0, "all_gather", 1024, dtype="float", algorithm="Ring", protocol="LL128")
    exchange = Arguments(0, "alltoall", 8, algorithm="Ring", protocol="LL")
    assert tuner_table.lines(pattern(RING, other, same, exchange)) == (["8 2 1024 1 1"], 2)


def test_pattern_without_choices_asks_for_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NCCL_TUNER_PLUGIN", "other.so")
    with tuner_table.asking(pattern(Arguments(0, "all_reduce", 8)), SoloControl()) as notes:
        assert notes == []


def test_table_is_named_only_while_it_is_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    library = tmp_path / "lib.so"
    library.touch()
    monkeypatch.setenv("BUSBW_PLUGIN", str(library))
    monkeypatch.delenv("NCCL_TUNER_PLUGIN", raising=False)
    with tuner_table.asking(pattern(RING), SoloControl()) as notes:
        assert notes == []
        assert os.environ["NCCL_TUNER_PLUGIN"] == str(library)
        assert Path(os.environ["BUSBW_TUNER_TABLE"]).read_text() == "8 2 1024 1 1\n"
    assert "BUSBW_TUNER_TABLE" not in os.environ


def test_other_tuner_and_missing_plugin_are_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("BUSBW_PLUGIN", str(tmp_path / "missing.so"))
    monkeypatch.delenv("NCCL_TUNER_PLUGIN", raising=False)
    with tuner_table.asking(pattern(RING), SoloControl()) as notes:
        assert "were not asked for" in notes[0]
    monkeypatch.setenv("NCCL_TUNER_PLUGIN", "other.so")
    with tuner_table.asking(pattern(RING), SoloControl()) as notes:
        assert "were not asked for: NCCL_TUNER_PLUGIN=other.so is set" in notes[0]


def test_one_rank_without_the_plugin_is_enough_to_ask_for_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    class Pair(SoloControl):
        def allgather(self, value):
            return [value, "busbw-native is not installed on h2"]

    library = tmp_path / "lib.so"
    library.touch()
    monkeypatch.setenv("BUSBW_PLUGIN", str(library))
    monkeypatch.delenv("NCCL_TUNER_PLUGIN", raising=False)
    with tuner_table.asking(pattern(RING), Pair()) as notes:
        assert "not installed on h2" in notes[0]
        assert "BUSBW_TUNER_TABLE" not in os.environ
