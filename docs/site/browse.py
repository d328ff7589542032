"""Opens every page of site/ in Chromium at two widths, reports what is wrong, and saves pictures: `browse.py OUT`.

Needs playwright (`pip install playwright`) and an installed Chromium. Reports pages wider than the window, errors on the console, requests
that leave the site, and links and anchors that lead nowhere. Exits with 1 if there are any.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urldefrag

from playwright.sync_api import Page, sync_playwright

SITE = Path(__file__).parents[2] / "site"
CHROMIUM = "/usr/bin/chromium"
WIDTHS = (1280, 390)
HIGHEST = 6000  # pixels of a page in a picture
IDS = "[...document.querySelectorAll('[id]')].map(e => e.id)"
LINKS = "[...document.querySelectorAll('a[href]')].map(e => e.href)"

SIZES = "[innerWidth, document.scrollingElement.scrollWidth, ...(e => [e.scrollWidth, e.clientWidth])(document.querySelector('.content'))]"


def wider(page: Page) -> Iterator[str]:
    """Whether the page or its text scrolls sideways; tables and code have boxes of their own that do."""
    inner, whole, text, shown = page.evaluate(SIZES)
    if whole > inner or text > shown:
        yield f"page {whole} px, text {text} px wide, in a window of {inner}"


def open_all(out: Path, scheme: str) -> list[str]:
    """Everything that is wrong on any page, with pictures of all pages in `out`."""
    problems: list[str] = []
    ids: dict[str, set[str]] = {}
    links: dict[str, list[str]] = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        for width in WIDTHS:
            page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
            seen: list[str] = []
            page.on(
                "console",
                lambda message, seen=seen: seen.append(f"console: {message.text}") if message.type in {"error", "warning"} else None,
            )
            page.on("pageerror", lambda error, seen=seen: seen.append(f"error: {error}"))
            page.on(
                "request",
                lambda request, seen=seen: None if request.url.startswith(("file:", "data:")) else seen.append(f"request: {request.url}"),
            )
            page.on("requestfailed", lambda request, seen=seen: seen.append(f"failed: {request.url}"))
            for file in sorted(SITE.rglob("*.html")):
                page.goto(file.as_uri())
                name = file.relative_to(SITE).as_posix()
                problems += [f"{name} at {width}: {problem}" for problem in [*seen, *wider(page)]]
                seen.clear()
                ids[file.as_uri()], links[file.as_uri()] = set(page.evaluate(IDS)), page.evaluate(LINKS)
                high = min(HIGHEST, page.evaluate("document.scrollingElement.scrollHeight"))
                page.screenshot(
                    path=out / f"{name.replace('/', '__')}.{width}.png",
                    clip={"x": 0, "y": 0, "width": width, "height": high},
                    full_page=True,
                )
    return problems + [f"{urldefrag(address).url}: {link}" for address, found in links.items() for link in found if broken(link, ids)]


def broken(link: str, ids: dict[str, set[str]]) -> bool:
    """Whether a link within the site leads nowhere."""
    address, anchor = urldefrag(link)
    if not link.startswith("file:"):
        return False
    if address in ids:
        return bool(anchor) and anchor not in ids[address] and unquote(anchor) not in ids[address]
    return not Path(unquote(address.removeprefix("file://"))).is_file()


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    found = open_all(target, sys.argv[2] if len(sys.argv) > 2 else "light")
    print("\n".join(found))
    sys.exit(bool(found))
