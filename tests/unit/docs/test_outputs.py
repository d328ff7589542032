"""Output in the documentation is what the command prints; `...` marks omitted lines."""

import importlib.util
import re
from pathlib import Path

import pytest

from busbw.host.endpoints import ETHERNET, INFINIBAND, ROCE
from busbw.link import schedule

ROOT = Path(__file__).parents[3]
COMPARE = (ROOT / "docs" / "how-to" / "compare-runs.md").read_text(encoding="utf-8")
RATES = ROOT / "benchmarks" / "compare_rates_202611" / "rates.txt"


def test_the_error_rates_are_those_recorded() -> None:
    text = RATES.read_text(encoding="utf-8").replace(" %", "%")
    recorded_rates = dict(re.findall(r"^(.*?) +([\d.]+%) of \d+ ", text, re.MULTILINE))
    rows = re.findall(r"^\| ([^|]*?) \| ([\d.]+%) \|$", COMPARE, re.MULTILINE)
    assert dict(rows) == recorded_rates
    assert len(rows) == 12


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
