"""docs/reference is what the tables give, and covers every row of them."""

import json
import math
from pathlib import Path
from types import ModuleType
from typing import Union

import msgspec
import pytest

from busbw.backends.findings import BACKENDS_FINDINGS
from busbw.core import json_codec
from busbw.core.finding import LOG_FINDINGS
from busbw.core.result import Cell
from busbw.model.findings import rules
from busbw.moe.findings import MOE_FINDINGS
from busbw.overlap.findings import OVERLAP_FINDINGS
from busbw.report import read
from busbw.report.results import structures


def test_the_committed_files_are_not_stale(
    generate: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (generate.main(["--check"]), capsys.readouterr().err) == (0, "")
    assert generate.main(["--chekc"]) == 2
    assert "hint: python docs/generate.py" in capsys.readouterr().err


def test_changed_missing_and_foreign_files_are_stale(generate: ModuleType, tmp_path: Path) -> None:
    def pages() -> dict[str, str]:
        return {name: f"# {name}\n" for name in ("engines.md", "options.md", "views.md")}

    generate.write(tmp_path, pages)
    assert generate.stale(tmp_path, pages) == []
    (tmp_path / "views.md").write_text("# Views\n")
    (tmp_path / "engines.md").unlink()
    (tmp_path / "old-page.md").write_text("")
    assert generate.stale(tmp_path, pages) == ["engines.md", "old-page.md", "views.md"]
    generate.write(tmp_path, pages)
    assert generate.stale(tmp_path, pages) == []
    assert not (tmp_path / "old-page.md").exists()


def test_the_result_page_has_every_structure_once(generate: ModuleType) -> None:
    page = generate.pages()["result.md"]
    titles = [line.removeprefix("## ") for line in page.splitlines() if line.startswith("## ")]
    definitions = msgspec.json.schema(Union[tuple(structures().values())])["$defs"]  # noqa: UP007
    assert sorted(titles) == sorted(definitions)
    for field in definitions["Cell"]["properties"]:
        assert f"| `{field}` |" in page


def test_the_schema_allows_nan_and_infinities_as_text(generate: ModuleType) -> None:
    figure = json.loads(generate.FOLDERS["src/busbw/schemas"]()["busbw.result-1.schema.json"])[
        "$defs"
    ]["Cell"]["properties"]["busbw"]
    assert figure["anyOf"] == [{"type": "number"}, {"enum": ["nan", "inf", "-inf"]}]
    document = json.loads(json_codec.encode(Cell(math.nan, math.inf, -math.inf)))
    assert [document[name] for name in ("time_s", "algbw", "busbw")] == figure["anyOf"][1]["enum"]


def test_every_finding_has_a_row_in_the_reference(generate: ModuleType, recorded: Path) -> None:
    two_tables = (recorded / "nccl_tests/old/all_reduce_2x8_h20_two_tables.txt").read_bytes()
    # within the second row
    cut = two_tables[: two_tables.index(b"float", two_tables.index(b"float") + 1)]
    # No name, one line of devices for eight ranks, milliseconds for microseconds, and a verdict.
    doubtful = (
        b"#  Rank  7 Group  0 Pid    870 on      node1 device  7 [0x0a] NVIDIA A100\n"
        b"# size count"
        b" type redop root time algbw busbw #wrong time algbw busbw #wrong\n"
        b"# (B) (elements) (ms)"
        b" (GB/s) (GB/s) (ms)\n"
        b"1048576 262144 float sum -1 41.83 25.07 43.87 0 41.83 25.07 43.87"
        b" 0\n"
        b"# Avg bus bandwidth    : 43.87 FAILED\n"
    )
    finding_ids = {
        finding.id
        for log in (two_tables, cut, doubtful)
        for finding in read.read(log, "log").findings
    }
    rows = [
        line.split("`")[1]
        for line in generate.pages()["findings.md"].splitlines()
        if line.startswith("| `")
    ]
    assert finding_ids == set(LOG_FINDINGS)
    of_kinds = [*MOE_FINDINGS, *BACKENDS_FINDINGS, *OVERLAP_FINDINGS, *LOG_FINDINGS]
    assert rows == [*(rule.id for rule in rules()), *of_kinds]
