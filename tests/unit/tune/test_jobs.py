"""The jobs of a tuning, and the check of a table, on ranks of the sim engine."""

import os
from pathlib import Path

import msgspec
import pytest

from busbw.core.errors import BusbwError, NoMeasurement, UsageError
from busbw.core.finding import RunFinding, Verdict
from busbw.core.result import Cell, EngineLibrary, RankDevice, Result, ResultRow, World
from busbw.core.sweep import Sampling, SweepSpec
from busbw.core.tuning import TuningChoice
from busbw.engines.sim_parameters import parse_parameters
from busbw.measure.record import RunRecord
from busbw.measure.sink import Sink
from busbw.measure.target import LaunchTarget
from busbw.tune import jobs as ab_check
from busbw.tune.jobs import MAX_FAILURES, Jobs, SearchSink, system_of
from busbw.tune.table_file import check_file, refuse_other
from busbw.tune.types import Trial, TunedSystem, TuneJob

SPEC = SweepSpec(
    collective="all_reduce",
    min_bytes=1024,
    max_bytes=4096,
    step_factor=4,
    check=0,
    sampling=Sampling(max_time_s=60),
)
HERE = TunedSystem(device="simulated GPU", ranks=4, hosts=1, nccl=0)
TREES = [TuningChoice("Tree", protocol) for protocol in ("LL", "LL128", "Simple")]
DIES = "rank 1 ended in all_reduce with {} (--sim dies_algo)"


class Heard(Sink):
    """Keeps the notes."""

    def __init__(self) -> None:
        super().__init__(RunRecord())
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def started(simulation: str = "", ranks: int = 4, **fields: object) -> Jobs:
    job = TuneJob(sweep=SPEC, engine="sim", seconds=0.02, simulation=parse_parameters(simulation))
    return Jobs(msgspec.structs.replace(job, **fields), LaunchTarget(ranks=ranks), Heard())


def table(file: Path, *lines: str, nccl: int = 0) -> Path:
    head = (
        "busbw-tuner-table 1",
        "about device simulated GPU",
        "about ranks 4",
        "about hosts 1",
        f"about nccl {nccl}",
        "about network -",
    )
    file.write_text("\n".join((*head, *lines, "")))
    return file


def test_a_search_continues_without_failed_candidates() -> None:
    jobs, trials = started("ll=2,dies_algo=0"), list[Trial]()
    jobs.search({}, trials.append)
    assert [trial.size_bytes for trial in trials] == [1024, 4096], "each size once"
    assert jobs.dropped == {tree: f"at 1K: {DIES.format(tree)}" for tree in TREES}
    assert isinstance(jobs.sink, Heard)
    assert jobs.sink.notes == [
        f"note: {tree} at 1K failed and is dropped: {DIES.format(tree)}" for tree in TREES
    ]
    assert jobs.system == HERE


@pytest.mark.parametrize(("before", "ends"), [(MAX_FAILURES - 3, False), (MAX_FAILURES - 2, True)])
def test_too_many_failures_end_a_search(before: int, ends: bool) -> None:
    jobs = started("dies_algo=0", dropped=[])
    jobs.dropped = {
        TuningChoice("Ring", "LL", channels): "at 1K: failed" for channels in range(1, before + 1)
    }
    if ends:
        with pytest.raises(NoMeasurement, match="rank 1 ended in all_reduce with Tree Simple"):
            jobs.search({}, lambda _: None)
    else:
        jobs.search({}, lambda _: None)
    assert len(jobs.dropped) == MAX_FAILURES


def test_a_failure_of_nccls_own_choice_and_a_wrong_request_end_a_search() -> None:
    with pytest.raises(NoMeasurement, match="rank 1 ended in all_reduce with Ring LL"):
        started("dies_algo=1").search({}, lambda _: None)
    jobs, judged_systems = started(), list[TunedSystem]()

    def refuse(system: TunedSystem) -> None:
        judged_systems.append(system)
        raise UsageError("not here", "go away")

    jobs.judge = refuse
    with pytest.raises(UsageError, match="not here"):
        jobs.search({}, lambda _: None)
    assert (judged_systems, jobs.system) == ([HERE], None)


def test_the_system_is_judged_once() -> None:
    jobs, judged_systems = started(), list[TunedSystem]()
    jobs.judge = judged_systems.append
    assert (
        [row.size_bytes for row in jobs.sweep({}).rows]
        == [row.size_bytes for row in jobs.own().rows]
        == [1024, 4096]
    )
    assert (judged_systems, jobs.system) == ([HERE], HERE)


def test_ranks_see_the_variables_only_while_they_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_ALGO", "Tree")
    monkeypatch.delenv("NCCL_PROTO", raising=False)
    result = started().sweep({"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL"})
    assert {name: result.environment.get(name) for name in ("NCCL_ALGO", "NCCL_PROTO")} == {
        "NCCL_ALGO": "Ring",
        "NCCL_PROTO": "LL",
    }
    assert (os.environ["NCCL_ALGO"], "NCCL_PROTO" in os.environ) == ("Tree", False)


def test_wrong_data_of_nccls_own_choice_ends_a_tuning() -> None:
    with pytest.raises(NoMeasurement, match="wrong data with NCCL's own choice") as caught:
        started("corrupt_rank=1", sweep=msgspec.structs.replace(SPEC, check=1)).own()
    assert caught.value.hint == "find the fault first: busbw run all_reduce"


def test_the_system_of_a_result_counts_hosts_once() -> None:
    devices = [
        RankDevice(rank, 1, host, 0, "", name)
        for rank, (host, name) in enumerate((("a", "H200"), ("a", "H100"), ("b", "H200")))
    ]
    result = Result(
        SPEC, world=World(devices, 3), library=EngineLibrary("nccl", 22809, network="IB")
    )
    assert system_of(result) == TunedSystem(
        device="H100 and H200", ranks=3, hosts=2, nccl=22809, network="IB"
    )


def test_a_table_of_another_system_is_refused_and_another_patch_noted() -> None:
    messages: list[str] = []
    table_system = TunedSystem(device="H200", ranks=8, hosts=1, nccl=22803)
    refuse_other(
        Path("t"), table_system, msgspec.structs.replace(table_system, nccl=22809), messages.append
    )
    assert messages == ["note: the table is for NCCL 2.28.3, here is 2.28.9"]
    with pytest.raises(UsageError) as caught:
        refuse_other(
            Path("t"),
            table_system,
            msgspec.structs.replace(table_system, ranks=4, device="H100"),
            messages.append,
        )
    assert caught.value.message == "t is for another system: GPU H200, here H100; ranks 8, here 4"
    assert (caught.value.hint, len(messages)) == (
        "tune here, into another file: busbw tune ... --output FILE",
        1,
    )


@pytest.mark.parametrize(
    ("variable", "compared"),
    [
        ("", ["broadcast", "all_reduce"]),
        ("about variable NCCL_MIN_NCHANNELS=4", ["all_gather", "broadcast", "all_reduce"]),
    ],
)
def test_each_collective_that_a_table_changes_is_compared(
    tmp_path: Path, variable: str, compared: list[str]
) -> None:
    swept = (
        f"about measured {name} float sum 1024 4096 x4"
        for name in ("all_gather", "broadcast", "all_reduce")
    )
    file = table(
        tmp_path / "t",
        *swept,
        variable,
        *(f"4 1 {name} 1024 4096 Ring Simple *" for name in ("broadcast", "all_reduce")),
    )
    jobs, messages = started("ll=4"), list[str]()
    outcomes = [
        (jobs.job.sweep.collective, outcome)
        for outcome in check_file(file, jobs, 2, messages.append)
    ]
    assert [name for name, _ in outcomes] == compared
    assert messages == ([] if variable else [f"note: {file} leaves all_gather to NCCL"])
    ratios = [cell.ratio for _, outcome in outcomes[-1:] for cell in outcome.comparison.cells]
    assert len(ratios) == 4 and all(ratio is not None and ratio < 0.9 for ratio in ratios), (
        "Simple in place of the slow LL"
    )
    assert {outcome.wrong for _, outcome in outcomes} == {frozenset()}


def test_the_check_of_a_table_for_another_system_ends_at_its_first_job(tmp_path: Path) -> None:
    file = table(
        tmp_path / "t",
        "about measured all_reduce float sum 1024 4096 x4",
        "about variable NCCL_MIN_NCHANNELS=4",
        nccl=22809,
    )
    with pytest.raises(UsageError, match=r"NCCL 2\.28, here none"):
        next(check_file(file, started(), 2, lambda _: None))


def result(
    *,
    wrong: tuple[int, ...] = (),
    time_s: float = 1e-3,
    out_of_bounds: int = 0,
    findings: tuple[RunFinding, ...] = (),
) -> Result:
    """Two sizes, of which 16 has no cell out of place."""
    rows = [
        ResultRow(
            size,
            size // 4,
            "float",
            "sum",
            -1,
            None if size == 16 else Cell(time_s, 1.0, 1.0, 0),
            Cell(time_s, 1.0, 1.0, size in wrong),
            1,
        )
        for size in (8, 16)
    ]
    return Result(
        SPEC, rows=rows, complete=True, out_of_bounds=out_of_bounds, findings=list(findings)
    )


@pytest.mark.parametrize(
    ("last", "wrong"), [({}, set()), ({"wrong": (16,)}, {16}), ({"out_of_bounds": 1}, {8, 16})]
)
def test_sides_take_turns_and_wrong_data_is_of_the_tuned_one(
    last: dict[str, object], wrong: set[int]
) -> None:
    order: list[str] = []
    tuned_result = result(
        findings=(
            RunFinding("machine", Verdict.WARN, "hot"),
            RunFinding("crowded", Verdict.PASS, "calm"),
            RunFinding("machine_xid", Verdict.FAIL, "x"),
        )
    )

    class Recorded(Jobs):
        def own(self) -> Result:
            order.append("A")
            return tuned_result

    def tuned() -> Result:
        order.append("B")
        return result(time_s=5e-4, **(last if len(order) == 6 else {}))

    jobs = Recorded(TuneJob(sweep=SPEC), LaunchTarget(), Sink(RunRecord()))
    checked = ab_check.run_in_turn(jobs, tuned, 3)
    assert "".join(order) == "ABBAAB"
    assert checked.wrong == wrong
    assert list(jobs.findings) == ["machine", "machine_xid"], (
        "what is fine, or is no condition of the machines, is left out"
    )
    sizes = ab_check.by_size(checked)
    assert {size: outcome.wrong for size, outcome in sizes.items()} == {
        8: 8 in wrong,
        16: 16 in wrong,
    }
    for outcome in sizes.values():
        assert (outcome.gain.default_s, outcome.gain.choice_s, outcome.gain.ratio) == pytest.approx(
            (1e-3, 5e-4, 0.5)
        )
        assert (outcome.shorter, outcome.slower) == (True, False)


@pytest.mark.parametrize(("time_s", "shorter"), [(1e-3, False), (0.999e-3, True)])
def test_one_round_shows_what_is_shorter_without_a_probability(
    time_s: float, shorter: bool
) -> None:
    class Recorded(Jobs):
        def own(self) -> Result:
            return result(
                findings=(RunFinding("bandwidth", Verdict.FAIL, "no condition of the machines"),)
            )

    jobs = Recorded(TuneJob(sweep=SPEC), LaunchTarget(), Sink(RunRecord()))
    sizes = ab_check.by_size(ab_check.run_in_turn(jobs, lambda: result(time_s=time_s), 1))
    assert [(size, outcome.shorter, outcome.gain.p) for size, outcome in sizes.items()] == [
        (8, shorter, 1.0),
        (16, shorter, 1.0),
    ]
    assert jobs.findings == {}


def test_a_listener_passes_messages_on() -> None:
    class Shown(Heard):
        progress = True

        def error(self, text: str) -> None:
            self.notes.append(f"error: {text}")

    progress = Shown()
    listener = SearchSink(progress, lambda _: None, lambda _: None)
    listener.note("one")
    listener.error("two")
    assert (listener.progress, progress.notes) == (True, ["one", "error: two"])


def test_a_sweep_without_a_result_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("busbw.tune.jobs.run", lambda *_: None)
    with pytest.raises(BusbwError, match="the sweep ended without a result"):
        started().sweep({})
