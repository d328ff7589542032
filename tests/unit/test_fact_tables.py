"""Every row of every table of published facts, and the comparison of Xids with NVIDIA's catalog."""

import importlib.util
from dataclasses import fields
from datetime import date
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from busbw.check.nccl.variables import NcclVariable
from busbw.check.nic.cards import Board
from busbw.core.counters import Counter
from busbw.core.kernel_rule import read_rules
from busbw.core.kernel_rules import SUBJECTS
from busbw.core.secret_arguments import SecretArguments, SecretOptions
from busbw.core.secret_names import SecretForm, SecretWords
from busbw.core.sxids import SxidRow
from busbw.core.table_file import cells, nested, rows
from busbw.core.telemetry import ClockReason
from busbw.core.watch_counters import WatchLevel
from busbw.core.xids import XidRow
from busbw.model.clouds import Instance
from busbw.model.gpu_hosts import UsualHost
from busbw.model.hardware import BridgedGpus, Generation, PcieGpu, Xgmi, generations, pcie_gpus
from busbw.model.nccl.constants import Release, releases
from busbw.model.networks import NetworkModel, networks
from busbw.watch.metric_names import MetricName

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "busbw"
# The type of a table's rows, the columns that tell them apart, and those that hold several words.
TABLES = {
    "check/nic/boards.csv": (Board, ("psid",), ()),
    "check/nccl/variables.csv": (NcclVariable, ("name",), ()),
    "core/clock_reasons.csv": (ClockReason, ("bit",), ()),
    "core/counters.csv": (Counter, ("name",), ()),
    "core/levels.csv": (WatchLevel, ("name",), ()),
    "core/sxids.csv": (SxidRow, ("number",), ()),
    "core/watch_counters.csv": (Counter, ("name",), ()),
    "core/xids.csv": (XidRow, ("number",), ()),
    "model/bridged_gpus.csv": (BridgedGpus, ("name",), ()),
    "model/clouds.csv": (Instance, ("name",), ()),
    "model/gpu_hosts.csv": (UsualHost, ("word",), ()),
    "model/gpus.csv": (Generation, ("names",), ("names",)),
    "model/networks.csv": (NetworkModel, ("name",), ()),
    "model/pcie_gpus.csv": (PcieGpu, ("name",), ()),
    "model/xgmi_gpus.csv": (Xgmi, ("gcn",), ()),
    "watch/metric_names.csv": (MetricName, ("group", "counter"), ()),
}
# The service or program of a row is its source.
OF_SECRETS = {
    "core/secret_arguments.csv": (SecretArguments, ("command",), ("command",)),
    "core/secret_forms.csv": (SecretForm, ("pattern",), ("triggers",)),
    "core/secret_options.csv": (SecretOptions, ("programs",), ("programs", "options")),
    "core/secret_words.csv": (SecretWords, ("use",), ("words",)),
}
OF_COMMANDS = "cli/exit_codes.csv"  # busbw's own: tests/unit/cli/test_exit_codes.py
RELEASES = "model/nccl/releases.toml"
KERNEL_RULES = [f"core/kernel_rules_{subject}.toml" for subject in SUBJECTS]


def test_no_table_is_left_out() -> None:
    files = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.csv")}
    assert files == TABLES.keys() | OF_SECRETS.keys() | {OF_COMMANDS}
    nested_tables = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.toml")}
    assert nested_tables == {RELEASES, *KERNEL_RULES}


@pytest.mark.parametrize("path", [*TABLES, *OF_SECRETS])
def test_rows_are_complete_and_told_apart(path: str) -> None:
    row_type, key, lists = (TABLES | OF_SECRETS)[path]
    table = cells(path)
    names = {field.name for field in msgspec.inspect.type_info(row_type).fields}
    names |= {"source", "date"} if path in TABLES else set()
    for row in table:
        assert set(row) <= names, "a column that is not a field, or a row with too many cells"
        assert all(value is not None and value == value.strip() for value in row.values()), row
        if path in TABLES:
            assert row["source"]
            assert date.fromisoformat(row["date"]).year >= 2025
    assert len({tuple(row[column] for column in key) for row in table}) == len(table)
    assert len(rows(path, row_type, lists)) == len(table)


def test_tables_agree_with_each_other() -> None:
    gpus = {name.lower() for row in generations() for name in row.names} | pcie_gpus().keys()
    hosts = {row["word"] for row in cells("model/gpu_hosts.csv")}
    assert hosts <= gpus
    assert {row["word"] for row in cells("model/clouds.csv")} <= hosts
    assert {row["network"] for row in cells("model/clouds.csv")} <= networks().keys()
    assert {row["family"] for row in cells("model/bridged_gpus.csv")} <= gpus
    sxids = {row["number"] for row in cells("core/sxids.csv")}
    assert {row["ended_by"] for row in cells("core/sxids.csv")} - {""} <= sxids


def test_releases_of_nccl_are_in_order_and_have_only_fields() -> None:
    names = {field.name for field in fields(Release)} | {"date"}
    for row in nested(RELEASES)["release"]:
        assert row.keys() <= names
        assert row["source"]
        assert date.fromisoformat(row["date"])
    firsts = [row.first for row in releases()]
    assert firsts == sorted(set(firsts))


@pytest.mark.parametrize("path", KERNEL_RULES)
def test_rules_of_the_kernel_log_are_complete(path: str) -> None:
    for given, rule in zip(nested(path)["rule"], read_rules(path), strict=True):
        assert rule.row.sources
        assert date.fromisoformat(given["date"])
        assert all(given[key] for key in ("title", "why", "fix", "stays"))
        for sign in rule.signs:
            words = dict.fromkeys(sign.pattern.groupindex, "1")
            assert "{" not in sign.says.format(**words)
        parts = ("subject" in sign.pattern.groupindex for sign in rule.signs)
        assert "{subject}" not in rule.row.fix or any(parts)


@pytest.fixture
def compare() -> ModuleType:
    spec = importlib.util.spec_from_file_location("compare", ROOT / "tools" / "compare_xids.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PAGE = """<p>Xids</p><table><tr><th>Unit</th></tr><tr><td>RLW</td></tr></table>
<table><thead><tr><th>Type (XID)</th><th><p>Code</p></th><th>Mnemonic</th><th>Description</th>
<th>Resolution Bucket (Immediate Action)</th><th>Resolution Bucket (Investigatory Action)</th></tr>
<tr><td>XID</td><td>1</td><td>A_B</td><td>Unused</td><td>CONTACT_SUPPORT</td><td>N/A; Unused</td></tr>
<tr><td>XID</td><td><p>13</p></td><td>A_ONE /\n A_TWO</td><td>Exception</td>
<td>RESTART_APP</td><td>WORKFLOW_XID_13</td></tr>
<tr><td>XID</td><td>154</td><td>CHANGED</td><td>Action</td><td>XID_154</td><td>N/A</td></tr>
<tr><td>XID</td><td>200</td><td>NEW</td><td>News</td><td>IGNORE</td><td></td></tr></table>"""


def test_a_saved_catalog_is_compared(compare: ModuleType, tmp_path: Path) -> None:
    saved = tmp_path / "catalog.html"
    saved.write_text(PAGE)
    catalog = compare.read(saved)
    assert catalog.keys() == {13, 154, 200}

    def ours(number: int, mnemonic: str, action: str, investigate: str = "") -> dict[str, str]:
        values = (str(number), mnemonic, action, investigate, compare.SOURCE)
        return dict(zip(("number", *compare.COMPARED, "source"), values, strict=True))

    same = [
        ours(13, "A_TWO", "RESTART_APP", "WORKFLOW_XID_13"),
        ours(154, "CHANGED", "XID_154"),
        ours(200, "NEW", "IGNORE"),
    ]
    assert compare.differences(catalog, same) == []
    changed = [same[0] | {"action": "RESET_GPU"}, same[1], ours(79, "GONE", "RESTART_BM")]
    assert compare.differences(catalog, changed) == [
        "79: not in the catalog",
        "13: action is RESET_GPU, in the catalog RESTART_APP",
        "200: not in core/xids.csv: 200, NEW, News, IGNORE, ",
    ]
