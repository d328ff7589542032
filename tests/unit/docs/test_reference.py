"""docs/reference is what the tables give, and covers every row of them."""

import ast
import json
import math
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import msgspec

from busbw.core import wire
from busbw.core.finding import LOG_FINDINGS
from busbw.core.result import AnyResult, Cell
from busbw.model.findings import RULES

ROOT = Path(__file__).parents[3]


def test_the_committed_reference_is_not_stale(generate: ModuleType) -> None:
    assert generate.stale(ROOT / "docs" / "reference") == [], "run: python docs/generate.py"


def test_check_says_what_is_stale_and_exits_1() -> None:
    script = ROOT / "docs" / "generate.py"
    fine = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, timeout=60, check=False)
    assert (fine.returncode, fine.stderr) == (0, "")
    wrong = subprocess.run([sys.executable, script, "--chekc"], capture_output=True, text=True, timeout=60, check=False)
    assert wrong.returncode == 2
    assert "hint: python docs/generate.py" in wrong.stderr


def test_changed_missing_and_foreign_files_are_stale(generate: ModuleType, tmp_path: Path) -> None:
    generate.write(tmp_path)
    assert generate.stale(tmp_path) == []
    (tmp_path / "views.md").write_text("# Views\n")
    (tmp_path / "engines.md").unlink()
    (tmp_path / "old-page.md").write_text("")
    assert generate.stale(tmp_path) == ["engines.md", "old-page.md", "views.md"]
    generate.write(tmp_path)
    assert generate.stale(tmp_path) == []
    assert not (tmp_path / "old-page.md").exists()


def test_the_result_page_has_every_structure_once(generate: ModuleType) -> None:
    page = generate.pages()["result.md"]
    titles = [line.removeprefix("## ") for line in page.splitlines() if line.startswith("## ")]
    definitions = msgspec.json.schema(AnyResult)["$defs"]
    assert sorted(titles) == sorted(definitions)
    for field in definitions["Cell"]["properties"]:
        assert f"| `{field}` |" in page


def test_the_schema_has_the_words_of_figures_that_are_no_numbers(generate: ModuleType) -> None:
    figure = json.loads(generate.pages()["busbw.result-1.schema.json"])["$defs"]["Cell"]["properties"]["busbw"]
    assert figure == {"anyOf": [{"type": "number"}, {"enum": ["nan", "inf", "-inf"]}]}
    written = json.loads(wire.encode(Cell(math.nan, math.inf, -math.inf)))
    assert [written[name] for name in ("time_s", "algbw", "busbw")] == figure["anyOf"][1]["enum"]


def test_every_finding_has_a_row_in_the_reference(generate: ModuleType) -> None:
    unregistered = [
        f"{path.name}: {node.args[0].value}"
        for path in (ROOT / "src" / "busbw").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Finding" and isinstance(node.args[0], ast.Constant)
    ]
    assert unregistered == [], "ids come from RULES and LOG_FINDINGS"
    rows = [line.split("`")[1] for line in generate.pages()["findings.md"].splitlines() if line.startswith("| `")]
    assert rows == [*(rule.id for rule in RULES), *LOG_FINDINGS] and len(set(rows)) == len(rows)
