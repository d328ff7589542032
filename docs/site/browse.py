"""Opens every page of site/ in Chromium at two widths, reports what is wrong, and saves pictures:
`browse.py OUT [dark]`.

Needs playwright (`pip install playwright`) and an installed Chromium. Reports pages wider than the
window, errors on the console, requests that leave the site, and links and anchors that lead
nowhere. Exits with 1 if there are any.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urldefrag

from playwright.sync_api import ConsoleMessage, Page, Request, sync_playwright

SITE = Path(__file__).parents[2] / "site"
CHROMIUM = "/usr/bin/chromium"
WIDTHS = (1280, 390)
HIGHEST = 6000  # pixels of a page in a picture
IDS = "[...document.querySelectorAll('[id]')].map(e => e.id)"
LINKS = "[...document.querySelectorAll('a[href]')].map(e => e.href)"
SIZES = (
    "[innerWidth, document.scrollingElement.scrollWidth, ...(e => [e.scrollWidth,"
    " e.clientWidth])(document.querySelector('.content'))]"
)


class Watched:
    """A page at one width, and what goes wrong in it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.problems: list[str] = []
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("request", self._request)
        page.on("requestfailed", lambda request: self.problems.append(f"failed: {request.url}"))

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.problems.append(f"console: {message.text}")

    def _request(self, request: Request) -> None:
        if not request.url.startswith(("file:", "data:")):
            self.problems.append(f"request: {request.url}")

    def open(self, address: str, picture: Path) -> list[str]:
        """What is wrong with a page; saves its picture."""
        self.problems.clear()
        self.page.goto(address)
        self.page.wait_for_load_state("networkidle")
        inner, whole, text, shown = self.page.evaluate(SIZES)
        if whole > inner or text > shown:  # tables and code have boxes of their own that scroll
            self.problems.append(f"page {whole} px, text {text} px wide, in a window of {inner}")
        high = min(HIGHEST, self.page.evaluate("document.scrollingElement.scrollHeight"))
        self.page.screenshot(
            path=picture, clip={"x": 0, "y": 0, "width": inner, "height": high}, full_page=True
        )
        return [*self.problems]


def open_all(out: Path, scheme: str) -> Iterator[str]:
    """Everything that is wrong on any page, with pictures of all pages in `out`."""
    files = {
        file.as_uri(): file.relative_to(SITE).as_posix().replace("/", "__")
        for file in sorted(SITE.rglob("*.html"))
    }
    searched = {f"{(SITE / 'search.html').as_uri()}?q=busbw": "search_busbw"}
    ids: dict[str, set[str]] = {}
    links: dict[str, list[str]] = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        for width in WIDTHS:
            page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
            watched = Watched(page)
            for address, name in (files | searched).items():
                yield from (
                    f"{name} at {width}: {problem}"
                    for problem in watched.open(address, out / f"{name}.{width}.png")
                )
                ids[address], links[address] = set(page.evaluate(IDS)), page.evaluate(LINKS)
    yield from (
        f"{address}: {link}"
        for address, found in links.items()
        for link in found
        if broken(link, ids)
    )


def broken(link: str, ids: dict[str, set[str]]) -> bool:
    """Whether a link within the site leads nowhere."""
    address, anchor = urldefrag(link)
    if not link.startswith("file:"):
        return False
    if address in ids:
        return bool(anchor) and not {anchor, unquote(anchor)} & ids[address]
    return not Path(unquote(address.removeprefix("file://")).partition("?")[0]).is_file()


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    found = [*open_all(target, sys.argv[2] if len(sys.argv) > 2 else "light")]
    print("\n".join(found))
    sys.exit(bool(found))
