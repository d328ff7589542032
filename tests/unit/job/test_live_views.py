"""A watched job on a screen, in a saved file, and as metrics."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from live_job import looks, write_job
from prometheus_client import parser
from promtool import promtool

import busbw
from busbw.api.files import content
from busbw.cli import watch_job, watch_job_output
from busbw.cli.main import guarded
from busbw.core.finding import Verdict
from busbw.job.live import text as view
from busbw.job.live.episodes import Episode, VerdictTotals, unix_s
from busbw.job.live.prometheus import MAX_SUSPECTS, METRICS, JobPage
from busbw.job.live.screen import JobScreen
from busbw.job.live.types import JobInterval
from busbw.report.judged import of_document

LATE = {"late_s": 0.0312, "late_low_s": 0.0301, "late_high_s": 0.0325}
STOPPED = {"state": "T", "still_s": 4.0, "call": "gloo:all_reduce"}


def screen(
    intervals: list[JobInterval], width: int | None = 80, height: int | None = None
) -> list[str]:
    shown = JobScreen("run1")
    for interval in intervals:
        shown.take(interval)
    return shown.text(width, height).splitlines()


def test_a_screen_has_the_verdict_the_steps_and_the_named_rank_first() -> None:
    words = {"kind": "late", "suspects": [1], "next": "busbw check --hosts h0"}
    late = looks(61, 8, LATE, verdict=Verdict.WARN, message="late: rank 1 on h0", **words)
    assert screen(late)[:9] == [
        "run1  8 ranks on h0  15:01:00 UTC, watched for 1 min",
        "step 100.0 ms, usually 80.00 ms, 25.0 % waiting",
        "█████████  100.0 ms to 100.0 ms in the last 1 min",
        "",
        "WARN    for 1 min: late: rank 1 on h0",
        "        next: busbw check --hosts h0",
        "",
        "   rank  late (ms)  interval (ms)   steps  process  call",
        ">     1     +31.20  30.10 to 32.50    600  running  -",
    ]
    assert screen(late)[9].split() == ["0", "-1.00", "-", "600", "running", "-"]
    assert len(screen(late)) == 16


def test_the_trend_shows_longer_steps_and_times_without_any() -> None:
    intervals = looks(40)
    for number, interval in enumerate(intervals):
        interval.step_s = 0.1 if number < 10 else 0.2
    trend = screen(intervals[:15] + intervals[30:], 160)[2]
    assert trend == "▅▅█   ██  100.0 ms to 200.0 ms in the last 39 s"
    for width, bars in ((80, 38), (160, 61)):
        trend = screen(looks(700), width)[2]
        assert trend == f"{'█' * bars}  100.0 ms to 100.0 ms in the last 5 min"


def test_a_stopped_rank_says_so_before_later_ranks() -> None:
    fields: dict[str, Any] = {"verdict": Verdict.FAIL, "message": "m", "evidence": list("abcdefgh")}
    lines = screen(looks(1, 8, STOPPED, **fields))
    assert lines[-8].split() == ["1", "-", "stopped", "gloo:all_reduce", "for", "4", "s"]
    lines_later = screen(looks(1, 8, STOPPED | {"unmoved": True}, **fields))
    assert lines_later[-8].endswith("gloo:all_reduce for at least 4 s")
    seen = [line.strip() for line in lines if "seen:" in line]
    assert seen == [*(f"seen: {word}" for word in "abcdef"), "seen: 2 more, in --format json"]
    assert sum("seen:" in line for line in screen(looks(1, 8, STOPPED, **fields), 80, 24)) == 3


def test_a_dead_rank_is_in_no_call_and_not_late() -> None:
    dead = STOPPED | {"state": "Z", "late_low_s": 0.001, "late_high_s": 0.002}
    lines = screen(looks(1, 8, dead, verdict=Verdict.FAIL, message="m"))
    assert lines[-8].split() == ["1", "-", "dead", "-"]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (80, 40), (160, 48), (None, None)])
def test_of_many_ranks_those_that_matter_are_shown_and_the_others_counted(
    width: int | None, height: int | None
) -> None:
    many = looks(2, 1024, LATE | {"state": "T"}, suspects=[700], verdict=Verdict.FAIL)
    lines = screen(many, width, height)
    assert len(lines) <= min(height or 40, 40)
    assert max(map(len, lines)) <= (width or 200)
    assert " 1024 ranks on h[0-127] " in lines[0]
    table = next(number for number, line in enumerate(lines) if line.startswith("   rank  host"))
    assert [line.split()[:2] for line in lines[table + 1 : table + 3]] == [
        [">", "700"],
        ["1", "h0"],
    ]
    assert lines[table + 9].startswith("... 1016 more ranks: 1016 running; late by -1.00 to -1.00")
    elsewhere = looks(1, 16, {"late_low_s": None})
    for rank in elsewhere[0].ranks:
        rank.state = None
    assert " process " not in "".join(screen(elsewhere, width, height))


def test_ranks_that_have_written_nothing_are_named() -> None:
    lines = screen(looks(1, 8, world=16, unread=[".rank_9.now: version 2"]))
    assert lines[0].startswith("run1  8 of 16 ranks on h0  ")
    assert lines[-2:] == [
        "note: nothing is written by 8 ranks: 8-15",
        "note: .rank_9.now: version 2",
    ]
    nothing = screen(looks(1, 0, step_s=None, usual_s=None, verdict=Verdict.UNKNOWN))
    assert nothing[1:] == ["no step yet", "", "UNKNOWN no rank was late"]


def saved() -> list[JobInterval]:
    """A rank is late for a while, then stopped, then none is."""
    all_looks = looks(60)
    for at, interval in enumerate(all_looks):
        if 20 <= at < 50:
            stopped = at >= 40
            interval.verdict = Verdict.FAIL if stopped else Verdict.WARN
            interval.kind, interval.suspects = (
                "stopped" if stopped else "late",
                [2 if stopped else 1],
            )
            interval.message = f"rank {interval.suspects[0]} is it, at {at}"
    return all_looks


SAVED = """\
8 ranks on h0, watched for 59 s from 2026-11-29 15:00:00 UTC: 4 verdicts
PASS    15:00:00  for 20 s: no rank was late
        200 steps, 100.0 ms each, 25.0 % waiting
WARN    15:00:20  for 20 s: rank 1 is it, at 39
        200 steps, 100.0 ms each, 25.0 % waiting
FAIL    15:00:40  for 10 s: rank 2 is it, at 49
        100 steps, 100.0 ms each, 25.0 % waiting
PASS    15:00:50  for 9 s: no rank was late
        90 steps, 100.0 ms each, 25.0 % waiting
"""


def test_a_watch_ends_with_the_last_verdict_of_each_kind_and_its_cause() -> None:
    late = {"verdict": Verdict.WARN, "kind": "late", "suspects": [1]}
    words = [
        {},
        late | {"message": "rank 1 is late", "cause": "unknown", "why": "not known yet"},
        late | {"message": "rank 1 is late by 8 ms", "cause": "cpu", "why": "a quota"},
        late | {"message": "rank 1 is late by 9 ms", "cause": "unknown", "why": "unknown: ran"},
        {},
        late | {"message": "rank 2 is late", "suspects": [2], "cause": "input", "why": "a loader"},
        {"message": "no rank was late, last"},
    ]
    totals = VerdictTotals()
    for at, of in enumerate(words):
        look = looks(at + 1, **of)[at]
        totals.add(Episode(look, unix_s(look), unix_s(look) + 1.0))
    assert view.closing(totals, 7.0, None).splitlines() == [
        "watched for 7 s:",
        "WARN    2 times, for 4 s (ranks 1-2), last at 15:00:05: rank 2 is late",
        "        cause: a loader",
        "PASS    3 times, for 3 s, last at 15:00:06: no rank was late, last",
    ]
    totals = VerdictTotals()
    for look in looks(1, **words[2]) + looks(1, **words[3]):  # type: ignore[arg-type]
        totals.add(Episode(look, unix_s(look), unix_s(look)))
    assert view.closing(totals, 0.0, None).splitlines()[1:] == [
        "WARN    1 time, for 0 s, at 15:00:00: rank 1 is late by 8 ms",
        "        cause: a quota",
    ]


def test_a_saved_watch_is_shown_by_its_verdicts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run1.jsonl"
    file.write_bytes(b"".join(view.line(interval) for interval in saved()))
    assert guarded(["show", str(file)]) == 0
    assert capsys.readouterr().out == SAVED
    assert busbw.load(file) == saved()
    (report,) = of_document(content(file.read_bytes(), "run1.jsonl"))
    said = [(found.verdict, found.message) for found in report.findings]
    assert said == [(Verdict.WARN, "rank 1 is it, at 39"), (Verdict.FAIL, "rank 2 is it, at 49")]
    file.write_bytes(file.read_bytes()[:-20])
    assert guarded(["show", str(file)]) == 2
    assert f"{file}: busbw.live-job/1: " in capsys.readouterr().err


def test_of_many_verdicts_the_first_and_the_last_are_shown() -> None:
    changing = looks(70)
    for interval in changing[::2]:
        interval.kind = "late"
    changing[-1].at = "2026-12-01T08:00:00.000+00:00"
    text = view.saved(changing, 80)
    assert "\nPASS    2026-12-01 08:00:00  for 0 s: no rank was late\n" in text
    shown, _, totals = text.partition("\nwatched for 1.7 d:\n")
    assert "\n... 40 more\n" in shown and shown.count("\nPASS ") == 30
    assert totals.count("PASS    35 times, for ") == 2


def metrics(page: JobPage) -> dict[str, list[tuple[dict[str, str], float]]]:
    families = list(parser.text_string_to_metric_families(page.text.decode()))
    assert {f"{family.name}{'_total' * (family.type == 'counter')}" for family in families} <= set(
        METRICS
    )
    found = {}
    for family in families:
        for sample in family.samples:
            assert sample.labels.pop("run") == "run1"
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def test_metrics_name_the_ranks_that_the_verdict_names() -> None:
    page = JobPage("run1")
    for interval in saved()[:45]:
        page.take(interval)
    found = metrics(page)
    assert found["busbw_job_step_seconds"] == [({}, 0.1)]
    assert found["busbw_job_steps_total"] == [({}, 440)]
    assert found["busbw_job_lateness_seconds"] == [({}, -0.001)]
    assert found["busbw_job_verdict"] == [
        ({"verdict": "pass", "kind": "none"}, 0),
        ({"verdict": "warn", "kind": "late"}, 0),
        ({"verdict": "fail", "kind": "stopped"}, 1),
    ]
    stopped = {"rank": "2", "host": "h0"}
    assert found["busbw_job_suspect"] == [(stopped | {"verdict": "fail", "kind": "stopped"}, 1)]
    assert found["busbw_job_rank_steps_total"] == [(stopped, 440)]
    assert found["busbw_job_verdict_last_seen_timestamp_seconds"][1][1] == 1795964439.0
    assert promtool("check", "metrics", stdin=page.text) == []


def test_the_number_of_series_does_not_grow_with_the_job() -> None:
    page = JobPage("run1")
    (interval,) = looks(1, 1024, {"state": ""}, suspects=list(range(500)), world=1030)
    interval.ranks[2].state, interval.ranks[3].state, interval.ranks[4].ended = "t", None, True
    page.take(interval)
    assert len(metrics(page)["busbw_job_suspect"]) == MAX_SUSPECTS
    states = {labels["state"]: value for labels, value in metrics(page)["busbw_job_ranks"]}
    assert states == {
        "running": 1020,
        "stopped": 1,
        "gone": 1,
        "ended": 1,
        "unknown": 1,
        "missing": 6,
    }
    page.take(looks(1, 0, step_s=None, usual_s=None, waiting=None)[0])
    assert "busbw_job_step_seconds" not in metrics(page)


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    def ticks(_interval_s: float, _stop: object, count: int | None, _last: object) -> range:
        return range(count or 2)

    monkeypatch.setattr(watch_job, "ticks", ticks)


@pytest.mark.usefixtures("no_waiting")
def test_a_watch_ends_with_what_it_saw(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_job(tmp_path, late_us=4000.0)
    assert guarded(["watch", "job", str(tmp_path), "--count", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum("  step 50." in line for line in lines) == 3
    assert next(line for line in lines if line.startswith("watched for 0"))
    assert "\nWARN    1 time, for 0" in "\n".join(lines)
    assert guarded(["watch", "job", str(tmp_path), "--format", "json"]) == 0
    printed = capsys.readouterr()
    assert [json.loads(line)["kind"] for line in printed.out.splitlines()] == ["late"] * 2
    assert printed.err.startswith("watched for 0")
    assert guarded(["watch", "job", str(tmp_path), "--once", "--listen"]) == 2
    assert "--once: it ends after 5 readings" in capsys.readouterr().err


@pytest.mark.usefixtures("no_waiting")
def test_a_terminal_gets_a_screen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_job_output, "is_terminal", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    write_job(tmp_path)
    assert guarded(["watch", "job", str(tmp_path), "--color", "never"]) == 0
    before, *frames = capsys.readouterr().out.split("\x1b[H")
    assert (before, len(frames)) == ("\x1b[2J", 2)
    last, _, closing = frames[1].partition("\x1b[J")
    assert last.startswith(f"{tmp_path.name}  3 ranks on ") and closing.startswith("watched for ")


@pytest.mark.usefixtures("no_waiting")
def test_metrics_are_served_and_nothing_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_job(tmp_path)
    assert guarded(["watch", "job", str(tmp_path), "--listen", "127.0.0.1:0"]) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("note: serving http://127.0.0.1:")
    monkeypatch.setattr(watch_job, "SERVED_S", 0.0)
    for path in tmp_path.iterdir():
        path.unlink()
    (tmp_path / "pattern.jsonl").touch()  # the job has ended
    assert guarded(["watch", "job", str(tmp_path), "--listen", "127.0.0.1:0"]) == 3
    assert "\nnote: metrics are served for 0 s more\n" in capsys.readouterr().err
    assert guarded(["watch", "job", str(tmp_path), "--listen", "0.0.0.0:0"]) == 2
    assert "add --token-file FILE" in capsys.readouterr().err


def test_the_published_structure_has_the_delay_of_each_rank(tmp_path: Path) -> None:
    """As the watch of a folder finds it: rank 1 is late by 4 ms."""
    from busbw.job.live.judge import judge
    from busbw.job.live.reader import JobFolder
    from busbw.job.live.types import interval

    write_job(tmp_path, late_us=4000.0)
    look = JobFolder(tmp_path).look()
    ranks = msgspec.json.decode(view.line(interval(look, judge(look))))["ranks"]
    assert [round(rank["late_s"], 3) for rank in ranks] == [-0.002, 0.004, -0.002]
    assert 0.003 < ranks[1]["late_low_s"] < ranks[1]["late_s"] < ranks[1]["late_high_s"] < 0.005


@pytest.mark.parametrize(
    ("found", "commands"),
    [
        (None, ["py-spy dump --pid 7  # pip install py-spy", "py-spy dump --pid 8  # on h1"]),
        ("/bin/py-spy", ["py-spy dump --pid 7", "py-spy dump --pid 8  # on h1"]),
    ],
)
def test_how_to_install_what_shows_stacks_is_said_once_where_it_is_not(
    found: str | None,
    commands: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(watch_job_output.shutil, "which", lambda _name: found)
    output = watch_job_output.JobOutput("table", "run1", once=False)
    for rank, command in ((1, "py-spy dump --pid 7"), (2, "py-spy dump --pid 8  # on h1")):
        words = {"kind": "missing", "suspects": [rank], "message": f"rank {rank}", "next": command}
        for interval in looks(2, **words):
            output.show(interval)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("next: ")[1] for line in lines if "next: " in line] == commands
