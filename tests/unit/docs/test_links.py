"""Links between the Markdown files of the repository: files and headings exist, and a reader who
starts at the README finds every page.
"""

import itertools
import re
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[3]
PAGES = sorted(
    {
        page
        for pattern in ("*", "docs/**/*", "benchmarks/**/*", "native/*", "tests/recorded/*/*")
        for page in ROOT.glob(f"{pattern}.md")
    }
)
PARSER = MarkdownIt("commonmark").enable("table")


@cache
def tokens(page: Path) -> list[Token]:
    """The blocks of a page."""
    return PARSER.parse(page.read_text(encoding="utf-8"))


def targets(blocks: list[Token]) -> list[str]:
    """Where links and images within the repository lead."""
    inline = [part for block in blocks for part in block.children or ()]
    hrefs = [
        str(part.attrGet("href") or part.attrGet("src") or "")
        for part in inline
        if part.type in {"link_open", "image"}
    ]
    return [target for target in hrefs if not re.match(r"[a-z]+:", target)]


def anchors(blocks: list[Token]) -> set[str]:
    """The anchors that forges and the site give to headings."""
    slugs: list[str] = []
    for opening, title in itertools.pairwise(blocks):
        if opening.type == "heading_open":
            words = "".join(
                part.content
                for part in title.children or ()
                if part.type in {"text", "code_inline"}
            )
            slug = re.sub(r"[^\w\- ]", "", words.strip().lower()).replace(" ", "-")
            slugs.append(f"{slug}-{slugs.count(slug)}" if slug in slugs else slug)
    return set(slugs)


def broken(page: Path, target: str) -> str:
    """Why a link leads nowhere, or nothing."""
    path, _, anchor = target.partition("#")
    file = (page.parent / path).resolve() if path else page
    if not file.is_relative_to(ROOT) or not file.exists():
        return f"{target}: no such file"
    return (
        f"{target}: no such heading"
        if anchor and (file.suffix != ".md" or anchor not in anchors(tokens(file)))
        else ""
    )


def test_links_lead_somewhere() -> None:
    problems = [
        f"{page.relative_to(ROOT)}: {problem}"
        for page in PAGES
        for target in targets(tokens(page))
        if (problem := broken(page, target))
    ]
    assert problems == []


def test_a_broken_link_is_detected() -> None:
    text = (
        "[a](docs/tutorail.md) `[no](link)` [b](README.md#instal) ![c](docs/none.svg)"
        " [d](https://example.org)\n\n"
        "[e]\n\n"
        "[e]: ../x.md\n"
    )
    problems = [broken(ROOT / "README.md", target) for target in targets(PARSER.parse(text))]
    assert problems == [
        "docs/tutorail.md: no such file",
        "README.md#instal: no such heading",
        "docs/none.svg: no such file",
        "../x.md: no such file",
    ]
    assert anchors(PARSER.parse("# A `b`: c_d, e-f?\n\n## Twice\n\n## Twice\n")) == {
        "a-b-c_d-e-f",
        "twice",
        "twice-1",
    }


def test_the_readme_leads_to_every_page() -> None:
    reached_pages, ahead = set[Path](), [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        if page in reached_pages:
            continue
        reached_pages.add(page)
        reached = [
            (page.parent / target.partition("#")[0]).resolve() for target in targets(tokens(page))
        ]
        ahead += [
            file
            for path in reached
            for file in (sorted(path.glob("*.md")) if path.is_dir() else [path])
            if file.suffix == ".md"
        ]
    assert [
        str(page.relative_to(ROOT))
        for page in PAGES
        if page not in reached_pages and not page.is_relative_to(ROOT / "tests")
    ] == []
