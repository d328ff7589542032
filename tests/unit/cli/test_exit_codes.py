"""Every command that gives verdicts ends as the table of exit codes says, which the page, the help
and the manual pages are made from.
"""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import click
import moe_results
import msgspec
import pytest
from healthy import healthy
from healthy_gpu import changed
from live_job import write_job
from results import cell, result
from test_trend import machine

from busbw.backends.types import EAGER, BackendsResult, BackendsRow, BackendTime
from busbw.check.doctor import launching
from busbw.check.doctor.networks import failed, passed, warned
from busbw.check.snapshot import snapshot
from busbw.cli import ab_runs, exit_codes, lab, link, tune, watch, watch_job
from busbw.cli.checks import job
from busbw.cli.exit_codes import ExitRow, exit_text
from busbw.cli.main import cli, guarded
from busbw.core.finding import Verdict, exit_of
from busbw.core.link_samples import IB, CounterGroup, HostLink, HostSample
from busbw.core.result import Cell, Result, ResultRow
from busbw.core.sweep import SweepSpec
from busbw.job.types import JobReport
from busbw.link.types import LinkReport
from busbw.overlap.types import OverlapResult
from busbw.pattern.replay.kind import ReplayResult
from busbw.pattern.replay.types import Replay, ReplaySpec
from busbw.report import results
from busbw.stats.compare import compare

ROOT = Path(__file__).parents[3]
PATTERNS = ROOT / "tests" / "recorded" / "patterns"
FOUR_HOSTS = ROOT / "benchmarks" / "link_2cpu_202611" / "four_hosts.json"
PASS, WARN, FAIL, UNKNOWN = Verdict.PASS, Verdict.WARN, Verdict.FAIL, Verdict.UNKNOWN
CODES = {PASS: 0, WARN: 0, FAIL: 1, UNKNOWN: 3, Verdict.SKIP: 0}
ROWS = exit_codes.rows_of("busbw.cli")
Patch = pytest.MonkeyPatch
Words = list[str]

MACHINES = {
    PASS: lambda tree: tree,
    WARN: changed(3, power_limit_mw=400000),
    FAIL: changed(3, error="Unknown Error"),
    UNKNOWN: changed(3, temperature_c=None, failed={"temperature_c": "Unknown Error"}),
}
SIMULATED = "all_reduce --engine sim -np 2 -b 1M -e 1M --timing classic"


def sweep(time_us: float = 100.0, *, wrong: int = 0, size: int = 1 << 30) -> Result:
    """One size on two H200."""
    timed = cell(time_us, size / time_us / 1e3, size / time_us / 1e3, wrong)
    return result([ResultRow(size, size // 4, "float", "sum", -1, timed, timed, 20)])


def write(name: str, sweep_: Result) -> str:
    Path(name).write_text(results.render(sweep_))
    return name


def of_run(verdict: Verdict, _patch: Patch) -> Words:
    more = {
        PASS: "",
        WARN: "-b 16M -e 1G -c 0 --sim dip_bytes=134217728",
        FAIL: "--sim corrupt_rank=1",
        UNKNOWN: "--min-percent 80%",
    }
    return f"run {SIMULATED} --no-history {more[verdict]}".split()


def of_link(verdict: Verdict, patch: Patch) -> Words:
    """A test of four hosts that was recorded, and what would be another answer."""
    recorded = msgspec.json.decode(FOUR_HOSTS.read_bytes(), type=LinkReport)

    def run(tournament: link.Tournament, _limit_s: float) -> None:
        report = tournament.report
        report.hosts, report.rails, report.flows = recorded.hosts, recorded.rails, recorded.flows
        for flow in report.flows:
            flow.rate = 1e9 if flow.sender != 2 or verdict is not FAIL else 3e8
        if verdict is WARN:
            report.flows[0].moved = {"h1": {"eth0": {"carrier_down_count": 1}}}
        if verdict is UNKNOWN:
            report.hosts[3].problem = "it does not answer"

    patch.setattr(link.Tournament, "run", run)
    return ["link", "--hosts", "h1,h2,h3,h4"]


def of_predict(verdict: Verdict, _patch: Patch) -> Words:
    name = "simai_micro.txt" if verdict is PASS else "simai_of_astra_sim.txt"
    return ["predict", "--pattern", str(PATTERNS / name), "--system", "h100x8"]


def of_explain(verdict: Verdict, _patch: Patch) -> Words:
    shown = sweep({PASS: 3000.0, FAIL: 60000.0}.get(verdict, 0.0) or 1.0)
    if verdict is UNKNOWN:
        shown.rows.clear()
    return ["explain", write("run.json", shown), "--system", "h200x2"]


def of_reference(_verdict: Verdict, _patch: Patch) -> Words:
    return ["reference", "show", write("run.json", sweep(60000.0)), "--system", "h200x2"]


def judged_machine(name: str, verdict: Verdict) -> str:
    """A snapshot with a finding of this verdict."""
    Path(name).write_text(snapshot_of(verdict))
    return name


@cache
def snapshot_of(verdict: Verdict) -> str:
    tree = healthy()
    MACHINES[verdict](tree)
    return snapshot(tree.source())


def of_check(verdict: Verdict, _patch: Patch) -> Words:
    return ["check", "--from", judged_machine("host.jsonl", verdict)]


def of_check_launch(verdict: Verdict, patch: Patch) -> Words:
    stage = {
        PASS: passed("ssh", "fine"),
        WARN: warned("ssh", "slow", fix="wait"),
        FAIL: failed("ssh", "no", fix="log in"),
    }
    patch.setattr(launching, "stages", lambda _context: iter([stage[verdict]]))
    return ["check", "launch", "--hosts", "h1,h2"]


def of_check_command(verdict: Verdict, _patch: Patch) -> Words:
    lines = {
        PASS: "torchrun --nproc-per-node 2 train.py",
        WARN: "mpirun -n 2 ./all_reduce_perf -b 8 -e 1G -f 2 -g 1",
        FAIL: "NCCL_ALGO=Rong mpirun -n 2 -x NCCL_ALGO ./all_reduce_perf",
        UNKNOWN: "srun -n 2 ./all_reduce_perf -b 8 -e 1G -f 2",
    }
    return ["check", "command", "--no-machine", lines[verdict]]


def of_check_job(verdict: Verdict, patch: Patch) -> Words:
    patch.setattr(job, "examine", lambda *_: JobReport(at="", seconds=1.0, verdict=verdict))
    return ["check", "job"]


def of_check_trend(verdict: Verdict, _patch: Patch) -> Words:
    errors = {14: 170} if verdict is WARN else {}
    down = {"link_downed": 255} if verdict is FAIL else {}  # the most that it can hold
    files = [machine(Path(), "h1", 1, {}, **down), machine(Path(), "h1", 4, errors, **down)]
    if verdict is UNKNOWN:
        files.append(machine(Path(), "h2", 1, {}))
    return ["check", "trend", *files]


def of_watch(verdict: Verdict, patch: Patch) -> Words:
    port = HostLink("mlx5_0", IB, 50e9, device="mlx5_0", port="1")

    def sample(at_s: float, **values: int) -> HostSample:
        values = {"state": 4} | values
        links = () if verdict is UNKNOWN else (port,)
        groups = {(one.name, "counters"): CounterGroup(at_s, 1, values) for one in links}
        return HostSample(at_s, links, groups)

    counter = "link_downed" if verdict is FAIL else "packet_seq_err"
    first, second = sample(0.0, **{counter: 0}), sample(1.0, **{counter: int(verdict is not PASS)})
    samples = iter([first, second])
    reader = SimpleNamespace(read=lambda: next(samples), close=lambda: None)
    patch.setattr(watch, "SampleReader", lambda _links: reader)
    patch.setattr(watch, "ticks", lambda *_: [0])
    return ["watch", "--count", "1"]


def of_watch_job(verdict: Verdict, patch: Patch) -> Words:
    folder = Path("running")
    folder.mkdir(exist_ok=True)
    patch.setattr(watch_job, "ticks", lambda *_: range(watch_job.ONCE))
    if verdict is not UNKNOWN:
        gone = {"started": 1} if verdict is FAIL else {}
        write_job(folder, 4000.0 if verdict is WARN else 0.0, **gone)
    return ["watch", "job", str(folder), "--once"]


def of_show(verdict: Verdict, _patch: Patch) -> Words:
    return ["show", write("run.json", sweep(wrong=int(verdict is FAIL)))]


def of_report(verdict: Verdict, patch: Patch) -> Words:
    return ["report", of_show(verdict, patch)[1], "--output", "page.html"]


def of_compare(verdict: Verdict, _patch: Patch) -> Words:
    """Of snapshots, which can also warn; tests of its own say the same of cells."""
    return ["compare", judged_machine("a.jsonl", PASS), judged_machine("b.jsonl", verdict)]


def of_versions(verdict: Verdict, patch: Patch) -> Words:
    """Simulated GPUs stand for the two releases."""

    def in_this_process(words: Words) -> int:
        if "--dry-run" in words:
            return 0
        at = words.index("--nccl")
        slow = verdict is FAIL and words[at + 1] == "2.32.3"
        fails = verdict is UNKNOWN and words[at + 1] == "2.28.9"
        simulated = ["--sim", f"gbps={150 if slow else 300},noise=0.001"]
        more = ["--min-percent", "50%"] if fails else []
        line = ["run", *words[:at], *simulated, *more, *words[at + 2 :]]
        return guarded(line)

    patch.setattr(ab_runs, "_code", in_this_process)
    return f"versions 2.28.9 2.32.3 --rounds 4 -- {SIMULATED}".split()


def of_history_check(verdict: Verdict, _patch: Patch) -> Words:
    files = []
    for number in range(1 if verdict is UNKNOWN else 19):
        earlier = msgspec.structs.replace(sweep(100 + number / 100), start=f"2026-11-{number + 1}")
        files.append(write(f"{number}.json", earlier))
    assert guarded(["history", "add", *files, "--db", "runs"]) == 0
    slower = verdict is FAIL
    return ["history", "check", write("now.json", sweep(300.0 if slower else 100.05)), "--db=runs"]


def of_tune(verdict: Verdict, patch: Patch) -> Words:
    other = {PASS: sweep(), FAIL: sweep(200.0), UNKNOWN: sweep(size=1 << 20)}
    compared = compare([("a", sweep())], [("b", other[verdict])])
    outcome = SimpleNamespace(comparison=compared, wrong=frozenset())
    patch.setattr(tune, "check_file", lambda *_: [outcome])
    return ["tune", "--recheck", "table", "--engine", "sim", "-np", "4"]


def of_replay(verdict: Verdict, patch: Patch) -> Words:
    skipped = {} if verdict is PASS else {"ncclSend": 3}
    replayed = ReplayResult(
        replay=Replay(ReplaySpec("a.jsonl"), skipped=skipped), start="2026-11-20", complete=True
    )
    patch.setattr("busbw.cli.run_job.RunOptions.measure", lambda *_: replayed)
    return ["replay", "a.jsonl", "--no-history"]


def of_backends(verdict: Verdict, patch: Patch) -> Words:
    cell = Cell(1e-5, 1e9, 1e9, wrong=0 if verdict is PASS else 3)
    row = BackendsRow(size_bytes=1024, times=[BackendTime(backend="a", mode=EAGER, cell=cell)])
    spec = SweepSpec(collective="all_reduce")
    measured = BackendsResult(spec=spec, default="a", backends=["a"], rows=[row])
    patch.setattr("busbw.cli.run_job.RunOptions.measure", lambda *_: measured)
    return ["backends", "--no-history"]


def of_overlap(verdict: Verdict, patch: Patch) -> Words:
    measured = OverlapResult(spec=SweepSpec(collective="all_reduce"), is_wrong=verdict is FAIL)
    patch.setattr("busbw.cli.run_job.RunOptions.measure", lambda *_: measured)
    return ["overlap", "--no-history"]


def of_moe(verdict: Verdict, patch: Patch) -> Words:
    measured = moe_results.result(wrong=int(verdict is FAIL), imbalance=2.0)
    patch.setattr("busbw.cli.run_job.RunOptions.measure", lambda *_: measured)
    return ["moe", "--no-history"]


def of_capture(verdict: Verdict, _patch: Patch) -> Words:
    """A command that writes what ranks did record once: of both ranks, of one, or of none."""
    ranks = {PASS: (0, 1), FAIL: (0,), UNKNOWN: ()}[verdict]
    files = [str(PATTERNS / f"profiler_rank_{rank}.capture.gz") for rank in ranks]
    return ["capture", "--output", "run", "--", *(["cp", *files, "run"] if files else ["true"])]


def of_lab_status(verdict: Verdict, patch: Patch) -> Words:
    status = SimpleNamespace(fine=verdict is PASS)
    patch.setattr(lab.building, "all_labs", lambda: [SimpleNamespace(name="lab")])
    patch.setattr(lab.building, "status", lambda _lab: status)
    patch.setattr(lab.view, "status", lambda _labs: "")
    return ["lab", "status"]


CASES: dict[str, Callable[[Verdict, Patch], Words]] = {
    "run": of_run,
    "backends": of_backends,
    "overlap": of_overlap,
    "moe": of_moe,
    "link": of_link,
    "predict": of_predict,
    "explain": of_explain,
    "reference show": of_reference,
    "check": of_check,
    "check launch": of_check_launch,
    "check command": of_check_command,
    "check job": of_check_job,
    "check trend": of_check_trend,
    "watch": of_watch,
    "watch job": of_watch_job,
    "show": of_show,
    "report": of_report,
    "compare": of_compare,
    "versions": of_versions,
    "history check": of_history_check,
    "tune": of_tune,
    "replay": of_replay,
    "capture": of_capture,
    "lab status": of_lab_status,
}


def test_every_row_has_a_case() -> None:
    assert [row.command for row in ROWS] == list(CASES)


@pytest.mark.parametrize(
    ("row", "verdict"),
    [
        pytest.param(row, verdict, id=f"{row.command}-{verdict.value}")
        for row in ROWS
        for verdict in row.verdicts()
    ],
)
def test_a_command_ends_as_the_table_says(
    row: ExitRow, verdict: Verdict, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    words = CASES[row.command](verdict, monkeypatch)
    assert guarded(words) == row.code(verdict) == CODES[verdict]
    if row.warns:
        words = CASES[row.command](verdict, monkeypatch)
        warning = 1 if verdict is WARN else CODES[verdict]
        words.insert(len(row.command.split()), "--fail-on=warn")
        assert guarded(words) == row.code(verdict, WARN) == warning


@pytest.mark.parametrize("row", ROWS, ids=[row.command for row in ROWS])
def test_the_help_has_the_codes_and_the_option(row: ExitRow) -> None:
    command: click.Command | None = cli
    for word in row.command.split():
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), word)
    assert command is not None
    shown = command.get_help(click.Context(command, terminal_width=1000, max_content_width=1000))
    assert exit_text(row.command) in shown
    assert not re.search(r"xit code[: ]+\d", command.help or ""), "the table has them"
    assert any(parameter.name == "fail_on" for parameter in command.params) == row.warns
    differs = {verdict for verdict in CODES if row.code(verdict) != exit_of([verdict])}
    assert row.unlike or differs <= {UNKNOWN} or not row.bad


@pytest.mark.parametrize("fail_on", [FAIL, WARN])
@pytest.mark.parametrize("verdict", list(Verdict))
def test_a_verdict_has_one_code(verdict: Verdict, fail_on: Verdict) -> None:
    code = 1 if verdict is fail_on else CODES[verdict]
    assert exit_of([verdict], fail_on) == code
    assert exit_of([PASS, verdict], fail_on) == code
    assert exit_of([], fail_on) == 0


def test_a_failure_outweighs_what_is_unknown_and_that_a_warning() -> None:
    assert exit_of([WARN, UNKNOWN]) == 3
    assert exit_of([WARN, UNKNOWN], WARN) == 1
    assert exit_of([FAIL, UNKNOWN]) == 1


@pytest.mark.parametrize(
    ("more", "code"),
    [("--min-busbw 1kB/s", 0), ("--min-busbw 900000GB/s", 1), ("--fail-on nonsense", 2)],
)
def test_a_run_is_judged_by_what_is_asked_of_it(more: str, code: int) -> None:
    assert guarded(f"run {SIMULATED} --no-history {more}".split()) == code
