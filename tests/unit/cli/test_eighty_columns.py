"""Output to a pipe fits 80 columns; --wide prints all of it."""

import re
from pathlib import Path

import pytest

from busbw.cli.main import guarded
from busbw.cli.terminal import COLUMNS

ROOT = Path(__file__).parents[3]
RECORDS = ROOT / "benchmarks"
Captured = pytest.CaptureFixture[str]

# One of each kind, those with the widest tables.
FILES = (
    "visits_202611/shown.json",
    "capture_2xh100_202611/gpt2.jsonl",
    "link_2cpu_202611/four_hosts.json",
    "offload_1xh100_202611/train_8b.json",
    "plan_2xh200_202611/gpt2.json",
    "train_2xh200_202611/25g_gpt2.json",
    "tune_2xh100_202611/factor_2_all_reduce.json",
)
COMMANDS = (
    "check --list",
    "check --all --from tests/hosts/h200x2-recorded.jsonl",
    "check --from tests/hosts/no-nic.jsonl --from tests/hosts/vm-veth.jsonl",
    "check command --no-machine mpirun -np 16 -H h1:8:h2:8 all_reduce_perf -g 8",
    "check engines",
    "check explain BW070",
    "plan gpt --params 8B --memory-plan --gpu-memory 80G --host-memory 500G --tflops 400"
    " --pcie 50GB/s --adam-rate 2",
    "predict --system h100x8 --nodes 1,2,12500",
    "predict alltoallv --system h100x8 --counts zipf:1",
    *(f"show benchmarks/{file}" for file in FILES),
)
# A command or a line of Python to copy, and a path or name without a space, are not broken.
COPIED = re.compile(r" *(busbw |optimizer = |\S+$)")
# Examples of nccl-tests' text and findings by the line are no tables, and the history's are of any
# width.
OTHER_GOLDEN_FILES = re.compile(r"nccl_tests_.*|checks|history\.txt")


@pytest.mark.parametrize("words", COMMANDS)
def test_output_to_a_pipe_fits(
    words: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    guarded(words.split())
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 3
    too_wide = [line for line in lines if len(line) > COLUMNS and not COPIED.match(line)]
    assert too_wide == []


def test_wide_prints_what_was_left_out(capsys: Captured) -> None:
    file = str(RECORDS / FILES[0])
    assert guarded(["show", file]) == 0
    narrow = capsys.readouterr().out
    assert guarded(["show", file, "--wide"]) == 0
    wide = capsys.readouterr().out
    assert "launch" in wide and "launch" not in narrow
    assert max(map(len, narrow.splitlines())) <= COLUMNS < max(map(len, wide.splitlines()))


def test_every_golden_table_fits() -> None:
    files = [
        path
        for folder in ("tests/golden", "accel/tests/golden")
        for path in (ROOT / folder).rglob("*.txt")
        if not OTHER_GOLDEN_FILES.fullmatch(
            path.parent.name if path.parent.name == "checks" else path.name
        )
    ]
    assert len(files) >= 5
    too_wide = [
        (path.name, line)
        for path in files
        for line in path.read_text(encoding="utf-8").splitlines()
        if len(line) > COLUMNS
    ]
    assert too_wide == []
