"""`busbw history`: add, list, plot and check as a person types them."""

import fcntl
import io
import json
import os
import pty
import random
import sqlite3
import subprocess
import sys
import termios
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from busbw.backends.types import BackendsResult
from busbw.cli.main import guarded
from busbw.core.result import Cell, EngineLibrary, RankDevice, Result, ResultRow, World
from busbw.core.sweep import SweepSpec
from busbw.moe.types import MoeResult, MoeSpec
from busbw.overlap.types import OverlapResult
from busbw.report import results

Busbw = Callable[..., tuple[int, str, str]]


@pytest.fixture
def busbw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Busbw:
    """Exit code, stdout and stderr of `busbw history ...` with its file under tmp_path."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO())
        code = guarded(["history", *words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def write(file: Path, number: int, slower: float = 1.0, complete: bool = True) -> str:
    """A result of three sizes in both placements; the largest takes `slower` times as long out
    of place.
    """
    draw = random.Random(number)
    rows = []
    for i, size in enumerate((8, 1 << 20, 1 << 30)):
        times = [
            1e-5 * 10**i * draw.lognormvariate(0, 0.01) * (slower if (i, side) == (2, 0) else 1)
            for side in (0, 1)
        ]
        rows.append(
            ResultRow(
                size,
                size // 4,
                "float",
                "sum",
                -1,
                *(Cell(time_s, size / time_s, size / time_s) for time_s in times),
                20,
            )
        )
    devices = [RankDevice(i, 1, "gpu-7", i, "", "NVIDIA H200") for i in range(8)]
    result = Result(
        SweepSpec(collective="all_reduce"),
        start=f"2026-11-{number + 1:02} 08:00:00",
        rows=rows,
        complete=complete,
        world=World(devices, 8),
        library=EngineLibrary("nccl", 22809),
    )
    file.write_text(results.render(result))
    return file.name


@pytest.fixture
def stored_runs(busbw: Busbw, tmp_path: Path) -> list[str]:
    """19 runs in the history."""
    files = [write(tmp_path / f"run_{number}.json", number) for number in range(19)]
    assert busbw("add", *files)[0] == 0
    return files


def test_adding_a_run_twice_stores_it_once(busbw: Busbw, tmp_path: Path) -> None:
    first, second = write(tmp_path / "a.json", 1), write(tmp_path / "b.json", 2)
    assert busbw("add", first, second) == (0, "a.json: run 1\nb.json: run 2\n", "")
    assert busbw("add", first) == (0, "a.json: run 1, which was there already\n", "")
    assert (tmp_path / "data" / "busbw" / "history.sqlite").exists()


def test_an_unreadable_file_adds_nothing_of_the_list(busbw: Busbw, tmp_path: Path) -> None:
    code, _, err = busbw("add", write(tmp_path / "a.json", 1), "missing.json")
    assert (code, err.splitlines()[0]) == (2, "error: missing.json: No such file or directory")
    assert busbw()[0] == 2


def test_other_runs_than_sweeps_are_called_what_they_are(busbw: Busbw, tmp_path: Path) -> None:
    spec = SweepSpec(collective="all_reduce")
    for name, made in (
        ("backends.json", BackendsResult(spec=spec)),
        ("overlap.json", OverlapResult(spec=spec, load="gemm")),
        ("moe.json", MoeResult(moe=MoeSpec(experts=64))),
    ):
        (tmp_path / name).write_text(results.render(made))
        assert busbw("add", name)[0] == 0
    _, out, _ = busbw()
    for text in ("  backends of all_reduce ", "  all_reduce beside gemm ", "  mixture of 64 exp"):
        assert text in out


def test_the_list_is_newest_first_with_machine_sizes_and_peak(
    busbw: Busbw, stored_runs: list[str]
) -> None:
    code, out, _ = busbw("--wide")
    titles, newest, *other_lines = out.splitlines()
    assert code == 0
    assert titles.split("  ")[:2] == ["id", "when"]
    assert newest.startswith("19  2026-11-19 08:00:00  all_reduce  8 B to 1 GiB")
    assert newest.endswith("classic  2.28.9  gpu-7: 8 x NVIDIA H200, nccl")
    assert len(other_lines) == 18
    assert busbw("--collective", "allgather") == (0, "", "no such run\n")
    assert len(busbw("--machine", "GPU-7")[1].splitlines()) == 20
    assert busbw("--collective", "all_redcue")[0] == 2


def test_the_plot_has_a_bar_for_each_run_of_one_size(busbw: Busbw, stored_runs: list[str]) -> None:
    code, out, _ = busbw("plot", "--size", "1G", "--last", "3", "--wide")
    above, below = out.split("\n\nAllReduce")
    assert code == 0
    assert above.startswith(
        "AllReduce, 1 GiB out of place, float, sum; classic timing\n"
        "gpu-7: 8 x NVIDIA H200, nccl\n\n"
        "id  when   "
    )
    assert "1 GiB in place" in below
    assert max(line.count("█") for line in above.splitlines()) == 40
    code, _, err = busbw("plot", "--size", "3M")
    assert (code, "no such run has 3 MiB" in err) == (2, True)


def test_a_slower_run_makes_check_exit_1(
    busbw: Busbw, stored_runs: list[str], tmp_path: Path
) -> None:
    code, out, _ = busbw("check", write(tmp_path / "fine.json", 20))
    assert (code, out.splitlines()[0]) == (
        0,
        "FINE  none of 6 cells is slower than in the last 19 runs",
    )
    assert "is 5 %" in out
    code, out, _ = busbw("check", write(tmp_path / "slow.json", 21, slower=1.25))
    assert code == 1
    assert out.startswith("SLOWER  1 of 6 cells than in the last 19 runs, largest 1.2")
    assert "1 GiB  out of place" in out
    assert len(busbw()[1].splitlines()) == 20  # what is checked is not added


def test_too_few_runs_are_unknown_with_a_hint(busbw: Busbw, tmp_path: Path) -> None:
    busbw("add", *(write(tmp_path / f"{number}.json", number) for number in range(2)))
    slow = write(tmp_path / "slow.json", 21, slower=4.0, complete=False)
    code, out, err = busbw("check", slow, "--wide")
    first = (
        "UNKNOWN  2 comparable runs of this machine are stored; 3 show large changes, 19 are needed"
        " for 95 % confidence"
    )
    assert (code, out.splitlines()[0]) == (3, first)
    assert "note: slow.json is of a sweep that did not end" in err
    lower_confidence = err.split("--confidence ")[1].strip()
    assert busbw("check", slow, "--confidence", lower_confidence)[0] == 1
    busbw("add", *(write(tmp_path / f"{number}.json", number) for number in range(2, 7)))
    assert (
        "hint: add --last 99"
        in busbw(
            "check", write(tmp_path / "like.json", 22), "--confidence", "99%", "--tolerance", "1%"
        )[2]
    )


def test_three_runs_show_large_changes_with_their_confidence(busbw: Busbw, tmp_path: Path) -> None:
    busbw("add", *(write(tmp_path / f"{number}.json", number) for number in range(3)))
    code, out, err = busbw("check", write(tmp_path / "slow.json", 21, slower=4.0), "--wide")
    assert (code, err) == (1, "")
    assert out.startswith("SLOWER  1 of 6 cells than in the last 3 runs, largest 4.")
    assert (
        "judged by the spread of 3 runs: the chance" in out
        and "is 5 % or less if times vary like a normal" in out
    )
    like = write(tmp_path / "like.json", 22)
    code, out, err = busbw("check", like, "--wide")
    assert code == 3
    assert out.startswith(
        "UNKNOWN  no cell is clearly slower than in the last 3 runs, but 2 of 6 cells may be slower"
        " by more than 10 %, at most "
    )
    assert "hint: store more runs of this machine: busbw run, or busbw history add" in err
    code, out, _ = busbw("check", like, "--tolerance", "60%")
    assert (code, out.splitlines()[0]) == (
        0,
        "FINE  none of 6 cells is slower than in the last 3 runs by more than 60 %",
    )


def test_the_least_tolerance_that_would_do_is_named(busbw: Busbw, tmp_path: Path) -> None:
    busbw("add", *(write(tmp_path / f"{number}.json", number) for number in range(6)))
    like = write(tmp_path / "like.json", 22)
    code, _, err = busbw("check", like, "--tolerance", "1%")
    assert code == 3
    least = int(err.split("--tolerance ")[1].strip().removesuffix("%"))
    assert busbw("check", like, "--tolerance", f"{least}%")[0] == 0
    assert busbw("check", like, "--tolerance", f"{least - 1}%")[0] == 3


def test_differences_from_the_newest_run_are_named(
    busbw: Busbw, stored_runs: list[str], tmp_path: Path
) -> None:
    other = json.loads((tmp_path / stored_runs[0]).read_text()) | {"start": "2026-11-21 08:00:00"}
    other["library"] |= {"nccl": 23001, "versions": {"nccl4py": "0.7"}}
    other["environment"] = {"NCCL_ALGO": "Ring", "PMIX_RANK": "3"}
    (tmp_path / "other.json").write_text(json.dumps(other))
    code, _, err = busbw("check", "other.json")
    assert (code, err) == (
        0,
        "note: unlike run 19: NCCL 2.28.9 -> 2.30.1, NCCL_ALGO unset -> Ring\n",
    )
    (tmp_path / "log.json").write_text(
        json.dumps(other | {"tool": "nccl-tests", "environment": {}})
    )
    assert busbw("check", "log.json")[2] == "note: unlike run 19: NCCL 2.28.9 -> 2.30.1\n"


def test_an_unusual_run_is_named_and_its_removal_offered(
    busbw: Busbw, stored_runs: list[str], tmp_path: Path
) -> None:
    busbw("add", write(tmp_path / "odd.json", 19, slower=3.0))
    slow = write(tmp_path / "slow.json", 21, slower=1.4)
    code, out, err = busbw("check", slow, "--wide")
    assert code == 3
    assert out.startswith(
        "UNKNOWN  1 of 6 cells much slower than the median of the last 20 runs, largest 1.39"
    )
    assert "which may be chance: run 20 is unusual too\n" in out and "1 GiB  out of place" in out
    assert (
        err
        == "\nhint: run 20 is far from the others; remove what had a known fault: busbw history rm"
        " 20\n"
    )
    busbw("rm", "20", "--yes")
    assert busbw("check", slow)[0] == 1


@pytest.mark.parametrize(
    ("words", "number"), [(["run:7"], 6), (["-1"], 18), (["-19"], 0), (["--", "run:-2"], 17)]
)
def test_a_stored_run_is_read_in_place_of_a_file(
    busbw: Busbw,
    stored_runs: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    number: int,
) -> None:
    assert guarded(["show", "--format", "json", *words]) == 0
    assert capsys.readouterr().out == (tmp_path / stored_runs[number]).read_text()


def test_a_run_that_is_not_there_is_an_error(
    busbw: Busbw, stored_runs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for name, message in {
        "-20": "-20: the history has 19 runs",
        "run:20": "no run 20 is stored",
        "-0": "No such option '-0'.",
    }.items():
        assert guarded(["show", name]) == 2
        assert f"error: {message}\n" in capsys.readouterr().err
    assert guarded(["compare", "-1", "run.json"]) == 2
    assert guarded(["compare", "--tolerance", "-1", "a", "b"]) == 2
    assert "--tolerance -1" in capsys.readouterr().err, "the value of an option is no run"
    assert busbw("--db", "x.sqlite", "check", "-1")[2].startswith("error: --db before check: ")


def test_the_last_two_runs_are_compared_by_their_ids(
    busbw: Busbw, stored_runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert busbw("add", write(tmp_path / "slow.json", 19, slower=4), "--db", "other.sqlite")[0] == 0
    assert busbw("add", stored_runs[0], "--db", "other.sqlite")[0] == 0
    assert guarded(["compare", "-2", "-1", "--db", "other.sqlite"]) == 3, "1 GiB is ambiguous"
    out = capsys.readouterr().out
    assert "\nA  run:2: " in out and "\nB  run:1: " in out
    assert guarded(["report", "-1", "-2"]) == 0
    assert capsys.readouterr().out == "run-19.html\n"
    assert busbw("check", "-1")[1].startswith("FINE ") or busbw("check", "-1")[0] == 3


def test_runs_are_removed_all_or_none(busbw: Busbw, stored_runs: list[str]) -> None:
    assert busbw("rm", "3", "99", "--yes")[0] == 2
    code, _, err = busbw("rm", "3")
    assert (code, err.splitlines()[-1]) == (2, "hint: add --yes")  # nobody can answer
    assert len(busbw()[1].splitlines()) == 20
    assert busbw("rm", "3", "4", "4", "--yes") == (0, "", "removed 2 runs\n")
    assert [line.split()[0] for line in busbw()[1].splitlines()[-3:]] == ["5", "2", "1"]
    # of 17: also its cells are gone
    assert "is 5.56 %" in busbw("check", stored_runs[2], "--confidence", "94%")[1]
    assert busbw("add", stored_runs[2])[1].endswith("run 20\n")


@pytest.mark.parametrize(
    ("typed", "code", "remaining"), [("y", 0, 18), ("n", 130, 19), ("\x03", 130, 19)]
)
def test_a_person_is_asked(
    typed: str, code: int, remaining: int, busbw: Busbw, stored_runs: list[str], warm_busbw: str
) -> None:
    lead, follow = pty.openpty()
    try:
        os.write(lead, typed.encode() + b"\n")
        words = [warm_busbw, "-m", "busbw", "history", "rm", "5"]
        result = subprocess.run(
            words,
            stdin=follow,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            preexec_fn=_controlled,
        )
    finally:
        os.close(lead)
        os.close(follow)
    assert result.returncode == code
    assert "remove run 5?" in result.stderr
    assert len(busbw()[1].splitlines()) == remaining + 1


def _controlled() -> None:
    """Make stdin the controlling terminal, which sends SIGINT for Ctrl-C."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_an_export_is_read_back_without_loss(
    busbw: Busbw, stored_runs: list[str], tmp_path: Path
) -> None:
    bare = json.loads((tmp_path / stored_runs[0]).read_text()) | {"start": ""}
    (tmp_path / "bare.json").write_text(json.dumps(bare))
    nan = json.loads((tmp_path / stored_runs[1]).read_text())
    nan["rows"][0]["out_of_place"]["busbw"] = "nan"
    (tmp_path / "nan.json").write_text(json.dumps(nan))
    busbw("add", "bare.json", "nan.json")
    code, lines, _ = busbw("export")
    assert (code, len(lines.splitlines())) == (0, 21)
    (tmp_path / "all.jsonl").write_text(lines)
    assert busbw("add", "all.jsonl")[1].count("there already") == 21
    assert busbw("add", "all.jsonl", "--db", "new.sqlite")[0] == 0
    assert busbw("export", "--db", "new.sqlite")[1] == lines
    listed = [
        [line.split()[1:] for line in busbw("--db", db)[1].splitlines()]
        for db in ("new.sqlite", "data/busbw/history.sqlite")
    ]
    assert listed[0] == listed[1]


def test_a_damaged_line_of_an_export_is_named_and_nothing_added(
    busbw: Busbw, stored_runs: list[str], tmp_path: Path
) -> None:
    first, second, *_ = busbw("export")[1].splitlines()
    for broken in (second[:500], "garbage"):
        (tmp_path / "damaged.jsonl").write_text(f"{first}\n{broken}\n{first}\n")
        code, _, err = busbw("add", "damaged.jsonl", "--db", "new.sqlite")
        assert (code, err.partition(": ")[2].partition(":")[0]) == (2, "damaged.jsonl line 2")
    assert busbw("--db", "new.sqlite")[0] == 2
    (tmp_path / "two.jsonl").write_text(f"{first}\n{second}\n")
    assert busbw("check", "two.jsonl")[2].startswith(
        "error: two.jsonl: 2 results, one on each line\n\nhint: busbw history add two.jsonl"
    )


def test_a_damaged_result_names_its_run(
    busbw: Busbw, stored_runs: list[str], tmp_path: Path
) -> None:
    with closing(sqlite3.connect(tmp_path / "data/busbw/history.sqlite")) as connection:
        connection.execute("UPDATE runs SET result = substr(result, 1, 500) WHERE id = 19")
        connection.commit()
    for words in (("export", "19"), ("check", stored_runs[0])):
        code, _, err = busbw(*words)
        assert (
            code == 2
            and err.startswith("error: run 19 is stored with an error: ")
            and err.endswith("busbw history rm 19\n")
        )


def test_a_history_in_a_directory_that_cannot_be_written_is_read(
    busbw: Busbw, stored_runs: list[str], tmp_path: Path
) -> None:
    script = (
        'mount --bind data data && mount -o remount,bind,ro data && for part in "" "rm --yes 1"; do'
        ' "$0" -m busbw history $part; done'
    )
    try:
        words = ["unshare", "-rm", "sh", "-c", script, sys.executable]
        result = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    except FileNotFoundError:
        pytest.skip("needs unshare, of util-linux")
    if "unshare" in result.stderr or "mount" in result.stderr:
        pytest.skip(f"no mount of one's own here: {result.stderr.strip()}")
    assert (len(result.stdout.splitlines()), result.returncode) == (20, 2)
    assert "readonly database" in result.stderr


@pytest.mark.parametrize(
    ("file", "title"),
    [
        ("benchmarks/link_2cpu_202611/four_hosts.json", "link test"),
        ("benchmarks/capture_2xh100_202611/gpt2.jsonl", "pattern"),
        ("benchmarks/tune_2xh100_202611/table", "tuner table"),
        ("tests/recorded/patterns/kineto_nccl_rank_0.json", "trace of torch.profiler"),
    ],
)
def test_a_file_without_a_sweep_is_named_by_its_kind(
    file: str, title: str, busbw: Busbw, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(__file__).parents[3] / file
    refused = f"error: {path}: {title}, not a sweep\n\nhint: busbw show {path}\n"
    assert busbw("add", str(path))[2] == refused
    assert guarded(("compare", str(path), str(path))) == 2 and capsys.readouterr().err == refused


def test_an_export_to_files_that_busbw_show_reads(
    busbw: Busbw, stored_runs: list[str], tmp_path: Path
) -> None:
    code, out, _ = busbw("export", "2", "3", "--directory", "some/where")
    assert (code, out) == (0, "some/where/run-2.json\nsome/where/run-3.json\n")
    assert (tmp_path / "some/where/run-2.json").read_text() == (
        tmp_path / stored_runs[1]
    ).read_text()
    assert busbw("export", "2", "4", "--directory", "some/where")[0] == 2
    assert not (tmp_path / "some/where/run-4.json").exists()
    assert busbw("export", "2", "4", "--directory", "some/where", "--force")[0] == 0
    assert busbw("export", "2", "--machine", "gpu-7")[0] == 2
    assert busbw("export", "99")[0] == 2
    assert busbw("export", "--collective", "broadcast") == (0, "", "no such run\n")
    assert busbw("export", "--directory", "run_1.json")[0] == 2


def test_a_run_is_not_compared_with_itself(busbw: Busbw, stored_runs: list[str]) -> None:
    assert "judged by the spread of 18 runs" in busbw("check", stored_runs[0])[1]


def test_another_file_can_be_named(busbw: Busbw, tmp_path: Path) -> None:
    assert busbw("add", write(tmp_path / "a.json", 1), "--db", "own.sqlite")[0] == 0
    assert (tmp_path / "own.sqlite").exists()
    assert busbw()[0] == 2
    assert busbw("--db", "a.json")[0] == 2
