"""The requests of a pattern to NCCL's tuner."""

import os
from pathlib import Path

import pytest

from busbw.core.errors import NoMeasurement
from busbw.core.pattern import Header, Pattern
from busbw.launch.control import SoloControl
from busbw.measure import tuner_table
from busbw.pattern.collector import Arguments, CallTally


def pattern(*rows: Arguments) -> Pattern:
    tally = CallTally(Header(), ordered=False)
    tally.add_comm(8)
    tally.add_comm(2)
    for row in rows:
        tally.add_calls(row)
    return tally.to_pattern()


RING = Arguments(0, "all_gather", 1024, algorithm="Ring", protocol="LL128")


def lines(pattern: Pattern) -> tuple[list[str], int]:
    table, left_out = tuner_table.of_pattern(pattern)
    return [rule.line() for rule in table.rules], left_out


def test_every_row_with_a_choice_is_a_rule_for_its_size():
    small = Arguments(1, "all_reduce", 8, algorithm="NVLSTree", protocol="Simple")
    assert lines(pattern(RING, small)) == (
        ["8 * all_gather 1024 1024 Ring LL128 *", "2 * all_reduce 8 8 NVLSTree Simple *"],
        0,
    )


def test_rows_that_the_tuner_cannot_distinguish_are_counted():
    other = Arguments(0, "all_gather", 1024, dtype="half", algorithm="Tree", protocol="LL")
    identical = Arguments(0, "all_gather", 1024, dtype="float", algorithm="Ring", protocol="LL128")
    exchange = Arguments(0, "alltoall", 8, algorithm="Ring", protocol="LL")
    assert lines(pattern(RING, other, identical, exchange)) == (
        ["8 * all_gather 1024 1024 Ring LL128 *"],
        2,
    )


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
        assert (
            Path(os.environ["BUSBW_TUNER_TABLE"]).read_text().splitlines()[-1]
            == "8 * all_gather 1024 1024 Ring LL128 *"
        )
    assert "BUSBW_TUNER_TABLE" not in os.environ


def test_other_tuner_and_missing_plugin_are_noted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("BUSBW_PLUGIN", str(tmp_path / "missing.so"))
    monkeypatch.delenv("NCCL_TUNER_PLUGIN", raising=False)
    with tuner_table.asking(pattern(RING), SoloControl()) as notes:
        assert "were not asked for" in notes[0]
    monkeypatch.setenv("NCCL_TUNER_PLUGIN", "other.so")
    with tuner_table.asking(pattern(RING), SoloControl()) as notes:
        assert "were not asked for: NCCL_TUNER_PLUGIN=other.so is set" in notes[0]


def test_one_rank_without_the_plugin_is_enough_to_ask_for_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
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


def test_a_table_that_a_rank_cannot_use_ends_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("BUSBW_PLUGIN", str(tmp_path / "missing.so"))
    monkeypatch.delenv("NCCL_TUNER_PLUGIN", raising=False)
    hint = "install it on all hosts, or tune without it: busbw tune ... --variables"
    for use in (
        lambda: tuner_table.loaded("text", "nccl", SoloControl()),
        lambda: tuner_table.steered("nccl", SoloControl()),
    ):
        with (
            pytest.raises(
                NoMeasurement,
                match=r"NCCL's tuner plugin cannot be used: BUSBW_PLUGIN=.*no such file",
            ) as caught,
            use(),
        ):
            pass
        assert caught.value.hint == hint
    with tuner_table.loaded("text", "sim", SoloControl()):
        assert Path(os.environ["BUSBW_TUNER_TABLE"]).read_text() == "text"
        assert "NCCL_TUNER_PLUGIN" not in os.environ
