"""Events from ranks to the launcher survive encoding as a line, and other lines are not taken
for events.
"""

from typing import get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.core.result import Cell, Mismatch, Result, ResultRow
from busbw.core.sweep import Sampling, SweepSpec
from busbw.measure import job
from busbw.measure.events import Ended, Event, Note, RowDone, Started, encode
from busbw.measure.job import SWEEP, SweepJob, decode_job
from busbw.measure.rank_failure import FAILED_PREFIX, Failed, failure, write_failure

SPEC = SweepSpec(collective="all_reduce")
CELL = Cell(
    1e-5, 1e9, 2e9, 3, None, 1, [1e-5, 2e-5], [[1e-5], [2e-5]], [Mismatch(1, 7, "1.5", "nan", 3)]
)
EVENTS: list[Event] = [
    Started(Result(SPEC, argv=["a b"], environment={"NCCL_X": "\u00e9\n"})),
    RowDone(ResultRow(8, 2, "half", "sum", -1, CELL, None, 20, "2026-01-01 00:00:00")),
    Note("# rank 0 sends 5 bytes"),
    Ended("2026-01-01 00:00:00", {"total": 1 << 40}),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_is_one_line_and_reads_back(event: Event) -> None:
    line = encode(event)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert line.startswith(b"{")
    assert SWEEP.decode_event(line) == event


@given(st.text())
def test_a_note_may_hold_any_text(text: str) -> None:
    line = encode(Note(text))
    assert (SWEEP.decode_event(line), line.count(b"\n")) == (Note(text), 1)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"node1:1386 NCCL INFO {}",
        b'{"event": "other"}',
        b'{"event": "row"}',
        b"[]",
        b"\xff",
    ],
)
def test_invalid_events_are_refused(line: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        SWEEP.decode_event(line)


@given(st.text(), st.text(), st.integers(0, 255), st.integers(-1, 99))
def test_a_failure_is_found_behind_a_launcher_prefix(
    message: str, hint: str, code: int, rank: int
) -> None:
    report = Failed(message, hint, code, rank, "node1")
    line = f"[1,{rank}]<stderr>: {FAILED_PREFIX}{msgspec.json.encode(report).decode()}"
    assert failure(line) == report
    assert "\n" not in line


def test_a_failure_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    report = Failed("no\nGPU", "look", 3, 1, "node1")
    write_failure(report)
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert failure(err) == report


@pytest.mark.parametrize(
    "line",
    [
        "",
        "NCCL WARN failed",
        FAILED_PREFIX,
        f"{FAILED_PREFIX}{{",
        f'{FAILED_PREFIX}{{"message": 5}}',
    ],
)
def test_other_lines_are_not_failures(line: str) -> None:
    assert failure(line) is None


TYPES = {name: kind for name, kind in get_type_hints(SweepSpec).items() if name != "collective"}
VALUES = {
    str: st.text(max_size=9),
    int: st.integers(-1, 1 << 50),
    bool: st.booleans(),
    float: st.floats(0, 1e9),
    Sampling | None: st.none() | st.builds(Sampling, fixed=st.integers(0, 99)),
}


@given(
    st.fixed_dictionaries({}, optional={name: VALUES[kind] for name, kind in TYPES.items()}),
    st.integers(0, 8),
    st.text(max_size=9),
)
def test_a_job_reaches_its_ranks_as_it_was_given(
    fields: dict[str, object], ranks: int, ideal: str
) -> None:
    sweep = msgspec.convert({"collective": "reduce", **fields}, SweepSpec)
    sweep_job = SweepJob(
        sweep=sweep,
        engine="sim",
        ranks=ranks,
        ideal=ideal,
        argv=["busbw", "run"],
        simulation={"noise": 0.5},
    )
    assert decode_job(job.encode(sweep_job)) == sweep_job


def test_a_job_of_defaults_is_a_short_argument() -> None:
    assert (
        job.encode(SweepJob(sweep=SPEC, engine="mpi"))
        == '{"kind":"sweep","engine":"mpi","sweep":{"collective":"all_reduce"}}'
    )
