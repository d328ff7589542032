"""Which ranks of a job were late: its name, its cost, and when no rank was."""

import json
import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from simulated_jobs import STEP_US, SimulatedJob, data_parallel, pipelined, sharded, tensor_parallel

from busbw.core.lateness import Lateness
from busbw.core.pattern import Pattern
from busbw.pattern import html, pattern_lines, text
from busbw.pattern.lateness.judge import JobRanks, lateness
from busbw.pattern.lateness.text import text as lateness_text
from busbw.pattern.lateness.waits import StepWaits
from busbw.pattern.training import rank_files
from busbw.ui.html.element import framed, tag

STEPS = 16
KINDS = {
    "data parallel": (data_parallel, 8),
    "sharded": (sharded, 8),
    "tensor parallel": (tensor_parallel, 8),
    "pipeline": (pipelined, 4),
}


def run(kind: str, steps: int = STEPS, **slow: float) -> SimulatedJob:
    step, ranks = KINDS[kind]
    job = SimulatedJob(ranks, {int(rank[1:]): factor for rank, factor in slow.items()})
    for _ in range(steps):
        step(job, ranks)
    return job


def found(record: Pattern) -> Lateness:
    assert record.header.lateness is not None
    return record.header.lateness


@pytest.mark.parametrize("kind", ["data parallel", "sharded"])
def test_a_rank_whose_file_is_cut_off_is_not_late(kind: str) -> None:
    record = run(kind).pattern(cut=(1, 40))
    assert not found(record).late
    (note,) = (note for note in record.header.notes if "who was late" in note)
    assert note.startswith("who was late is judged until the record of rank 1 ends, after 40 of ")


@pytest.mark.parametrize("kind", ["data parallel", "sharded"])
def test_the_slow_rank_is_named_though_the_file_of_another_one_is_cut_off(kind: str) -> None:
    (late,) = found(run(kind, r2=1.3).pattern(cut=(1, 60))).late
    assert late.rank == 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("factor", [1.05, 1.3])
def test_the_slow_rank_is_named_with_what_it_needs_more(kind: str, factor: float) -> None:
    (late,) = found(run(kind, r2=factor).pattern()).late
    assert late.rank == 2
    assert late.us == pytest.approx((factor - 1) * STEP_US, rel=0.2)
    assert late.low_us < late.us < late.high_us


@pytest.mark.parametrize("kind", KINDS)
def test_no_rank_is_named_if_none_is_slow(kind: str) -> None:
    result = found(run(kind).pattern())
    assert result.late == [] and result.bound_us >= 0.01 * STEP_US
    assert lateness_text(result).startswith("no rank was late: of ")


def test_who_waited_for_the_late_rank_is_late_elsewhere_and_not_blamed() -> None:
    record = run("tensor parallel", r3=1.1).pattern()
    (late,) = found(record).late
    assert [comm.comm for comm in late.comms] == ["tp1 (ranks 2-3)", "dp1 (ranks 1,3,5,7)"]
    assert (
        "  rank 2 was late in dp0 (ranks 0,2,4,6) because it waited for rank 3 in tp1 (ranks 2-3)\n"
    ) in lateness_text(found(record))


def test_late_ranks_of_one_host_are_a_late_host() -> None:
    job = run("data parallel", r4=1.1, r5=1.1)
    result = found(job.pattern(ranks_per_host=2))
    assert {late.rank for late in result.late} == {4, 5} and result.hosts == ["h2"]
    shown = lateness_text(result)
    assert "all ranks that were read on h2 were late: 4-5\n" in shown
    assert "  next: busbw check --hosts h2\n" in shown


def test_a_rank_that_is_late_in_every_tenth_step() -> None:
    job = SimulatedJob(8, {3: 1.5})
    for step in range(60):
        data_parallel(job, 8, slow=step % 10 == 9)
    result = found(job.pattern())
    (late,) = result.late
    assert (late.rank, late.at_times.every, late.at_times.steps) == (3, 10, 6)
    assert "late at times: rank 3, by " in lateness_text(result)


def test_steps_that_one_of_two_ranks_makes_longer_are_not_long_on_all() -> None:
    job = SimulatedJob(2)
    for step in range(80):
        if step % 10 == 9:
            job.compute(0.5 * STEP_US, 1)
        data_parallel(job, 2)
    result = found(job.pattern())
    assert [late.rank for late in result.late] == [1] and result.long is None


def test_steps_that_are_long_on_all_ranks_make_no_rank_late() -> None:
    job = SimulatedJob(8)
    for step in range(60):
        data_parallel(job, 8)
        job.pause(2 * STEP_US if step % 12 == 11 else 0.0)
    result = found(job.pattern())
    assert result.late == [] and result.long.when.every == 12
    assert "outside of calls, as for a checkpoint, an evaluation or input" in lateness_text(result)


def test_a_verdict_of_some_ranks_says_which() -> None:
    job = run("data parallel", r2=1.1)
    shown = lateness_text(found(job.pattern(read=range(4))))
    assert shown.startswith("late: rank 2, by ")
    assert "only 4 of 8 ranks were compared (0-3): of the others, any may be later\n" in shown
    assert job.pattern(read=[2]).header.lateness is None


def test_steps_that_lack_calls_of_a_rank_are_left_out() -> None:
    job = run("data parallel", r2=1.1)
    job._calls = [
        (rank, call) for at, (rank, call) in enumerate(job._calls) if rank != 5 or at > 200
    ]
    result = found(job.pattern())
    assert [late.rank for late in result.late] == [2]
    assert "without a call or a time of some rank left out" in lateness_text(result)


def test_calls_without_a_step_are_compared_in_parts() -> None:
    job = SimulatedJob(4, {1: 1.2})
    for at in range(200):
        job.compute(STEP_US / 8)
        job.call(f"comm{at * at % 7}{at % 5}{at % 3}", range(4), 100.0)
    result = found(job.pattern())
    assert result.parts and [late.rank for late in result.late] == [1]
    assert "no step repeats in the calls: 20 equal parts of them are compared" in lateness_text(
        result
    )


def test_the_record_says_the_same_as_the_files() -> None:
    record = run("data parallel", r3=1.1).pattern()
    again = pattern_lines.read(pattern_lines.lines(record), "pattern.jsonl")
    assert text.table(again) == text.table(record)
    assert "\nlate: rank 3, by " in text.table(record)


def test_the_page_draws_the_steps_and_the_late_rank() -> None:
    record = run("data parallel", r3=1.1).pattern()
    page = framed("", tag("main", *html.pattern(record, "file0")), "").decode()
    assert "delay of rank 3" in page and 'id="file0-steps-wide-title"' in page


def test_a_time_that_is_no_number_gives_no_verdict() -> None:
    waits = {0: [1.0] * 8, 1: [1.0] * 7 + [math.nan]}
    assert lateness(StepWaits([10.0] * 8, waits), JobRanks(2)) is None


def test_ranks_that_waited_less_for_gradients_were_late(tmp_path: Path) -> None:
    """Of Gloo on CPUs no call has a time."""
    write_waits(tmp_path, lambda rank, step: 2000.0 if rank == 1 else 6000.0 + 10 * step)
    result = rank_files.read(tmp_path).lateness
    assert result is not None
    (late,) = result.late
    assert (late.rank, late.host) == (1, "h1") and late.us == pytest.approx(4165, abs=50)
    assert "by how long each rank waited for gradients" in lateness_text(result)
    write_waits(tmp_path, lambda rank, step: 2000.0 + (rank * 7 + step) % 5)
    assert rank_files.read(tmp_path).lateness.late == []
    # a call beside DDP's, as of a loss, in which the others wait first
    in_calls = [0.0 if rank == 1 else 4000.0 for rank in range(3)]
    write_waits(tmp_path, lambda rank, step: 2000.0 + (rank * 7 + step) % 5, in_calls=in_calls)
    assert [late.rank for late in rank_files.read(tmp_path).lateness.late] == [1]


def write_waits(
    folder: Path,
    wait_us: Callable[[int, int], float],
    steps: int = 30,
    in_calls: Sequence[float] = (),
) -> None:
    for rank in range(3):
        record = {"version": 1, "rank": rank, "world": 3, "host": f"h{rank}"}
        record["steps_us"] = [50_000.0] * steps
        record["waits_us"] = [wait_us(rank, step) for step in range(steps)]
        if in_calls:
            record["call_waits_us"] = [in_calls[rank]] * steps
        (folder / f"rank_{rank}.ddp").write_text(json.dumps(record))


def waits(late: range = range(0), steps: int = 200, seed: int = 0, us: float = 6000) -> StepWaits:
    """Three ranks, of which rank 1 waits less in some steps, by twice the noise."""
    noise = random.Random(seed)
    by_rank = {
        rank: [
            10_000 + noise.gauss(0, 3000) - (us if rank == 1 and at in late else 0)
            for at in range(steps)
        ]
        for rank in range(3)
    }
    return StepWaits([50_000 + noise.gauss(0, 500) for _ in range(steps)], by_rank)


@pytest.mark.parametrize("late", [range(160, 200), range(80, 200), range(60), range(70, 120)])
def test_a_rank_that_was_late_in_a_part_of_the_steps_is_named_with_them(late: range) -> None:
    result = lateness(waits(late), JobRanks(3), with_phases=True)
    assert result is not None
    (found_late,) = result.late
    assert found_late.rank == 1 and found_late.at_times is not None
    assert found_late.at_times.first == pytest.approx(max(2, late.start), abs=3)  # two are left out
    assert found_late.at_times.last == pytest.approx(late.stop - 1, abs=3)
    assert found_late.at_times.us == pytest.approx(6000, rel=0.2)
    when = found_late.at_times
    until = "on" if late.stop == 200 else f"to {when.last + 1}"
    assert f" of 198 steps, from step {when.first + 1} {until}; " in lateness_text(result)


def test_a_rank_that_is_late_in_all_steps_has_no_phase() -> None:
    result = lateness(waits(range(200)), JobRanks(3), with_phases=True)
    assert result is not None and result.late[0].at_times is None


@pytest.mark.parametrize("steps", [12, 40, 200])
def test_looking_for_phases_names_no_more_ranks_by_chance(steps: int) -> None:
    named = 0
    for seed in range(300):
        result = lateness(waits(steps=steps, seed=seed), JobRanks(3), with_phases=True)
        named += bool(result and any(late.at_times for late in result.late))
    assert named <= 0.01 * 300
