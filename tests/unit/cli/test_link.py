"""The command line of busbw link: contradictory options are refused, and exit codes give the
outcome.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from busbw.cli.link import LinkOutput
from busbw.cli.main import guarded
from busbw.core.finding import RunFinding, Verdict, exit_of
from busbw.link import text as view
from busbw.link.types import LinkHost, LinkReport, LinkSpec, PairFlow, Rail, Suspect, SuspectReport

FOUR_HOSTS = Path(__file__).parents[3] / "benchmarks" / "link_2cpu_202611" / "four_hosts.json"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--hosts h1", "--hosts h1: a link needs two hosts"),
        ("", "link: no hosts are named"),
        ("--hosts h1,h2 --json /none/x", "--json /none/x: No such file or directory"),
        ("--hosts h1,h2 --html /none/x", "--html /none/x: No such file or directory"),
        ("--hosts h1,h2 --hostfile f", "--hosts and --hostfile both name the hosts"),
        ("--hosts h1,h2 --gpu 0", "--gpu 0: it is for RDMA"),
        ("--hosts h1,h2 --gid-index 3", "--gid-index 3: it is for RDMA"),
        (
            "--hosts h1,h2 --collective all_gather",
            "--collective: without --suspect no collective runs",
        ),
        (
            "--hosts h1,h2,h3,h4 --suspect hosts --html page.html --seconds 3",
            "--seconds, --html: --suspect runs a collective",
        ),
        ("--hosts h1,h2,h3 --suspect hosts", "--suspect: 3 hosts cannot be compared"),
    ],
)
def test_contradictory_options_are_refused(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert guarded(["link", *words.split()]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        ([("link.alike", Verdict.PASS), ("link.mark", Verdict.SKIP)], 0),
        ([("link.alike", Verdict.PASS), ("link.host_slow", Verdict.FAIL)], 1),
        ([("link.alike", Verdict.PASS), ("link.fault", Verdict.WARN)], 0),
        ([("link.alike", Verdict.UNKNOWN), ("link.mark", Verdict.UNKNOWN)], 3),
        ([("link.alike", Verdict.PASS), ("link.host", Verdict.UNKNOWN)], 3),
        ([], 3),
    ],
)
def test_the_exit_code_follows_the_findings(verdicts: list[tuple[str, Verdict]], code: int) -> None:
    findings = [RunFinding(name, verdict, "message") for name, verdict in verdicts]
    flows = [PairFlow(rail=0, sender=0, receiver=0, rate=1.0)]
    report = LinkReport(
        spec=LinkSpec(),
        hosts=[LinkHost("h1")],
        rails=[Rail("all", [None])],
        flows=flows,
        findings=findings,
    )
    assert LinkOutput(None, "table", "").print(report) == code


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("flows", 0, "sender"), 2**70, f"a flow is on rail 0 between hosts {2**70} and "),
        (("flows", 3, "receiver"), 4, "but there are 1 rail and 4 hosts"),
        (("flows", 0, "rail"), -1, "a flow is on rail -1"),
        (("latencies", 0, "b"), -2, "a latency is on rail 0 between hosts "),
        (("rails", 0, "endpoints"), [], "has 0 endpoints, but there are 4 hosts"),
    ],
)
def test_a_file_that_names_no_host_of_its_own_is_refused(
    place: tuple[str, int, str],
    value: Any,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    document = json.loads(FOUR_HOSTS.read_bytes())
    listed, number, field = place
    document[listed][number][field] = value
    file = tmp_path / "r.json"
    file.write_text(json.dumps(document))
    for words in (["show"], ["report"]):
        assert guarded([*words, str(file)]) == 2
        assert message in capsys.readouterr().err


def test_files_are_replaced_only_with_force(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    page.write_text("mine")
    assert guarded(["link", "--hosts", "h1,h2", "--html", str(page)]) == 2
    assert f"--html {page}: the file exists" in capsys.readouterr().err
    assert page.read_text() == "mine"


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({}, 0, "no slow host found: the usual rate is 8 Gbit/s"),
        ({"suspects": [Suspect(["h3"], 0.7)]}, 1, "slow: h3, 70 % of the usual rate"),
        ({"doubts": ["h3: 80 % of"]}, 3, "unknown: h3: 80 % of"),
        (
            {"suspects": [Suspect(["h3"], None)], "doubts": ["h4: 80 % of"]},
            1,
            "slow: h3, its runs failed\nunknown: h4: 80 % of",
        ),
    ],
)
def test_hosts_that_could_not_be_distinguished_are_unknown(
    fields: dict[str, Any], code: int, message: str
) -> None:
    report = SuspectReport(
        way="hosts",
        collective="all_reduce",
        size_bytes=1,
        hosts=["h3", "h4"],
        usual=1e9,
        complete=True,
        **fields,
    )
    assert exit_of(report.verdicts()) == code
    text = view.render_suspects(report)
    assert message in text
    assert ("no slow host found" in text) is (code == 0)
    assert ("hint: run it while nothing else" in text) is bool(report.doubts)
