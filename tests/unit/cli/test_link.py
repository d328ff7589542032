"""The command line of busbw link: what does not fit together is refused, and exit codes say what is known."""

from pathlib import Path

import pytest

from busbw.cli.main import guarded
from busbw.core import wire
from busbw.core.finding import Finding, Verdict
from busbw.core.linking import Flow, LinkHost, LinkReport, LinkSpec


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--hosts h1", "--hosts h1: a link needs two hosts"),
        ("", "link: give the hosts once"),
        ("--hosts h1,h2 --hostfile f", "link: give the hosts once"),
        ("--hosts h1,h2 --gpu 0", "--gpu and --gid-index are for RDMA"),
        ("--hosts h1,h2 --collective all_gather", "--collective: without --suspect no collective runs"),
        ("--hosts h1,h2,h3,h4 --suspect hosts --html page.html --seconds 3", "--seconds, --html: --suspect runs a collective"),
        ("--hosts h1,h2,h3 --suspect hosts", "--suspect: 3 hosts cannot be compared"),
        ("--result r.json --hosts h1,h2", "--hosts: --result prints an earlier test"),
        ("--result no-such-file.json", "--result no-such-file.json: No such file or directory"),
    ],
)
def test_what_does_not_fit_is_refused(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(["link", *words.split()]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        ([("link.alike", Verdict.PASS), ("link.mark", Verdict.UNKNOWN)], 0),
        ([("link.alike", Verdict.PASS), ("link.host_slow", Verdict.WARN)], 1),
        ([("link.alike", Verdict.UNKNOWN), ("link.mark", Verdict.UNKNOWN)], 3),
        ([("link.alike", Verdict.PASS), ("link.host", Verdict.UNKNOWN)], 3),
        ([], 3),
    ],
)
def test_the_exit_code_follows_the_findings(verdicts: list[tuple[str, Verdict]], code: int, tmp_path: Path) -> None:
    findings = [Finding(name, verdict, "said") for name, verdict in verdicts]
    report = LinkReport(spec=LinkSpec(), hosts=[LinkHost("h1")], flows=[Flow(rail=0, sender=0, receiver=0, rate=1.0)], findings=findings)
    file = tmp_path / "r.json"
    file.write_bytes(wire.encode(report))
    assert guarded(["link", "--result", str(file)]) == code


def test_files_are_replaced_only_with_force(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    page.write_text("mine")
    assert guarded(["link", "--hosts", "h1,h2", "--html", str(page)]) == 2
    assert f"--html {page}: the file exists" in capsys.readouterr().err
    assert page.read_text() == "mine"
