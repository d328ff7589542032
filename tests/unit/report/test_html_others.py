"""The sections of files that are not sweeps: plots, tables and folded nodes instead of text."""

import json
import re
from pathlib import Path
from xml.etree.ElementTree import Element

import html5lib
import pytest
from nodes_and_watches import node_snapshots, watched_lines

from busbw.cli.main import guarded

TESTS = Path(__file__).parents[2]
BENCHMARKS = TESTS.parent / "benchmarks"
PATTERN = TESTS / "recorded/pattern/training_2x8.jsonl"


def parsed(text: bytes) -> Element:
    root: Element = html5lib.HTMLParser(strict=True).parse(text)
    return root


def words(element: Element) -> str:
    """The texts of an element and of those in it, a space between them."""
    return " ".join(" ".join(element.itertext()).split())


def named(root: Element, tag: str, kind: str = "") -> list[Element]:
    return [
        element
        for element in root.iter()
        if isinstance(element.tag, str)
        and element.tag.rpartition("}")[2] == tag
        and (not kind or kind in (element.get("class") or "").split())
    ]


def report(tmp_path: Path, *files: Path) -> tuple[int, Element]:
    """The exit code of `busbw report`, and the page."""
    target = tmp_path / "page.html"
    code = guarded(["report", *map(str, files), "--output", str(target)])
    return code, parsed(target.read_bytes())


def is_drawn(root: Element, least_bars: int) -> bool:
    """Whether a page is a table and at least so many labelled bars, without text output."""
    bars = [part for bar in named(root, "svg", "bar") for part in named(bar, "rect")]
    assert bars
    assert all(re.fullmatch(r"[\d.]+%", bar.get("width", "")) for bar in bars)
    labels = named(named(root, "ul", "bars")[0], "li")
    return len(labels) >= least_bars and len(named(root, "table")) == 1 and not named(root, "pre")


def test_a_pattern_is_bars_and_a_table_without_text_output(tmp_path: Path) -> None:
    code, root = report(tmp_path, PATTERN)
    assert code == 0
    assert is_drawn(root, least_bars=1)


def test_a_watch_is_plotted_with_its_errors(tmp_path: Path) -> None:
    file = tmp_path / "watch.jsonl"
    file.write_bytes(watched_lines())
    code, root = report(tmp_path, file)
    titles = [words(title) for title in named(root, "h4")]
    assert (code, titles) == (0, ["RoCE: sent", "RoCE: received", "RoCE: lost", "CPUs busy"])
    plot = named(root, "svg", "wide")[0]
    curves = [element for element in plot.iter() if "curve" in (element.get("class") or "")]
    assert len(curves) == 2  # before and after the port was gone
    notes = [words(mark) for mark in plot.iter() if mark.get("class") == "mark"]
    assert notes == ["09:40:30 mlx5_0: loss, 5/s <b>"]
    assert [words(line) for line in named(root, "p", "facts-line")] == [str(file)]
    assert len(named(root, "section", "only")) == 1
    text = words(root)
    assert "60 intervals on h1, from 2026-11-27 09:40:00 to 09:40:59 UTC, none missed" in text
    assert "Not drawn, as they carried nothing: eth9." in text
    findings, counters, _ = (named(table, "tr") for table in named(root, "table"))
    assert "packets are lost" in words(findings[1])
    assert words(counters[1]).startswith("mlx5_0 packet_seq_err loss 5 5 09:40:30")


@pytest.mark.parametrize(
    "broken",
    [
        watched_lines(2)[:-40],
        watched_lines(2).replace(b"2026-11-27T09:40:01.000+00:00", b"yesterday"),
    ],
)
def test_half_a_watch_is_named_and_left_out(
    tmp_path: Path, broken: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "half.jsonl").write_bytes(broken)
    (tmp_path / "whole.jsonl").write_bytes(watched_lines(2))
    code, root = report(tmp_path, tmp_path)
    assert code == 1
    assert "half.jsonl: busbw.watch/1: " in capsys.readouterr().err
    assert [words(title) for title in named(root, "h2")] == [
        f"Link counters: {tmp_path}/whole.jsonl"
    ]


def trace(rank: int) -> str:
    """What torch.profiler writes on one of two ranks of vLLM whose calls are in CUDA graphs."""
    kernel = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    common = {"ph": "X", "ts": 10.0, "dur": 5.0, "pid": rank, "tid": 7}
    events = [
        common | {"cat": "gpu_user_annotation", "name": "execute_context_1(64)_generation_0(0)"},
        common | {"cat": "kernel", "name": kernel, "args": {"device": rank, "stream": 7}},
    ]
    world = {"backend": "nccl", "rank": rank, "world_size": 2}
    return json.dumps({"schemaVersion": 1, "distributedInfo": world, "traceEvents": events})


def test_the_traces_of_all_ranks_in_a_folder_are_one_section(tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    for rank in (0, 1):
        (folder / f"rank{rank}.json").write_text(trace(rank))
    code, root = report(tmp_path, folder)
    assert code == 0
    assert [words(title) for title in named(root, "h2")] == [f"Pattern: {folder}"]
    assert "2 ranks" in words(root) and "was read" not in words(root)
    assert [words(label) for label in named(root, "span", "bar-label")] == [
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
    ]
    kernels = [words(cell) for cell in named(root, "td") if "nccl" in words(cell)]
    assert kernels == ["ncclDevKernel_A...Sum_bf16_RING_LL"]


def test_traces_of_one_rank_are_sections_of_their_own(tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    for name in ("before", "after"):
        (folder / f"{name}.json").write_text(trace(0))
    _, root = report(tmp_path, folder)
    assert [words(title) for title in named(root, "h2")] == [
        f"Pattern: {folder}/after.json",
        f"Pattern: {folder}/before.json",
    ]


@pytest.fixture(scope="module")
def many_nodes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Snapshots of twelve nodes, of which one has another kernel and one a small MTU."""
    return node_snapshots(tmp_path_factory.mktemp("nodes"))


def test_many_nodes_are_compared_and_folded(tmp_path: Path, many_nodes: Path) -> None:
    code, root = report(tmp_path, many_nodes)
    assert code == 0
    assert words(named(root, "h1")[0]) == "Check of 12 nodes"
    alike = [words(line) for line in named(named(root, "table")[0], "tr")]
    assert alike[1:] == [
        "gpu[001-006,008,010-012] 10 10 warn as usual",
        "gpu007 1 1 warn kernel: 6.8.0-<i>",
        "gpu009 1 1 warn MTU of RDMA ports: 9000 (7), 1500 (mlx5_0)",
    ]
    cards = [words(card) for card in named(named(root, "ul", "findings")[1], "li")]
    assert cards[0].startswith("warn /etc/hosts gives HOST the address 127.0.1.1 BW202")
    assert "on all nodes" in cards[0]
    assert "MTU 1500" in cards[1] and "on gpu009" in cards[1]
    folded = named(named(root, "div", "folded")[0], "details")
    assert len(folded) == 12
    assert words(named(folded[0], "summary")[0]).startswith("gpu009 warn")
    assert all(node.get("open") is None for node in folded)


def test_check_results_are_compared_without_facts(
    tmp_path: Path, many_nodes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = []
    for name in ("gpu007", "gpu009"):
        guarded(["check", "--from", str(many_nodes / f"{name}.jsonl"), "--format", "json"])
        files.append(tmp_path / f"{name}.json")
        files[-1].write_text(capsys.readouterr().out)
    _, root = report(tmp_path, *files)
    assert [words(line) for line in named(named(root, "table")[0], "tr")][1:] == [
        "gpu[007,009] 2 2 warn as usual"
    ]
    assert len(named(named(root, "div", "folded")[0], "details")) == 2
