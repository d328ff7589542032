"""`busbw report` on the command line: where the page goes, what it refuses, and its exit codes."""

import json
import re
import shutil
from pathlib import Path

import pytest

from busbw.cli.main import guarded

pytestmark = pytest.mark.usefixtures("ranks_are_forks")
ROOT = Path(__file__).parents[2]
BENCHMARK = ROOT / "benchmarks" / "all_reduce_2xh200_202611"
LOG = ROOT / "tests" / "recorded" / "nccl_tests" / "all_reduce_2xH200_one_process.txt"


@pytest.fixture
def results(tmp_path):
    """a/run.json of busbw, b/run.json of nccl-tests' kind, and log.txt."""
    for folder, name in (("a", "run_1.json"), ("b", "compat_1.json")):
        (tmp_path / folder).mkdir()
        shutil.copy(BENCHMARK / name, tmp_path / folder / "run.json")
    shutil.copy(LOG, tmp_path / "log.txt")
    return tmp_path


def test_the_page_is_written_next_to_the_first_file(here, results):
    done = here("busbw", "report", "a/run.json", "b/run.json")
    assert (done.code, done.out, done.err) == (0, "a/run.html\n", "")
    text = (results / "a" / "run.html").read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>\n")
    assert "A a/run.json" in text  # with the folder, as both files have one name
    assert "verdict" in text


def test_a_measured_run_becomes_a_page(here, tmp_path):
    assert (
        here(
            "busbw",
            "run",
            "all_reduce",
            "--engine",
            "sim",
            "-np",
            "4",
            "-b",
            "64K",
            "-e",
            "1M",
            "--json",
            "r.json",
        ).code
        == 0
    )
    done = here("busbw", "report", "r.json", "--output", "page.html")
    assert (done.code, done.out, done.err) == (0, "page.html\n", "")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "4 x simulated GPU on 1 host" in text
    assert 'scope="rowgroup" rowspan="2">1 MiB</th>' in text


def test_the_baseline_of_a_directory_is_the_earliest_run(tmp_path, capsys):
    recorded_run = json.loads((BENCHMARK / "run_1.json").read_bytes())
    for name, start in (
        ("after", "2026-11-20T09:00:00+00:00"),
        ("before", "2026-11-20T09:30:00+01:00"),
        ("copied", ""),
    ):
        (tmp_path / f"{name}.json").write_text(json.dumps(recorded_run | {"start": start}))
    assert guarded(["report", str(tmp_path)]) == 0
    assert "copied.json does not say when it was measured" in capsys.readouterr().err
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert re.findall(r"(?<=> )[A-H] \w+\.json", page)[:3] == [
        "A before.json",
        "B after.json",
        "C copied.json",
    ]
    assert page.index("B compared with A") < page.index("C compared with A")
    files = [str(tmp_path / name) for name in ("after.json", "before.json")]
    assert guarded(["report", *files, "--output", str(tmp_path / "named.html")]) == 0
    assert "A after.json" in (tmp_path / "named.html").read_text(encoding="utf-8")


def test_a_page_without_a_precise_cell_has_a_peak(tmp_path, capsys):
    recorded_run = json.loads((BENCHMARK / "run_1.json").read_bytes())
    for row in recorded_run["rows"]:
        for placement in ("out_of_place", "in_place"):
            row[placement]["stopped"] = "unstable"
    (tmp_path / "noisy.json").write_text(json.dumps(recorded_run))
    assert guarded(["report", str(tmp_path / "noisy.json")]) == 0
    page = (tmp_path / "noisy.html").read_text(encoding="utf-8")
    assert re.search(r"Peak busbw [\d.]+ GB/s.* at 8 GiB.*; data check: passed", page)


def test_logs_and_stdin_are_read(here, run, results):
    assert here("busbw", "report", "log.txt").out == "log.html\n"
    done = run("busbw", "report", "-", before=("sh", "-c", '"$@" < log.txt', "sh"))
    assert (done.code, done.out) == (0, "report.html\n")
    assert "AllReduce" in (results / "report.html").read_text(encoding="utf-8")


def test_the_page_can_go_to_stdout(here, run, results):
    before = set(results.rglob("*"))
    page = here("busbw", "report", "log.txt", "--output", "log.html")
    assert (page.code, page.out) == (0, "log.html\n")
    done = run("busbw", "report", "log.txt", "--output", "-", PYTHONIOENCODING="ascii")
    assert (done.code, done.err) == (0, "")
    assert done.out == (results / "log.html").read_text(encoding="utf-8")
    assert not done.out.isascii()
    assert {path.name for path in set(results.rglob("*")) - before} == {"log.html", "bin", "busbw"}


def test_wrong_data_is_exit_code_1_and_still_a_page(here, tmp_path):
    assert (
        here(
            "busbw",
            "run",
            "all_reduce",
            "--engine",
            "sim",
            "-np",
            "2",
            "--sim",
            "corrupt_rank=1",
            "-e",
            "64",
            "--json",
            "r.json",
        ).code
        == 1
    )
    done = here("busbw", "report", "r.json")
    assert (done.code, done.out) == (1, "r.html\n")
    assert "Wrong data" in (tmp_path / "r.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["none.json"], "error: none.json: No such file or directory", "hint: name a result file"),
        (
            ["bin"],
            "error: bin: no file in it ends in .json, .jsonl, .log, .table, .txt",
            "hint: name the files",
        ),
        (
            ["broken"],
            "error: broken/half.json: busbw result: ",
            "hint: give a file that busbw wrote",
        ),
        (
            ["broken", "notes.txt"],
            "error: broken, notes.txt: none of the 2 files can be read",
            "hint: busbw show FILE",
        ),
        (
            ["notes.txt"],
            "error: notes.txt: nccl-tests text: no row",
            "hint: give the standard output",
        ),
        (
            ["log.txt", "--output", "none/page.html"],
            "error: none/page.html: No such file or directory",
            "hint: name a file in a directory",
        ),
        (
            ["log.txt", "--output", "a"],
            "error: a: is a directory",
            "hint: name a file in a directory",
        ),
        (
            ["log.txt", "a/run.json", "--output", "a/run.json"],
            "error: a/run.json: the page would overwrite a result",
            "--output report.html",
        ),
        (
            ["page.html"],
            "error: page.html: the page would overwrite a result",
            "hint: busbw report page.html --output report.html",
        ),
        (
            ["a", "--output", "a/run.json"],
            "error: a/run.json: the page would overwrite a result",
            "--output report.html",
        ),
        (
            ["log.txt"] * 9,
            "error: report: 9 files, and a page shows at most 8",
            "hint: name 8 files or fewer",
        ),
        ([], "Missing argument 'FILE...'", "hint: busbw report --help"),
    ],
    ids=[
        "missing",
        "folder without results",
        "folder of a broken file",
        "broken files",
        "no result",
        "no folder",
        "into a folder",
        "over an input",
        "over itself",
        "over a file of the folder",
        "nine",
        "none",
    ],
)
def test_invalid_arguments_are_refused(results, monkeypatch, capsys, words, message, hint):
    (results / "notes.txt").write_text("nothing measured\n")
    for folder in ("bin", "broken"):
        (results / folder).mkdir()
    (results / "broken" / "half.json").write_text('{"schema": "busbw.result/1", "spec"')
    shutil.copy(LOG, results / "page.html")
    before = {path: path.read_bytes() for path in results.rglob("*.*") if path.is_file()}
    monkeypatch.chdir(results)
    assert guarded(["report", *words]) == 2
    out, err = capsys.readouterr()
    assert out == "" and message in err and hint in err
    assert all(path.read_bytes() == content for path, content in before.items())


def small_files(limit_bytes: int) -> tuple[str, ...]:
    """The start of a command that cannot write larger files.

    It writes no bytecode, which would be cut off and stay so.
    """
    return ("env", "PYTHONDONTWRITEBYTECODE=1", "prlimit", f"--fsize={limit_bytes}")


def test_a_page_that_cannot_be_written_whole_leaves_the_earlier_one(here, run, results):
    (results / "log.html").write_text("earlier")
    done = run("busbw", "report", "log.txt", before=small_files(8192))
    assert (done.code, done.out) == (3, "")
    assert "error: log.html: File too large\n\nhint: make room" in done.err
    assert (results / "log.html").read_text() == "earlier"
    assert (
        here("busbw", "report", "log.txt", "--output", "/dev/null").code == 2
    )  # it would be replaced
    done = run("busbw", "check", "--save", "s.jsonl", before=small_files(256))
    assert (
        done.code,
        [file.name for file in results.iterdir() if file.name.startswith(("s.", ".s."))],
    ) == (3, [])


def test_a_directory_becomes_sections_and_what_cannot_be_read_is_named(here, results):
    link = ROOT / "benchmarks" / "link_2cpu_202611" / "four_hosts.json"
    pattern = ROOT / "benchmarks" / "capture_2xh100_202611" / "gpt2.jsonl"
    snapshot = ROOT / "tests" / "hosts" / "h200x2-recorded.jsonl"
    for file in (link, pattern, snapshot):
        shutil.copy(file, results / "a")
    shutil.copy(link, results / "links.json")
    (results / "a" / "notes.md").write_text("not a result")
    (results / "a" / "week1").mkdir()
    (results / "a" / "slurm-7.out").write_text("a log")
    done = here("busbw", "report", "a", "links.json")
    assert (done.code, done.out) == (0, "a/report.html\n")
    left = "not read of a: slurm-7.out, week1/"
    assert done.err == f"note: {left}; name them to have them in the report\n"
    text = (results / "a" / "report.html").read_text(encoding="utf-8")
    titles = re.findall(r"<h2>(.*?)</h2>", text)
    assert titles[-5:] == [
        "Link test: a/four_hosts.json",
        "Pattern: a/gpt2.jsonl",
        "Snapshot: a/h200x2-recorded.jsonl",
        "Link test: links.json",
        "How to read it",
    ]
    assert "rates between hosts" in text and f">{left}.<" in text
    (results / "a" / "half.json").write_text('{"schema": "busbw.link/1", "hosts": [')
    (results / "a" / "week1").rmdir()
    (results / "a" / "slurm-7.out").unlink()
    for words in (["a"], ["a/half.json", "links.json", "--output", "a/report.html"]):
        part = here("busbw", "report", *words)
        assert (part.code, part.out) == (1, "a/report.html\n")
        assert part.err.startswith(
            "warning: skipped a/half.json: busbw.link/1: Input data was truncated"
        )
        page = (results / "a" / "report.html").read_text(encoding="utf-8")
        assert "a/half.json was skipped" in page
    assert here("busbw", "report", "links.json", "--sign", "key").code == 2
    assert here("busbw", "report", "links.json").code == 0
    assert "<h1>Link test</h1>" in (results / "links.html").read_text(encoding="utf-8")
