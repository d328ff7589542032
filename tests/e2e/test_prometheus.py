"""Prometheus and node_exporter, as programs: what the how-to says is scraped, and every query of the
dashboard and every rule has data.
"""

import contextlib
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from exposition import everything
from live_job import looks, write_job

from busbw.core.finding import Verdict
from busbw.job.live.prometheus import JobPage
from busbw.launch.manifest import alerts, filler
from busbw.ui.metric_text import CONTENT_TYPE
from busbw.watch import prometheus
from busbw.watch.exporter import Exporter

ROOT = Path(__file__).parents[2]
LIMIT_S = 90
NEEDED = ("prometheus", "prometheus-node-exporter")
HOST_VERDICT = "busbw_check_host_verdict"
# Of faults, which have no series on a healthy machine; promtool tests what the rules say of them.
NO_DATA = (
    'verdict="fail"',
    'verdict="unknown"',
    "busbw_check_different_facts",
    "busbw:",
    " unless ",
)

pytestmark = [
    pytest.mark.skipif(shutil.which(program) is None, reason=f"no {program}: make test-tools")
    for program in NEEDED
]


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"127.0.0.1:{free.getsockname()[1]}"


@contextlib.contextmanager
def started(*words: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as file, subprocess.Popen(words, stdout=file, stderr=file) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(LIMIT_S)
            finally:
                process.kill()


@contextlib.contextmanager
def full_page(token: str) -> Iterator[str]:
    """The address of a page with every counter, all rising."""
    begin_s = time.time()

    def page() -> bytes:
        now_s = time.time()
        return prometheus.render(everything(int(1000 * (now_s - begin_s)), now_s))

    with served(page, token) as address:
        yield address


@contextlib.contextmanager
def job_page(token: str) -> Iterator[str]:
    """The address of a page of a watched job whose steps became longer, and of which a rank is
    late now.
    """
    watched = JobPage("run1")
    seen = (("unknown", "still", []), ("warn", "longer", []), ("warn", "late", [1]))
    for verdict, kind, suspects in seen:
        (look,) = looks(1, verdict=Verdict(verdict), kind=kind, suspects=suspects)
        watched.take(look)
    with served(lambda: watched.text, token) as address:
        yield address


@contextlib.contextmanager
def served(page: Callable[[], bytes], token: str) -> Iterator[str]:
    exporter = Exporter("127.0.0.1", 0, page, CONTENT_TYPE, token)
    try:
        yield urllib.parse.urlsplit(exporter.url).netloc
    finally:
        exporter.close()


def configuration(folder: Path, targets: dict[str, list[str]]) -> Path:
    """The how-to's configuration, with these targets of each job."""
    page = ROOT / "docs" / "how-to" / "monitor-with-prometheus.md"
    text = page.read_text(encoding="utf-8")
    config = yaml.safe_load(re.search(r"```yaml\n(rule_files:.*?)```", text, re.DOTALL)[1])
    for job in config["scrape_configs"]:
        job["static_configs"] = [{"targets": targets[job["job_name"]]}]
        if "authorization" in job:
            job["authorization"]["credentials_file"] = str(folder / "token")
    config["global"] = {"scrape_interval": "500ms", "evaluation_interval": "500ms"}
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    (folder / "busbw-rules.yml").write_text(alerts.rules(300))
    return folder / "prometheus.yml"


class Prometheus:
    """Its HTTP API at an address."""

    def __init__(self, address: str) -> None:
        self._url = f"http://{address}/api/v1"

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self._url}/{path}", timeout=30) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of a query, once there are any; none if there are none in time."""
        words = urllib.parse.urlencode({"query": expression})
        until = time.monotonic() + LIMIT_S
        while time.monotonic() < until:
            with contextlib.suppress(OSError):
                if result := self.get(f"query?{words}")["result"]:
                    return result
            time.sleep(0.1)
        return []


def compared(expression: str) -> str:
    """What a rule compares, without the comparison."""
    return re.split(r" (?:==|<|>) \d+", expression)[0]


@pytest.fixture
def scraped(tmp_path: Path) -> Iterator[Prometheus]:
    """A Prometheus that scrapes a watch of this host, a page with every counter, a watch of a job, a
    page with a late rank of a job, and a node_exporter with the verdicts of this host.
    """
    (tmp_path / "token").write_text("hunter2\n")
    (tmp_path / "token").chmod(0o600)
    (tmp_path / "textfiles").mkdir()
    busbw = [sys.executable, "-m", "busbw"]
    file = tmp_path / "textfiles" / "busbw.prom"
    words = ["--format", "prometheus", "--output", str(file)]
    done = subprocess.run([*busbw, "check", *words], timeout=LIMIT_S, check=False)
    assert done.returncode in (0, 1, 3)
    (tmp_path / "run2").mkdir()
    write_job(tmp_path / "run2")
    watch, job, node, own = (free_address() for _ in range(4))
    with full_page("hunter2") as page, job_page("hunter2") as late, contextlib.ExitStack() as stack:
        targets = {"node": [node], "busbw": [watch, page], "busbw-job": [job, late]}
        config = configuration(tmp_path, targets)
        secret = ["--token-file", f"{tmp_path}/token"]
        for number, command in enumerate(
            (
                [*busbw, "watch", "--listen", watch, *secret],
                [*busbw, "watch", "job", f"{tmp_path}/run2", "--listen", job, *secret],
                [
                    "prometheus-node-exporter",
                    f"--web.listen-address={node}",
                    f"--collector.textfile.directory={file.parent}",
                ],
                [
                    "prometheus",
                    f"--config.file={config}",
                    f"--storage.tsdb.path={tmp_path}/data",
                    f"--web.listen-address={own}",
                ],
            )
        ):
            stack.enter_context(started(*command, log=tmp_path / f"log{number}"))
        yield Prometheus(own)


def test_every_query_and_rule_has_data_in_prometheus(scraped):
    assert scraped.query(HOST_VERDICT) and len(scraped.query("busbw_watch_samples_total > 0")) >= 1
    dashboard = json.loads(filler.plain("grafana-dashboard.json"))
    queries = [part["expr"] for panel in dashboard["panels"] for part in panel.get("targets", [])]
    filled = [
        re.sub(r"\$(instance|run)", ".*", query.replace("$__rate_interval", "30s"))
        for query in queries
    ]
    rules = [rule for group in scraped.get("rules")["groups"] for rule in group["rules"]]
    filled += [
        compared(rule["query"])
        for rule in rules
        if not any(words in rule["query"] for words in NO_DATA)
    ]
    assert len(rules) >= 12 and len(filled) > len(queries)
    assert [query for query in filled if not scraped.query(query)] == []
    assert {rule["health"] for rule in scraped.get("rules")["groups"][0]["rules"]} == {"ok"}
    assert scraped.query('busbw_job_ranks{run="run2",state="running"} == 3')
    # on a busy machine the first scrapes of a page may exceed their time
    assert scraped.query("count(max_over_time(up[5m]) == 1) == 5"), scraped.get("targets")
    metadata = scraped.get("metadata")
    twice = [name for name, of in metadata.items() if len({row["type"] for row in of}) > 1]
    assert twice == []
    busbw = {series["metric"]["__name__"] for series in scraped.query('{__name__=~"busbw_.+"}')}
    node = {series["metric"]["__name__"] for series in scraped.query('{job="node"}')}
    assert {name for name in busbw & node if not name.startswith("busbw_check_")} == set()
