"""Screens in pages are what their commands print; `...` marks omitted lines."""

from types import ModuleType

import pytest

PAGE = """\
Text.

<!-- screen: in=benchmarks/link_2cpu_202611 keep={keep} -->

```console
$ busbw show four_hosts.json
{output}```
"""


@pytest.fixture
def screens(generate: ModuleType) -> ModuleType:
    return generate.screens


def test_the_output_of_a_screen_is_made_again(screens: ModuleType) -> None:
    whole = screens.renewed(PAGE.format(keep=":", output="outdated\n"))
    output = whole.partition("four_hosts.json\n")[2].removesuffix("```\n").splitlines(keepends=True)
    assert len(output) > 20
    assert max(map(len, output)) <= 81
    parts = ["...\n", *output[2:4], "...\n", *output[-1:]]
    expected = PAGE.format(keep="2:4,-1:", output="".join(parts))
    assert screens.renewed(PAGE.format(keep="2:4,-1:", output="")) == expected


def test_indented_output_does_not_continue_the_command(screens: ModuleType) -> None:
    whole = screens.renewed(PAGE.format(keep=":", output="      system  NICs\n"))
    assert whole == screens.renewed(PAGE.format(keep=":", output=""))


def test_a_page_with_a_changed_figure_is_stale(screens: ModuleType) -> None:
    pages = [page for page in screens.pages() if "<!-- screen" in page.read_text(encoding="utf-8")]
    assert len(pages) >= 5
    page = next(page for page in pages if page.name == "test-links.md")
    text = page.read_text(encoding="utf-8")
    assert screens.renewed(text) == text
    assert screens.renewed(text.replace("99.13 Mbit/s", "99.14 Mbit/s")) == text
