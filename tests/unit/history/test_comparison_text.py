"""A comparison as text, Markdown and JSON."""

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from busbw.cli.terminal import COLUMNS
from busbw.core import json_codec
from busbw.core.cells import CellKey
from busbw.core.comparison import SCHEMA, ComparedCell, ComparedSide, Comparison, ComparisonVerdict
from busbw.core.result import Result
from busbw.history import comparison_text
from busbw.measure.formats.markdown import plain
from busbw.report.read import read
from busbw.stats.compare import compare

IB = "nccl_tests/h20_ib"


def side(*files: str) -> ComparedSide:
    return ComparedSide(
        list(files), len(files), ["h1", "h2"], {"NVIDIA H20": 16}, "nccl", 22809, 16
    )


def cell(
    size: int,
    verdict: ComparisonVerdict,
    ratio: float | None = 1.0,
    placement: str = "out_of_place",
    dtype: str = "float",
) -> ComparedCell:
    ends = (None, None) if ratio is None else (ratio - 0.01, ratio + 0.01)
    times_s = {"a_s": 1e-3, "b_s": 1e-3 * (ratio or 1)}
    key = CellKey(dtype, "sum", -1, size, placement)
    return ComparedCell(
        key=key,
        verdict=verdict,
        ratio=ratio,
        low=ends[0],
        high=ends[1],
        p=0.01,
        by="samples",
        **times_s,
    )


def make_comparison(*cells: ComparedCell, notes: tuple[str, ...] = ()) -> Comparison:
    return Comparison(
        SCHEMA,
        "all_reduce",
        0.05,
        0.95,
        side("a.json"),
        side("b_1.json", "b_2.json"),
        list(cells),
        None,
        list(notes),
    )


def test_infiniband_beside_sockets_of_two_hosts(
    recorded: Path, golden: Callable[[str, str], None]
) -> None:
    runs = [
        [(name, read((recorded / IB / name).read_bytes(), name))]
        for name in ("ib.txt", "sockets.txt")
    ]
    compared = compare(*runs)
    golden("comparison/h20_ib.txt", comparison_text.text(compared, COLUMNS))
    golden("comparison/h20_ib.md", comparison_text.markdown(compared))


def test_junit_has_a_failure_for_what_makes_the_exit_code_1(
    golden: Callable[[str, str], None],
) -> None:
    cells = [
        cell(1024, ComparisonVerdict.SLOWER, 1.2),
        cell(1024, ComparisonVerdict.SLOWER, 1.02, "in_place"),
        cell(2048, ComparisonVerdict.SAME),
        cell(4096, ComparisonVerdict.AMBIGUOUS),
        cell(8192, ComparisonVerdict.UNMATCHED, None),
    ]
    golden("junit/compare.xml", comparison_text.junit(make_comparison(*cells)))
    assert 'errors="1"' in comparison_text.junit(make_comparison(cells[-1])), "exit code 3"


def test_the_first_line_counts_slower_cells_and_names_the_worst() -> None:
    slower = make_comparison(
        cell(8, ComparisonVerdict.SAME),
        cell(1 << 20, ComparisonVerdict.SLOWER, 1.081, "in_place"),
        cell(4096, ComparisonVerdict.SLOWER, 1.03),
    )
    assert (
        comparison_text.summary(slower)
        == "2 of 3 cells slower, largest 1.081x at 1 MiB in place; 1 of them by more than the"
        " tolerance of 5 %"
    )
    assert comparison_text.summary(
        make_comparison(cell(8, ComparisonVerdict.SLOWER, 1.03))
    ).endswith("; none by more than the tolerance of 5 %")
    assert (
        comparison_text.summary(
            make_comparison(
                cell(8, ComparisonVerdict.SAME), cell(16, ComparisonVerdict.FASTER, 0.9)
            )
        )
        == "none of 2 cells slower, 1 faster"
    )
    assert (
        comparison_text.summary(make_comparison(cell(8, ComparisonVerdict.AMBIGUOUS)))
        == "no verdict on any of 1 cell"
    )
    assert comparison_text.summary(make_comparison()) == "no verdict on any of 0 cells"


def test_empty_columns_are_left_out() -> None:
    titles = [
        column.title
        for column in comparison_text.columns(
            make_comparison(cell(8, ComparisonVerdict.SAME), cell(16, ComparisonVerdict.SAME))
        )
    ]
    assert titles == ["size", "placement", "time A", "time B", "B / A", "interval", "verdict"]
    mixed = [
        column.title
        for column in comparison_text.columns(
            make_comparison(
                cell(8, ComparisonVerdict.SAME), cell(8, ComparisonVerdict.SAME, dtype="half")
            )
        )
    ]
    assert "type" in mixed
    without = [
        column.title
        for column in comparison_text.columns(
            make_comparison(cell(8, ComparisonVerdict.UNMATCHED, None))
        )
    ]
    assert "interval" not in without


def test_text_names_machines_and_ends_with_counts_and_notes() -> None:
    lines = comparison_text.text(
        make_comparison(cell(8, ComparisonVerdict.SAME), notes=("ranks: 2 in A, 4 in B",))
    ).splitlines()
    assert lines[:3] == [
        "AllReduce",
        "A  a.json: 16 x NVIDIA H20 on 2 hosts, nccl engine, NCCL 2.28.9",
        (
            "B  2 files, the first b_1.json (2 runs): 16 x NVIDIA H20 on 2 hosts, nccl engine, NCCL"
            " 2.28.9"
        ),
    ]
    assert lines[7] == " 8 B  out of place  1.000 ms  1.000 ms  1.000x  0.990 to 1.010  same"
    assert lines[9] == "1 cell: 0 slower, 0 faster, 1 same, 0 ambiguous, 0 unmatched"
    assert lines[-1] == "note: ranks: 2 in A, 4 in B"


def test_markdown_folds_unchanged_cells_and_escapes_names() -> None:
    compared = msgspec.structs.replace(
        make_comparison(cell(8, ComparisonVerdict.SAME), cell(16, ComparisonVerdict.SLOWER, 1.2)),
        a=side("a|<b>.json"),
    )
    text = comparison_text.markdown(compared)
    above, folded = text.split("<details>")
    assert "| **slower** |" in above
    assert "| same |" not in above
    assert "| same |" in folded
    assert "a\\|&lt;b>.json" in text


def test_json_reads_back_with_its_schema_and_nothing_lost() -> None:
    compared = make_comparison(
        cell(8, ComparisonVerdict.SAME),
        cell(16, ComparisonVerdict.UNMATCHED, None),
        cell(32, ComparisonVerdict.SLOWER, float("inf")),
    )
    text = comparison_text.json(compared)
    assert json.loads(text)["schema"] == "busbw.comparison/1"
    assert json.loads(text)["cells"][0]["verdict"] == "same"
    assert json_codec.decode(text, Comparison) == compared


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (1.0314, "1.031x"),
        (9.99951, "10.0x"),
        (53.2, "53.2x"),
        (8300.4, "8300x"),
        (123456.0, "123500x"),
        (0.5004, "0.500x"),
        (0.00012345, "0.00012x"),
        (0.0531, "0.053x"),
        (0.0, "<0.000000001x"),
        (None, "-"),
        (float("nan"), "-"),
    ],
)
def test_ratios_as_words(ratio: float | None, text: str) -> None:
    assert comparison_text.ratio_text(ratio) == text


def test_every_kind_of_result_can_be_held_against_itself(make: Callable[..., Result]) -> None:
    for result in (make(), make([]), make(world=msgspec.structs.replace(make().world, devices=[]))):
        compared = compare([("a", result)], [("b", result)])
        assert (
            len(compared.of(ComparisonVerdict.SAME)) == len(compared.cells) == 2 * len(result.rows)
        )
        assert comparison_text.text(compared)
        assert comparison_text.markdown(compared)


def test_different_ranks_devices_or_engines_cause_a_warning(make: Callable[..., Result]) -> None:
    cpus = [
        msgspec.structs.replace(device, name="EPYC", host="cpu1")
        for device in make().world.devices * 8
    ]
    other = make(
        world=msgspec.structs.replace(make().world, devices=cpus),
        library=msgspec.structs.replace(make().library, engine="mpi"),
    )
    compared = compare([("a", make())], [("b", other)])
    (warning,) = comparison_text.warnings(compared)
    assert not any("ranks" in note for note in compared.notes), "once is enough"
    for part in ("nccl engine / mpi engine", "2 ranks / 16 ranks", "NVIDIA H200 / EPYC"):
        assert part in warning
    assert f"\nwarning: {warning}\n" in comparison_text.text(compared)
    assert f"**Warning:** {plain(warning)}" in comparison_text.markdown(compared)
    assert json.loads(comparison_text.json(compared))["warnings"] == [warning]
    assert comparison_text.warnings(compare([("a", make())], [("b", make())])) == []


def test_all_formats_share_verdicts_and_confidence() -> None:
    compared = make_comparison(
        cell(8, ComparisonVerdict.SAME),
        cell(16, ComparisonVerdict.SLOWER, 1.2),
        cell(32, ComparisonVerdict.AMBIGUOUS),
        notes=("few samples",),
    )
    document = json.loads(comparison_text.json(compared))
    assert [document["summary"], *document["closing"]] == [
        comparison_text.summary(compared),
        *comparison_text.closing(compared),
    ]
    for text in (comparison_text.text(compared), comparison_text.markdown(compared)):
        for sentence in (comparison_text.summary(compared), *comparison_text.closing(compared)):
            assert sentence in text
        assert [text.count(verdict) >= 1 for verdict in ("same", "slower", "ambiguous")] == [
            True
        ] * 3
