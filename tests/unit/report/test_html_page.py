"""The report is one valid page that needs nothing else, whatever the files hold."""

import math
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

import html5lib
import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from busbw.core.errors import UsageError
from busbw.core.finding import RunFinding, Verdict
from busbw.core.result import Cell, Mismatch, Result
from busbw.report.page import page
from busbw.report.read import read
from busbw.stats.compare import compare
from busbw.ui.html.element import clean, document, tag

TESTS = Path(__file__).parents[2]
RECORDED = sorted((TESTS / "recorded" / "nccl_tests").glob("all_reduce*"))
BENCHMARK = TESTS.parent / "benchmarks" / "all_reduce_2xh200_202611"
KEPT = [
    BENCHMARK / name
    for name in ("run_1.json", "compat_1.json", "compat_1.txt", "torch_1.json", "hosts_25g.json")
]
HTML = "{http://www.w3.org/1999/xhtml}"
HOSTILE = (
    "</style></title></textarea>--><script>alert(1)</script><img src=x onerror=alert(2)>\"'"
    " autofocus onfocus='alert(3)&lt;\x00\x1b\u202e"
)
HARMLESS = "harmless".ljust(len(HOSTILE), "-")
DARK = re.compile(r"prefers-color-scheme: dark\) \{\s*:root \{(.*?)\}", re.DOTALL)

Make = Callable[..., Result]


def parsed(text: bytes) -> Element:
    """The page as a browser reads it; fails on the first thing that HTML does not allow."""
    root: Element = html5lib.HTMLParser(strict=True).parse(text)
    return root


def names(root: Element) -> list[str]:
    return [
        element.tag.rpartition("}")[2] for element in root.iter() if isinstance(element.tag, str)
    ]


def texts(root: Element) -> str:
    return " ".join("".join(root.itertext()).split())


@pytest.mark.parametrize("file", RECORDED + KEPT, ids=lambda path: path.name)
def test_every_readable_file_gives_a_small_valid_page(file: Path) -> None:
    text = page([(file.name, read(file.read_bytes(), file.name))])
    root = parsed(text)
    assert len(text) < 300_000
    assert not {"script", "link", "img", "iframe", "object", "use", "image", "base", "form"} & set(
        names(root)
    )
    attributes = {name for element in root.iter() for name in element.attrib}
    assert not {name for name in attributes if name.startswith("on")} | (
        {"src", "style", "action"} & attributes
    )
    assert all(element.get("href", "#").startswith("#") for element in root.iter())
    assert not re.search(rb"url\(|@import|@font-face", text)


def several(make: Make) -> list[tuple[str, Result]]:
    return [
        ("a.json", make()),
        ("b.json", make()),
        ("c.json", make(spec={"collective": "all_gather"})),
    ]


@pytest.mark.parametrize("count", [1, 3])
def test_the_page_is_accessible(make: Make, count: int) -> None:
    root = parsed(page(several(make)[:count]))
    levels = [int(name[1]) for name in names(root) if re.fullmatch("h[1-6]", name)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert {title.get("scope") for title in root.iter(HTML + "th")} <= {
        "col",
        "row",
        "rowgroup",
        "colgroup",
    }
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    plots = [element for element in root.iter() if element.get("role") == "img"]
    groups = 1 if count == 1 else 2  # of one collective
    assert len(plots) == groups * 6  # busbw twice and time, each for wide and narrow windows
    for plot in plots:
        labels = {child.get("id"): child.text for child in plot}
        assert all(labels[name] for name in plot.get("aria-labelledby", "").split())
    boxes = [element for element in root.iter() if element.get("class") == "scroll"]
    assert all(box.get("tabindex") == "0" and box.get("aria-label") for box in boxes)
    assert len(boxes) == len(list(root.iter(HTML + "table")))


def replaced(value: Any, text: str) -> Any:
    """The value with `text` for every string that is not of a closed set."""
    if isinstance(value, dict):
        return {
            key: item if key in ("schema", "collective", "verdict") else replaced(item, text)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [replaced(item, text) for item in value]
    return text if isinstance(value, str) else value


def written_over(text: str) -> Result:
    """A recorded run, broken off with wrong data, with `text` in every place where a file may
    hold text.
    """
    recorded_result = read((BENCHMARK / "run_1.json").read_bytes(), "run_1.json")
    cell = recorded_result.rows[3].in_place
    assert cell is not None
    cell.wrong, cell.stopped, cell.mismatches = 1, "ok", [Mismatch(0, 7, "1", "2", 1)]
    recorded_result.errors, recorded_result.program = ["broke off"], "busbw run"
    result = msgspec.convert(replaced(msgspec.to_builtins(recorded_result), text), Result)
    result.environment, result.library.versions = {text: text}, {text: text}
    return result


def test_no_text_in_a_file_becomes_markup() -> None:
    harmless, hostile = (
        parsed(page([(text, written_over(text)), (text, written_over(text))]))
        for text in (HARMLESS, HOSTILE)
    )
    assert names(hostile) == names(harmless)
    assert [sorted(element.attrib) for element in hostile.iter()] == [
        sorted(element.attrib) for element in harmless.iter()
    ]
    assert (
        texts(hostile).count("<script>alert(1)</script>") == texts(harmless).count("harmless") > 400
    )


def test_markup_could_not_run_even_if_it_slipped_in(make: Make) -> None:
    policy = next(
        meta.get("content", "")
        for meta in parsed(page([("r", make())])).iter(HTML + "meta")
        if meta.get("http-equiv")
    )
    assert policy.startswith("default-src 'none';")
    assert "script" not in policy


def test_a_page_has_the_sign_for_plus_minus_but_not_in_what_was_typed(make: Make) -> None:
    finding = RunFinding(
        "dips", Verdict.WARN, "busbw 80.10 GB/s +-31.5 % (+-2 GB/s)", fix="`a +-1`"
    )
    page_texts = texts(parsed(page([("r.json", make(findings=[finding], argv=["run", "+-1"]))])))
    assert "busbw 80.10 GB/s ±31.5 % (±2 GB/s)" in page_texts
    assert "a +-1" in page_texts and "run +-1" in page_texts


@given(st.text())
@example("\x00\r\ud800\ufdd0\uffff\U0001fffe\U0010ffff")
def test_any_text_and_attribute_is_read_back_as_it_was(text: str) -> None:
    head = tag("head", tag("meta", charset="utf-8"), tag("title", "t"))
    root = parsed(
        document(
            tag("html", head, tag("body", tag("p", "x", text, tag("b", text), text, title=text)))
        )
    )
    paragraph = next(root.iter(HTML + "p"))
    cleaned = clean(text)
    assert "".join(paragraph.itertext()) == "x" + cleaned * 3
    assert paragraph.get("title") == cleaned
    assert all(letter in (other, "\ufffd") for letter, other in zip(cleaned, text, strict=True))


def test_findings_errors_and_the_end_of_the_run_are_shown(
    make: Make, make_cell: Callable[..., Cell]
) -> None:
    result = make(complete=False, errors=["rank 1 on node7 did not arrive"], out_of_bounds=1)
    result.rows[1].in_place = make_cell(14.82, 70.76, 70.76, 7)
    page_texts = texts(parsed(page([("r.json", result)])))
    assert "Wrong data: 1 of 4 checks saw wrong elements." in page_texts
    assert "The sweep did not end" in page_texts
    assert "Error: rank 1 on node7 did not arrive" in page_texts


def test_a_result_without_rows_machine_or_findings_is_a_page_too(make: Make) -> None:
    bare = make([], argv=[], program="", start="", end="")
    bare.world.devices.clear()
    page_texts = texts(parsed(page([("r.json", bare)])))
    for words in (
        "No size was measured.",
        "No row has a figure to draw.",
        "The file holds no findings.",
    ):
        assert words in page_texts
    parsed(page([("a.json", bare), ("b.json", bare)], {1: compare([("a", bare)], [("b", bare)])}))


@pytest.mark.parametrize(
    "value", [0.0, -1.0, 1e308, 5e-324, math.nan, math.inf, -math.inf], ids=str
)
def test_figures_that_no_machine_makes_are_shown_and_not_drawn(make: Make, value: float) -> None:
    """Each in a file of its own, beside one that has none."""
    files = [("sound.json", make())]
    for field in ("time_s", "algbw", "busbw", "low_s", "high_s", "op_s", "launch_s"):
        result = make()
        for row in result.rows:
            for cell in (row.out_of_place, row.in_place):
                assert cell is not None
                cell.low_s, cell.high_s, cell.op_s, cell.launch_s = 9e-6, 3e-5, 8e-6, 2e-6
        setattr(result.rows[0].out_of_place, field, value)
        files.append((f"{field}.json", result))
    root = parsed(page(files))
    assert not re.search("nan|inf|e[+-]", " ".join(element.get("d", "") for element in root.iter()))


def test_more_files_than_colours_are_refused(make: Make) -> None:
    with pytest.raises(UsageError, match="9 files, and a page shows at most 8"):
        page([(f"{number}.json", make()) for number in range(9)])
    assert parsed(page([(f"{number}.json", make()) for number in range(8)])) is not None


def style() -> str:
    return (TESTS.parent / "src" / "busbw" / "ui" / "html" / "style.css").read_text(
        encoding="utf-8"
    )


def colours(block: str) -> dict[str, str]:
    return dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", block))


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2.2 defines it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first: str, other: str) -> float:
    darker, lighter = sorted((luminance(first), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def schemes() -> Iterator[dict[str, str]]:
    yield colours(style().partition("@media")[0])
    yield colours(DARK.findall(style())[0])


@pytest.mark.parametrize("scheme", list(schemes()), ids=["light", "dark"])
def test_contrast_is_that_of_level_aa(scheme: dict[str, str]) -> None:
    words = [
        name
        for name in scheme
        if name in ("ink", "quiet", "pass", "warn", "fail", "skip", "unknown")
        or re.fullmatch(r"s\d", name)
    ]
    assert len(words) == 15
    low = {
        (name, behind): contrast(scheme[name], scheme[behind])
        for name in words
        for behind in ("page", "panel")
    }
    assert {pair: ratio for pair, ratio in low.items() if ratio < 4.5} == {}
