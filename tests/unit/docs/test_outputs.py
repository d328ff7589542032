"""Output in the documentation is what the command prints; `...` marks omitted lines."""

import importlib.util
import re
from pathlib import Path

import pytest

from busbw.cli.main import guarded
from busbw.host.endpoints import ETHERNET, INFINIBAND, ROCE
from busbw.link import schedule

ROOT = Path(__file__).parents[3]
COMPARE = (ROOT / "docs" / "how-to" / "compare-runs.md").read_text(encoding="utf-8")
RATES = ROOT / "benchmarks" / "compare_rates_202611" / "rates.txt"


def missing(block: list[str], real: list[str]) -> list[str]:
    """Lines of the block that the real output does not have in this order."""
    remaining_lines = iter(real)
    return [line for line in block if line != "..." and line not in remaining_lines]


def test_the_comparison_of_infiniband_and_sockets(
    recorded: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (block,) = re.findall(r"```console\n\$ busbw compare (.*?)```", COMPARE, re.DOTALL)
    words, *lines = block.splitlines()
    monkeypatch.chdir(recorded / "nccl_tests" / "h20_ib")
    assert guarded(["compare", *words.split()]) == 1
    real = capsys.readouterr().out.splitlines()
    assert missing(lines, real) == []
    assert missing(["62 cells: 62 slower"], real) != []


PATTERNS = re.findall(
    r"```console\n\$ busbw show (.*?)```",
    (ROOT / "docs" / "how-to" / "what-does-my-training-send.md").read_text(encoding="utf-8"),
    re.DOTALL,
)


@pytest.mark.parametrize("block", PATTERNS, ids=["captured", "dumped"])
def test_the_pattern_of_a_training(
    block: str, recorded: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words, *lines = block.splitlines()
    captured = ROOT / "benchmarks" / "capture_2xh100_202611"
    monkeypatch.chdir(captured if words.startswith("gpt2.jsonl") else recorded / "patterns")
    assert guarded(["show", *words.split()]) == 0
    assert capsys.readouterr().out.splitlines() == lines


def test_the_error_rates_are_those_recorded() -> None:
    text = RATES.read_text(encoding="utf-8").replace(" %", "%")
    recorded_rates = dict(re.findall(r"^(.*?) +([\d.]+%) of 1000 ", text, re.MULTILINE))
    rows = re.findall(r"^\| ([^|]*?) \| ([\d.]+%) \|$", COMPARE, re.MULTILINE)
    assert dict(rows) == recorded_rates
    assert len(rows) == 9


def test_the_error_rates_of_the_history_are_those_recorded() -> None:
    recorded_rates = (ROOT / "benchmarks" / "history_rates_202611" / "rates.txt").read_text(
        encoding="utf-8"
    )
    real = {
        line[:58].strip().replace(" %", "%"): line[58:].split()
        for line in recorded_rates.splitlines()
    }
    lines = [
        line for line in COMPARE.splitlines() if line.startswith(("| stored", "| false", "| one"))
    ]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    rows = [row for row in rows if len(row) == 8]
    assert len(rows) == 9
    assert [row for row in rows if real[row[0]] != row[1:]] == []


MODEL = (ROOT / "docs" / "how-to" / "how-fast-should-my-cluster-be.md").read_text(encoding="utf-8")
MODEL_FILES = {
    "run.txt": "nccl_tests/old/all_reduce_2x8_h100.txt",
    "app.jsonl": "pattern/training_2x8.jsonl",
}
MODEL_BLOCKS = re.findall(r"```console\n\$ busbw (\w+) (.*?)\n(.*?)```", MODEL, re.DOTALL)


@pytest.mark.parametrize(
    ("command", "words", "block"),
    MODEL_BLOCKS,
    ids=[f"{number}_{block[0]}" for number, block in enumerate(MODEL_BLOCKS)],
)
def test_outputs_of_the_model(
    command: str,
    words: str,
    block: str,
    recorded: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, source in MODEL_FILES.items():
        (tmp_path / name).write_bytes((recorded / source).read_bytes())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(f"busbw.cli.{command}.width", lambda: 80)
    guarded([command, *words.split()])
    assert capsys.readouterr().out == block


def test_there_are_outputs_of_every_command_of_the_model() -> None:
    assert {command for command, _, _ in MODEL_BLOCKS} == {"predict", "explain"}


def test_the_errors_of_the_model_are_those_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    folder = ROOT / "benchmarks"
    spec = importlib.util.spec_from_file_location("model_errors", folder / "model_errors.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    script.main()
    assert capsys.readouterr().out == (folder / "model_202611" / "errors.txt").read_text(
        encoding="utf-8"
    )


def test_the_links_of_four_hosts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "how-to" / "test-links.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```console\n\$ busbw show four_hosts.json\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(ROOT / "benchmarks" / "link_2cpu_202611")
    assert guarded(["show", "four_hosts.json"]) == 0
    assert capsys.readouterr().out == block


def test_the_pass_marks_are_those_of_the_code() -> None:
    page = (ROOT / "docs" / "how-to" / "test-links.md").read_text(encoding="utf-8")
    kinds = {"Ethernet, TCP": ETHERNET, "RoCE": ROCE, "InfiniBand": INFINIBAND}
    rows = re.findall(
        r"^\| (.*?) \| (\d+) \| ([\d.]+)% \| ([\d.]+)% \| ([\d.]+) \|$", page, re.MULTILINE
    )
    for name, mtu, data, mark, of_400 in rows:
        share = schedule.share(kinds[name], int(mtu))
        passing = schedule.mark(share, gpu=False)
        assert [data, mark, of_400] == [
            f"{100 * share:.1f}",
            f"{100 * passing:.1f}",
            f"{400 * passing:.1f}",
        ]
    assert len(rows) == 6
