"""The report in a real browser: nothing is cut, nothing overlaps, and text can be read, in a
phone's window and in a wide one.
"""

import html
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from nodes_and_watches import node_snapshots, watched_lines

from busbw.check.types import CheckReport, ClusterReport
from busbw.cli.main import guarded
from busbw.core.finding import Verdict
from busbw.report.page import page
from busbw.report.read import read
from busbw.stats.compare import compare

CHROMIUM = next(
    (
        path
        for name in ("chromium", "chromium-browser", "google-chrome")
        if (path := shutil.which(name))
    ),
    None,
)
NO_BROWSER = "no chromium: make test-tools"
BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "all_reduce_2xh200_202611"
WINDOWS = {"phone": (390, 844), "tablet": (768, 1024), "wide": (1440, 900)}
PATTERN = str(Path(__file__).parents[2] / "recorded/pattern/training_2x8.jsonl")
ANSWERS = (  # command lines whose output a report shows
    ["predict", "all_reduce", "--system", "h100x8", "--nics", "8x400G", "--nodes", "2,4,8"],
    ["predict", "--pattern", PATTERN, "--system", "h100x8", "--nics", "8x400G"],
    ["explain", str(BENCHMARK / "run_1.json")],
    ["reference", "show", str(BENCHMARK / "run_1.json")],
    ["compare", str(BENCHMARK / "run_1.json"), str(BENCHMARK / "run_2.json")],
)
LOGARITHMIC = "logarithmic"  # the page whose switch is on
Layout = dict[str, Any]
NAMES = ("run_1.json", "compat_1.json", "run_2.json")
# Each page stands in a frame of its window's size, which its media queries see; the script is of
# the frames' owner.
FRAME = '<iframe width="%d" height="%d" style="border:0;color-scheme:%s" srcdoc="%s"></iframe>'
MEASURE = """<script>
const box = (element) => { const r = element.getBoundingClientRect();
  return {words: element.textContent, left: r.left, right: r.right, top: r.top, bottom: r.bottom, height: r.height}; };
const look = (frame) => {
  const page = frame.contentDocument;
  const plots = [...page.querySelectorAll("svg.plot")].filter((plot) => plot.getBoundingClientRect().width > 0);
  return {
    width: page.documentElement.scrollWidth,
    window: page.documentElement.clientWidth,
    background: page.defaultView.getComputedStyle(page.body).backgroundColor,
    scrolling: [...page.querySelectorAll(".scroll")].filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.ariaLabel),
    plots: plots.map((plot) => ({...box(plot), texts: [...plot.querySelectorAll("text")].map(box)})),
  };
};
onload = () => { document.body.textContent = JSON.stringify([...document.querySelectorAll("iframe")].map(look)); };
</script>"""


def measure_pages(
    folder: Path, pages: list[tuple[bytes, tuple[int, int], str]]
) -> list[dict[str, Any]]:
    """The layout of each page in its window and colour scheme by the browser: widths, and the boxes
    of plots and their texts in pixels.
    """
    assert CHROMIUM is not None
    frames = "".join(
        FRAME % (*window, scheme, html.escape(text.decode())) for text, window, scheme in pages
    )
    file = folder / "frames.html"
    file.write_text(
        f'<!DOCTYPE html><meta charset="utf-8"><body>{frames}{MEASURE}', encoding="utf-8"
    )
    command = [
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={folder}",
        "--dump-dom",
        file.as_uri(),
    ]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    measurements: list[dict[str, Any]] = json.loads(
        html.unescape(result.stdout.partition("<body>")[2].rpartition("</body>")[0])
    )
    return measurements


@pytest.fixture(scope="module")
def layouts(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[int | str, str], Layout]:
    """Pages of one recorded run with its bounds, once with the switch on, and of two and three runs
    compared, in each window; the first in the dark too.
    """
    if CHROMIUM is None:
        pytest.skip(NO_BROWSER)
    named_results = [(name, read((BENCHMARK / name).read_bytes(), name)) for name in NAMES]
    comparisons = {
        index: compare(named_results[:1], named_results[index : index + 1]) for index in (1, 2)
    }
    pages = {
        1: page(named_results[:1]),
        LOGARITHMIC: page(named_results[:1]).replace(
            b'type="checkbox"', b'type="checkbox" checked'
        ),
        2: page(named_results[:2], {1: comparisons[1]}),
        3: page(named_results, comparisons),
    }
    views = [(count, window) for count in pages for window in WINDOWS]
    dark = (pages[1], WINDOWS["phone"], "dark")
    measurements = measure_pages(
        tmp_path_factory.mktemp("browser"),
        [*((pages[count], WINDOWS[window], "light") for count, window in views), dark],
    )
    return dict(zip([*views, (1, "dark")], measurements, strict=True))


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("count", [1, LOGARITHMIC, 2, 3])
def test_the_page_fits_its_window_and_its_plots_can_be_read(
    layouts: dict[tuple[int | str, str], Layout], count: int | str, window: str
) -> None:
    layout = layouts[count, window]
    assert layout["width"] == layout["window"] <= WINDOWS[window][0]
    assert [
        name
        for name in layout["scrolling"]
        if window != "tablet" and (count, name) != (3, "Comparison")
    ] == []
    assert len(layout["plots"]) == (2 if count in (1, LOGARITHMIC) else 3)
    ticks = [text["words"] for text in layout["plots"][0]["texts"]]
    assert ("400" in ticks, "0.001" in ticks) == (count != LOGARITHMIC, count == LOGARITHMIC)
    for plot in layout["plots"]:
        texts = plot["texts"]
        assert len(texts) > 8
        assert [text["words"] for text in texts if text["height"] < 10] == []
        assert [
            text["words"]
            for text in texts
            if text["left"] < plot["left"] - 1 or text["right"] > plot["right"] + 1
        ] == []
        assert [
            text["words"]
            for text in texts
            if text["top"] < plot["top"] or text["bottom"] > plot["bottom"] + 1
        ] == []
        assert overlapping(texts) == []


@pytest.mark.skipif(CHROMIUM is None, reason=NO_BROWSER)
def test_pages_of_other_files_fit_their_windows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    watch = tmp_path / "watch.jsonl"
    watch.write_bytes(watched_lines())
    nodes = tmp_path / "nodes"
    nodes.mkdir()
    node_snapshots(nodes, 9)
    checked = tmp_path / "check.json"
    long = CheckReport(host="h" * 200, verdict=Verdict.FAIL, source="s" * 200)
    cluster = ClusterReport(differences=[], nodes=[long, long], silent={"x" * 200: "y" * 200})
    checked.write_bytes(msgspec.json.encode(cluster))
    benchmarks = BENCHMARK.parent
    files = [
        watch,
        nodes,
        checked,
        benchmarks / "plan_2xh200_202611/gpt2.json",
        benchmarks / "offload_1xh100_202611/plan_8b.json",
        benchmarks / "offload_1xh100_202611/train_3b.json",
        benchmarks / "train_2xh200_202611/25g_gpt2.json",
        benchmarks / "tune_2xh100_202611/all_reduce.json",
        benchmarks / "capture_2xh100_202611/gpt2.jsonl",
    ]
    for number, words in enumerate(ANSWERS):
        # 1: a row has no time; 3: runs are too few to compare
        assert guarded([*words, "--format", "json"]) in (0, 1, 3)
        files.append(tmp_path / f"answer{number}.json")
        files[-1].write_text(capsys.readouterr().out)
    views = []
    for file in files:
        target = tmp_path / "page.html"
        assert guarded(["report", str(file), "--output", str(target)]) == 0
        unfolded = target.read_bytes().replace(b"<details>", b"<details open>")
        views += [(unfolded, WINDOWS[window], "light") for window in ("phone", "wide")]
    layouts = measure_pages(tmp_path, views)
    assert [layout["width"] - layout["window"] for layout in layouts] == [0] * len(views)
    assert [name for layout in layouts[::2] for name in layout["scrolling"]] == []  # phones
    plots = [plot for layout in layouts for plot in layout["plots"]]
    assert len(plots) == 2 * (4 + 1 + 1)  # of the watch, the prediction and the plan
    assert [pair for plot in plots for pair in overlapping(plot["texts"])] == []


def overlapping(texts: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Pairs of texts whose boxes share more than a pixel."""
    pairs = [(text, other) for number, text in enumerate(texts) for other in texts[:number]]
    return [
        (text["words"], other["words"])
        for text, other in pairs
        if min(text["right"], other["right"]) - max(text["left"], other["left"]) > 1
        and min(text["bottom"], other["bottom"]) - max(text["top"], other["top"]) > 1
    ]


def test_overlapping_texts_are_detected() -> None:
    text = {"words": "a", "left": 0, "right": 30, "top": 0, "bottom": 12}
    assert overlapping([text, {**text, "words": "b", "left": 20, "right": 50}]) == [("b", "a")]
    assert overlapping([text, {**text, "words": "b", "left": 30, "right": 60}]) == []


def test_the_page_follows_the_colour_scheme(layouts: dict[tuple[int | str, str], Layout]) -> None:
    light, dark = (layouts[1, view]["background"] for view in ("phone", "dark"))
    assert (light, dark) == ("rgb(255, 255, 255)", "rgb(20, 23, 26)")
