"""The commands that give verdicts end by one rule, also with --fail-on warn."""

import json
from pathlib import Path

import pytest
from healthy import healthy
from healthy_gpu import changed

from busbw.check.snapshot import snapshot
from busbw.cli.main import guarded
from busbw.core.finding import Verdict, exit_of

MACHINES = {
    Verdict.PASS: lambda tree: tree,
    Verdict.WARN: changed(3, power_limit_mw=400000),
    Verdict.FAIL: changed(3, error="Unknown Error"),
    Verdict.UNKNOWN: changed(3, temperature_c=None, failed={"temperature_c": "Unknown Error"}),
}
CODES = {Verdict.PASS: 0, Verdict.WARN: 0, Verdict.FAIL: 1, Verdict.UNKNOWN: 3, Verdict.SKIP: 0}
SIMULATED = "run all_reduce --engine sim -n 2 -b 1M -e 1M --timing classic --no-history"


@pytest.mark.parametrize("fail_on", [Verdict.FAIL, Verdict.WARN])
@pytest.mark.parametrize("verdict", list(Verdict))
def test_a_verdict_has_one_code(verdict: Verdict, fail_on: Verdict) -> None:
    code = 1 if verdict is fail_on else CODES[verdict]
    assert exit_of([verdict], fail_on) == code
    assert exit_of([Verdict.PASS, verdict], fail_on) == code
    assert exit_of([], fail_on) == 0


def test_a_failure_outweighs_what_is_unknown_and_that_a_warning() -> None:
    assert exit_of([Verdict.WARN, Verdict.UNKNOWN]) == 3
    assert exit_of([Verdict.WARN, Verdict.UNKNOWN], Verdict.WARN) == 1
    assert exit_of([Verdict.FAIL, Verdict.UNKNOWN]) == 1


@pytest.mark.parametrize("verdict", list(MACHINES))
def test_a_check_ends_by_the_rule(verdict: Verdict, tmp_path: Path) -> None:
    tree = healthy()
    MACHINES[verdict](tree)
    file = tmp_path / "host.jsonl"
    file.write_text(snapshot(tree.source()))
    words = ["check", "--from", str(file)]
    assert guarded(words) == exit_of([verdict])
    assert guarded([*words, "--fail-on", "warn"]) == exit_of([verdict], Verdict.WARN)


@pytest.mark.parametrize(
    "line",
    [
        "mpirun -n 2 ./all_reduce_perf -b 8 -e 1G -f 2 -g 1",
        "mpirun -n 16 -H h1:8,h2:8 ./all_reduce_perf -b 8 -e 1G -f 2 -g 8",
        "mpirun $ARGS -n 16 -H h1:8,h2:8 ./all_reduce_perf -b 8 -e 1G -f 2 -g 1",
        "NCCL_ALGO=Rong mpirun -n 2 -x NCCL_ALGO ./all_reduce_perf",
    ],
)
def test_a_command_line_ends_by_the_rule(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["check", "command", "--no-machine", line]
    code = guarded([*words[:-1], "--format", "json", line])
    (judged,) = json.loads(capsys.readouterr().out)["lines"]
    found = [Verdict(finding["verdict"]) for finding in judged["findings"]]
    assert code == exit_of(found)
    assert guarded([*words[:-1], "--fail-on", "warn", line]) == exit_of(found, Verdict.WARN)


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ("", 0),
        ("--min-busbw 1kB/s", 0),
        ("--min-busbw 900000GB/s", 1),
        ("--min-percent 80%", 3),
        ("--fail-on nonsense", 2),
    ],
)
def test_a_run_ends_by_the_rule(more: str, code: int) -> None:
    assert guarded([*SIMULATED.split(), *more.split()]) == code
