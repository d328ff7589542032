"""`busbw history`: add, list, plot and check as a person types them."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from busbw.cli.main import guarded
from busbw.core.result import Cell, Device, Library, Result, Row, World
from busbw.core.sweep import SweepSpec
from busbw.views import result_json

Busbw = Callable[..., tuple[int, str, str]]


@pytest.fixture
def busbw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Busbw:
    """Exit code, stdout and stderr of `busbw history ...` with its file under tmp_path."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str, str]:
        code = guarded(["history", *words])
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


def write(file: Path, number: int, slower: float = 1.0, complete: bool = True) -> str:
    """A result of three sizes in both placements; the largest takes `slower` times as long out of place."""
    draw = random.Random(number)
    rows = []
    for i, size in enumerate((8, 1 << 20, 1 << 30)):
        times = [1e-5 * 10**i * draw.lognormvariate(0, 0.01) * (slower if (i, side) == (2, 0) else 1) for side in (0, 1)]
        rows.append(Row(size, size // 4, "float", "sum", -1, *(Cell(time_s, size / time_s, size / time_s) for time_s in times), 20))
    devices = [Device(i, 1, "gpu-7", i, "", "NVIDIA H200") for i in range(8)]
    result = Result(SweepSpec(collective="all_reduce"), start=f"2026-11-{number + 1:02} 08:00:00", rows=rows, complete=complete,
        world=World(devices, 8), library=Library("nccl", 22809),
    )  # fmt: skip
    file.write_text(result_json.render(result))
    return file.name


@pytest.fixture
def kept(busbw: Busbw, tmp_path: Path) -> list[str]:
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
    code, _, told = busbw("add", write(tmp_path / "a.json", 1), "missing.json")
    assert (code, told.splitlines()[0]) == (2, "error: missing.json: No such file or directory")
    assert busbw("list")[0] == 2


def test_the_list_is_newest_first_with_machine_sizes_and_peak(busbw: Busbw, kept: list[str]) -> None:
    code, out, _ = busbw("list")
    titles, newest, *others = out.splitlines()
    assert code == 0
    assert titles.split("  ")[:2] == ["id", "when"]
    assert newest.startswith("19  2026-11-19 08:00:00  all_reduce  8 B to 1 GiB")
    assert newest.endswith("classic  2.28.9  gpu-7: 8 x NVIDIA H200, nccl")
    assert len(others) == 18
    assert busbw("list", "--collective", "allgather") == (0, "", "no such run\n")
    assert len(busbw("list", "--machine", "GPU-7")[1].splitlines()) == 20
    assert busbw("list", "--collective", "all_redcue")[0] == 2


def test_the_plot_has_a_bar_for_each_run_of_one_size(busbw: Busbw, kept: list[str]) -> None:
    code, out, _ = busbw("plot", "--size", "1G", "--last", "3")
    above, below = out.split("\n\nAllReduce")
    assert code == 0
    assert above.startswith("AllReduce, 1 GiB out of place, float, sum; classic timing\ngpu-7: 8 x NVIDIA H200, nccl\n\nid  when   ")
    assert "1 GiB in place" in below
    assert max(line.count("█") for line in above.splitlines()) == 40
    code, _, told = busbw("plot", "--size", "3M")
    assert (code, "no such run has 3 MiB" in told) == (2, True)


def test_a_slower_run_makes_check_exit_1(busbw: Busbw, kept: list[str], tmp_path: Path) -> None:
    code, out, _ = busbw("check", write(tmp_path / "fine.json", 20))
    assert (code, out.splitlines()[0]) == (0, "FINE  none of 6 cells is slower than in the last 19 runs")
    assert "is 5 %" in out
    code, out, _ = busbw("check", write(tmp_path / "slow.json", 21, slower=1.25))
    assert code == 1
    assert out.startswith("SLOWER  1 of 6 cells than in the last 19 runs, largest 1.2")
    assert "1 GiB  out of place" in out
    assert len(busbw("list")[1].splitlines()) == 20  # what is checked is not added


def test_too_few_runs_are_unknown_with_a_hint(busbw: Busbw, tmp_path: Path) -> None:
    files = [write(tmp_path / f"{number}.json", number) for number in range(6)]
    busbw("add", *files)
    slow = write(tmp_path / "slow.json", 21, slower=2.0, complete=False)
    code, out, told = busbw("check", slow)
    assert (code, out.splitlines()[0]) == (3, "UNKNOWN  6 comparable runs of this machine are stored, 19 are needed for 95 % confidence")
    assert "note: slow.json is of a sweep that did not end" in told
    less = told.split("--confidence ")[1].strip()
    assert busbw("check", slow, "--confidence", less)[0] == 1
    assert "hint: add --last 99" in busbw("check", slow, "--confidence", "99%")[2]


def test_a_run_is_not_compared_with_itself(busbw: Busbw, kept: list[str]) -> None:
    assert busbw("check", kept[0])[1].startswith("UNKNOWN  18 comparable runs")


def test_another_file_can_be_named(busbw: Busbw, tmp_path: Path) -> None:
    assert busbw("add", write(tmp_path / "a.json", 1), "--db", "own.sqlite")[0] == 0
    assert (tmp_path / "own.sqlite").exists()
    assert busbw("list")[0] == 2
    assert busbw("list", "--db", "a.json")[0] == 2
