"""Output that stands in the documentation is what the command prints; `...` stands for lines left out."""

import re
from pathlib import Path

import pytest

from busbw.cli.main import guarded

ROOT = Path(__file__).parents[3]
COMPARE = (ROOT / "docs" / "how-to" / "compare-runs.md").read_text(encoding="utf-8")
RATES = ROOT / "benchmarks" / "compare_rates_202611" / "rates.txt"


def missing(block: list[str], real: list[str]) -> list[str]:
    """Lines of the block that the real output does not have in this order."""
    rest = iter(real)
    return [line for line in block if line != "..." and line not in rest]


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


def test_the_error_rates_are_those_recorded() -> None:
    recorded_rates = dict(re.findall(r"^(.*?) +([\d.]+ %) of 1000 ", RATES.read_text(encoding="utf-8"), re.MULTILINE))
    rows = re.findall(r"^\| (.*?) \| ([\d.]+ %) \|$", COMPARE, re.MULTILINE)
    assert dict(rows) == recorded_rates
    assert len(rows) == 9
