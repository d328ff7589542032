"""`busbw replay` on real ranks."""

import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from busbw.core.pattern import Header, Pattern, algbw_bytes
from busbw.pattern import pattern_lines
from busbw.pattern.collector import Arguments, CallTally
from busbw.pattern.replay.kind import ReplayResult
from busbw.pattern.replay.text import TORCH_HEADER, render_all
from busbw.report import results

pytestmark = pytest.mark.usefixtures("ranks_are_forks")

Busbw = Callable[..., str]


@pytest.fixture
def busbw(here: Callable[..., Any]) -> Busbw:
    """What a command printed: its output, or its errors if it has none and fails with `code`."""

    def call(*arguments: str, code: int = 0) -> str:
        done = here("busbw", *arguments)
        assert done.code == code, done.out + done.err
        return done.out if not code or done.out else done.err

    return call


def mixed(world: int = 4) -> Pattern:
    """Three steps on an even number of ranks and three communicators, with a root and a message."""
    tally, half = CallTally(Header(source="test", world=world), ordered=True), world // 2
    world_comm = tally.add_comm(world, members=range(world))
    even, odd = (tally.add_comm(half, members=range(first, world, 2)) for first in (0, 1))
    for _ in range(3):
        tally.add_calls(Arguments(world_comm, "all_reduce", 4096, 1024, "float"), gpu_us=10.0)
        tally.add_calls(
            Arguments(even, "all_gather", algbw_bytes("all_gather", 100, "half", half), 100, "half")
        )
        tally.add_calls(
            Arguments(
                odd, "reduce_scatter", algbw_bytes("reduce_scatter", 100, "half", half), 100, "half"
            )
        )
        tally.add_calls(Arguments(world_comm, "broadcast", 24, 3, "int64", root=world - 2))
        tally.add_calls(Arguments(odd, "reduce", 400, 100, "float", root=half - 1))
        tally.add_calls(Arguments(even, "broadcast", 40, 10, "float", root=0))
        tally.add_calls(Arguments(world_comm, "send", 512, 128, "float", rank=0, peer=world - 1))
        tally.add_calls(Arguments(world_comm, "recv", 512, 128, "float", rank=world - 1, peer=0))
    return tally.to_pattern()


@pytest.mark.torch
def test_torch_replays_as_mpi_does(
    busbw: Busbw, warm_python: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(sys, "executable", warm_python)  # of the ranks
    times_every_row(busbw, tmp_path, "torch", 2)


def test_every_row_is_timed_on_every_communicator(busbw: Busbw, tmp_path: Path):
    times_every_row(busbw, tmp_path, "mpi", 4)


def times_every_row(busbw: Busbw, tmp_path: Path, engine: str, world: int) -> None:
    recorded, file = tmp_path / "pattern.jsonl", tmp_path / "replay.json"
    recorded.write_bytes(b"".join(pattern_lines.lines(mixed(world))))
    table = busbw(
        "replay", str(recorded), "-np", str(world), "--engine", engine, "--json", str(file)
    )
    rows = json.loads(file.read_text())["replay"]["rows"]
    timed = [(row["row"]["function"], row["times"] and row["times"]["n"]) for row in rows]
    functions = (
        "all_reduce",
        "all_gather",
        "reduce_scatter",
        "broadcast",
        "reduce",
        "broadcast",
        "send",
    )
    assert timed == [*((function, 3) for function in functions), ("recv", None)]
    assert "8 calls repeat 3 times" in table
    assert "30.00 us for the same calls" in table
    assert busbw("show", str(file)) == table


def test_rows_without_an_order_weigh_their_calls(busbw: Busbw, tmp_path: Path):
    tally = CallTally(Header(source="test", world=2), ordered=False)
    comm = tally.add_comm(2)
    tally.add_calls(Arguments(comm, "all_reduce", 4096, 1024, "float"), 1000)
    tally.add_calls(Arguments(comm, "all_reduce", 4, 1, "float"), 1)
    pattern, file = tmp_path / "rows.jsonl", tmp_path / "replay.json"
    pattern.write_bytes(b"".join(pattern_lines.lines(tally.to_pattern())))
    busbw("replay", str(pattern), "-np", "2", "--engine", "mpi", "--json", str(file))
    batch, single = json.loads(file.read_text())["replay"]["rows"]
    assert batch["times"]["n"] == single["times"]["n"] == 20
    assert batch["row"]["calls"] == 1000


def test_other_number_of_ranks_needs_a_rule(busbw: Busbw, tmp_path: Path):
    tally = CallTally(Header(source="test", world=4), ordered=True)
    tally.add_calls(Arguments(tally.add_comm(4), "all_gather", 4000, 1000, "int8"))
    file = tmp_path / "pattern.jsonl"
    file.write_bytes(b"".join(pattern_lines.lines(tally.to_pattern())))
    assert "--scale bytes" in busbw("replay", str(file), "-np", "2", "--engine", "mpi", code=2)
    assert "# recorded on 4 ranks, scaled to 2 by count" in busbw(
        "replay", str(file), "-np", "2", "--engine", "mpi", "--scale", "count"
    )


def test_call_that_cannot_be_replayed_is_named_in_every_format_and_costs_exit_1(
    here, tmp_path: Path
):
    pattern = mixed(2)
    del pattern.calls[-1]
    file, saved = tmp_path / "pattern.jsonl", tmp_path / "result.json"
    file.write_bytes(b"".join(pattern_lines.lines(pattern)))
    words = ("replay", str(file), "-np", "2", "--engine", "mpi", "--format", "csv")
    done = here("busbw", *words, "--json", str(saved))
    assert done.code == 1
    lines = done.out.splitlines(keepends=True)
    assert lines[0] == TORCH_HEADER, "stdout has the lines of the CSV alone, as PyTorch's benchmark"
    first = next(csv.reader(lines[1:2], skipinitialspace=True))
    assert first[:8] == ["allreduce", "1024", "float32", "2", "?", "?", "4096", "?"]
    assert float(first[8]) > 0
    assert done.err == "warning: skipped 1 call: a send or receive without its counterpart\n"
    result = results.read(saved.read_bytes())
    assert isinstance(result, ReplayResult)
    assert "skipped  1 call: a send or receive without its counterpart\n" in render_all(result)


def test_file_that_is_no_pattern_is_named(busbw: Busbw, tmp_path: Path):
    file = tmp_path / "other.txt"
    file.write_text("not JSON\n")
    assert "other.txt" in busbw("replay", str(file), "-np", "1", "--engine", "mpi", code=2)
