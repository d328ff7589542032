"""A report begins with what is wrong in its files, the worst first."""

import re
from collections.abc import Callable
from pathlib import Path
from xml.etree.ElementTree import Element

import html5lib
import msgspec
import pytest
from nodes_and_watches import node_snapshots, watched_lines

from busbw.api import files
from busbw.backends.types import BackendsResult, BackendsRow, BackendTime
from busbw.check.trend.types import Growth, OutlierLink, TrendReport
from busbw.check.types import (
    CheckReport,
    ClusterReport,
    CommandReport,
    Diagnosis,
    LineReport,
    ReportedFinding,
    Stage,
)
from busbw.cli.main import guarded
from busbw.core.finding import RunFinding, Verdict
from busbw.core.result import Cell, Outcome, Result
from busbw.core.sweep import SweepSpec
from busbw.job.types import JobReport
from busbw.link.types import LinkReport, LinkSpec, Suspect, SuspectReport
from busbw.moe.types import MoeResult
from busbw.overlap.types import OverlapResult, OverlapRow, OverlapSide
from busbw.report import other_reports
from busbw.report.file_kinds import FileContent
from busbw.report.other_reports import OtherReports
from busbw.report.page import page
from busbw.report.results import render
from busbw.stats.compare import compare

Make = Callable[..., Result]
HTML = "{http://www.w3.org/1999/xhtml}"
RECORDED = Path(__file__).parents[2] / "recorded"
GROWTH = Growth(host="h7", kind="port", link="mlx5_1", counter="symbol_error", by=900, hours=24.0)
ODD = OutlierLink(growth=GROWTH, others=15, others_by=0, others_most=0, chance=1e-9)


def words(element: Element) -> str:
    """The texts of an element, or of its paragraphs, a space between them."""
    paragraphs = list(element.iter(HTML + "p"))
    return " ".join("".join(part.itertext()).strip() for part in paragraphs or [element])


def beginning(html: bytes) -> list[str]:
    """What the page says between its title and its figures; fails for a link that leads nowhere."""
    root = html5lib.HTMLParser(strict=True).parse(html)
    anchors = {element.get("id") for element in root.iter()}
    links = [element.get("href", "") for element in root.iter(HTML + "a")]
    assert all(link.removeprefix("#") in anchors for link in links)
    header = next(root.iter(HTML + "header"))
    parts = [part for part in header if part.get("class") not in ("facts-line", "tiles", "lead")]
    cards = [card for part in parts[1:] for card in (part if part.tag == HTML + "ul" else [part])]
    return [words(card) for card in cards if card.get("class") != "scroll"]


def document(held: msgspec.Struct) -> FileContent:
    return FileContent("Kind", lambda width: "", held)


def found(verdict: Verdict, message: str, host: str) -> CheckReport:
    finding = ReportedFinding(
        id="BW070", name="nic-mtu", layer="NIC", verdict=verdict, subject="", message=message
    )
    return CheckReport(host=host, source=f"{host}.json", findings=[finding])


def test_the_worst_of_all_files_stands_before_the_figures(make: Make, tmp_path: Path) -> None:
    said = [
        RunFinding("bandwidth", Verdict.UNKNOWN, "no ideal for 49.1 GB/s"),
        RunFinding("data", Verdict.FAIL, "wrong data at 8 B", fix="replace it"),
        RunFinding("latency", Verdict.PASS, "8 B takes 16 us"),
    ]
    sweeps = [("a.json", make(findings=said)), ("b.json", make(findings=[said[0]]))]
    watched = tmp_path / "watch.jsonl"
    watched.write_bytes(watched_lines())
    names = [node_snapshots(tmp_path, 2) / f"gpu00{number}.jsonl" for number in (1, 2)]
    others = [
        (path.name, files.content(path.read_bytes(), path.name)) for path in [watched, *names]
    ]
    html = page(sweeps, others=OtherReports(others, [("cut.json", "it is cut")]))
    assert beginning(html) == [
        "cut.json was skipped: it is cut.",
        "fail wrong data at 8 B on node1.example.org, a.json",
        "warn mlx5_0: packets are lost on h1, watch.jsonl",
        "warn /etc/hosts gives HOST the address 127.0.1.1 on gpu[001-002], 2 files",
        "unknown no ideal for 49.1 GB/s on node1.example.org, a.json, b.json",
    ]


@pytest.mark.parametrize(
    ("held", "said"),
    [
        (found(Verdict.FAIL, "MTU 1500", "gpu7"), "fail MTU 1500 on gpu7, f"),
        (
            ClusterReport(
                differences=[],
                nodes=[found(Verdict.PASS, "MTU 9000", "gpu1")],
                silent={"gpu2": "no route to host"},
            ),
            "fail did not answer: no route to host on gpu2, f",
        ),
        (
            LinkReport(
                spec=LinkSpec(), findings=[RunFinding("link.slow", Verdict.WARN, "h3 is slow")]
            ),
            "warn h3 is slow f",
        ),
        (
            SuspectReport(
                way="hosts",
                collective="all_reduce",
                size_bytes=8,
                hosts=["h1", "h2"],
                suspects=[Suspect(["h2"], 0.5)],
            ),
            "fail slow: h2, 50 % of the usual rate f",
        ),
        (
            TrendReport(hosts=["h7"], hours=24.0, links={"port": 16}, odd=[ODD], grown=[GROWTH]),
            "warn h7 mlx5_1 differs from the others: symbol_error grew by 900 in 24.0 h, none of"
            " the 15 others did f",
        ),
        (
            JobReport(at="", seconds=1.0, verdict=Verdict.FAIL, message="h2 hangs"),
            "fail h2 hangs f",
        ),
        (
            Diagnosis(
                hosts=["h1"], stages=[Stage(name="ssh", verdict=Verdict.FAIL, message="h1 refused")]
            ),
            "fail h1 refused f",
        ),
        (
            CommandReport(
                lines=[
                    LineReport(argv=["a"], findings=found(Verdict.WARN, "-x is old", "").findings)
                ]
            ),
            "warn -x is old f",
        ),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_files_of_every_kind_that_judges_are_heard(held: msgspec.Struct, said: str) -> None:
    assert beginning(other_reports.page(OtherReports([("f", document(held))]))) == [said]


def test_a_slower_cell_of_a_comparison_is_a_failure_and_no_page_with_one_is_right(
    make: Make,
) -> None:
    right = RunFinding("latency", Verdict.PASS, "8 B takes 16 us")
    first, other = make(findings=[right]), make(findings=[right])
    for row in other.rows:
        row.out_of_place.time_s *= 9
    named = [("a.json", first), ("b.json", other)]
    judged = compare(named[:1], named[1:])
    said = beginning(other_reports.page(OtherReports([("c.json", document(judged))])))
    assert [text.partition(";")[0] for text in said] == [
        "fail 2 of 4 cells slower, largest 9.000x at 8 B out of place"
    ]
    assert beginning(page(named, {1: judged})) == []


def test_an_explanation_of_a_slow_run_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    log = RECORDED / "nccl_tests/h20_ib/sockets.txt"
    system = ["--system", "h20x8", "--nics", "1x100G", "--format", "json"]
    assert guarded(["explain", str(log), *system]) == 1
    explanation = files.content(capsys.readouterr().out.encode(), "e.json")
    assert isinstance(explanation, FileContent)
    said = beginning(other_reports.page(OtherReports([("e.json", explanation)])))
    assert re.fullmatch(r"fail [\d.]+ GB/s at \w+ GiB is slower than expected: .* e\.json", said[0])


def test_one_line_says_that_nothing_is_wrong(make: Make) -> None:
    right = RunFinding("latency", Verdict.PASS, "8 B takes 16 us")
    html = page([("a.json", make(findings=[right])), ("b.json", make(findings=[right, right]))])
    assert beginning(html) == ["Nothing is wrong: 3 findings passed."]
    assert beginning(page([("a.json", make())])) == []  # nothing was judged
    assert beginning(page([("a.json", make(findings=[right], errors=["rank 1 is lost"]))])) == [
        "Error: rank 1 is lost."
    ]


def of_report(tmp_path: Path, *results: Outcome) -> list[str]:
    """What the page of `busbw report` begins with for these results, `0.json` and on."""
    names = [tmp_path / f"{number}.json" for number in range(len(results))]
    for name, result in zip(names, results, strict=True):
        name.write_text(render(result))
    target = tmp_path / "page.html"
    code = guarded(["report", *map(str, names), "--output", str(target)])
    assert code == int(any(result.wrong() for result in results))
    return [text.replace(f"{tmp_path}/", "") for text in beginning(target.read_bytes())]


def moe() -> MoeResult:
    found = files.load(RECORDED / "moe/moe.json")
    assert isinstance(found, MoeResult)
    return found


def backends(default: str = "nccl") -> BackendsResult:
    """Two backends at one size, of which nccl takes half of the other's time."""
    cells = {
        name: Cell(time_s=time_s, algbw=1.0, busbw=1.0, wrong=0, samples_s=[time_s] * 20)
        for name, time_s in (("nccl", 1.0), ("two-shot", 2.0))
    }
    times = [BackendTime(backend=name, mode="eager", cell=cell) for name, cell in cells.items()]
    return BackendsResult(
        spec=SweepSpec(collective="all_reduce"),
        default=default,
        rows=[BackendsRow(size_bytes=1024, times=times)],
        complete=True,
    )


def overlap() -> OverlapResult:
    side = OverlapSide(operations=1, alone_s=[1.0, 1.1], beside_s=[1.5, 1.6])
    row = OverlapRow(size_bytes=1024, ctas=0, collective=side, load=side)
    return OverlapResult(spec=SweepSpec(collective="all_reduce"), rows=[row], complete=True)


def with_wrong_data(result: Outcome) -> Outcome:
    """The result as an older busbw wrote it: without a finding on its wrong data."""
    match result:
        case MoeResult():
            result.rows[0].wrong = 5
        case BackendsResult():
            result.rows[0].times[0].cell.wrong = 5
        case OverlapResult():
            result.is_wrong = True
    return result


@pytest.mark.parametrize(
    ("make_result", "wrong"),
    [
        (moe, "fail 5 elements wrong, first in dispatch of "),
        (backends, "fail nccl gave wrong data at 1 KiB, eager "),
        (overlap, "fail the collective gave wrong data beside the load "),
    ],
)
def test_runs_of_every_kind_are_heard(
    make_result: Callable[[], Outcome], wrong: str, tmp_path: Path
) -> None:
    assert of_report(tmp_path, make_result()) == ["Nothing is wrong."]
    (said,) = of_report(tmp_path, with_wrong_data(make_result()))
    assert said.startswith(wrong) and said.endswith("0.json")
    written = make_result()
    written.findings = [RunFinding("tcp", Verdict.WARN, "packets were lost", fix="see the switch")]
    assert of_report(tmp_path, written) == ["warn packets were lost " + place(written)]
    page_text = (tmp_path / "page.html").read_text()
    assert page_text.count("see the switch") == 1


def test_findings_of_one_id_are_not_merged(tmp_path: Path) -> None:
    result, messages = overlap(), ["pack takes 55 % of dispatch", "pack takes 60 % of combine"]
    result.findings = [RunFinding("moe_phase", Verdict.WARN, message) for message in messages]
    assert of_report(tmp_path, result) == [f"warn {message} 0.json" for message in messages]


def test_wrong_data_without_a_finding_is_a_failure() -> None:
    result = overlap()
    result.is_wrong = True
    result.findings = [RunFinding("overlap_data", Verdict.UNKNOWN, "not checked")]
    page_of_one = other_reports.page(OtherReports([("f", document(result))]))
    assert beginning(page_of_one)[0] == "fail wrong data f"


def place(result: Outcome) -> str:
    hosts = list(dict.fromkeys(device.host for device in result.world.devices))
    return f"on {hosts[0]}, 0.json" if hosts else "0.json"


def test_the_failure_of_one_file_stands_before_the_warning_of_another(tmp_path: Path) -> None:
    said = of_report(tmp_path, backends("two-shot"), with_wrong_data(overlap()))
    assert [text.partition(" ")[0] for text in said] == ["fail", "warn"]
    assert said[1] == "warn two-shot is slower than nccl by 2.00x at 1 KiB, eager 0.json"


def test_a_run_that_did_not_end_is_named(tmp_path: Path) -> None:
    cut, empty = overlap(), backends()
    cut.complete, cut.errors = False, ["interrupted"]
    empty.complete, empty.rows = False, []
    assert of_report(tmp_path, cut, empty) == [
        "0.json: the run did not end; these rows are what was measured.",
        "0.json: error: interrupted.",
        "1.json: the run did not end; nothing was measured.",
    ]


def test_of_many_faults_the_first_are_listed() -> None:
    nodes = [
        found(Verdict.WARN if number else Verdict.FAIL, f"{'x' * number} is wrong", f"h{number}")
        for number in range(10)
    ]
    html = other_reports.page(
        OtherReports([("f", document(ClusterReport(differences=[], nodes=nodes)))])
    )
    said = beginning(html)
    assert len(said) == 9
    assert said[0].startswith("fail") and said[-1] == "2 more are in the sections of their files."
