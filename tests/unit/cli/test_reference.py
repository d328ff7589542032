"""`busbw reference` as a person types it, with results of two H200 and a log of 8 H100."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from busbw.cli.main import guarded
from busbw.cli.min_busbw import REFERENCE, Minimum
from busbw.core.cells import figures
from busbw.core.errors import Exit, NoMeasurement, UsageError
from busbw.core.result import EngineLibrary, Result
from busbw.report import read, results

ROOT = Path(__file__).resolve().parents[3]
RUNS = ROOT / "benchmarks" / "all_reduce_2xh200_202611"
Busbw = Callable[..., tuple[int, str, str]]
M = 1 << 20


@pytest.fixture
def busbw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Busbw:
    """Exit code, stdout and stderr of `busbw ...`, with its own runs under tmp_path."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO())
        code = guarded(list(words))
        captured = capsys.readouterr()
        if "json" not in words:
            lines = captured.out.splitlines()
            assert all(len(line) <= 80 for line in lines if "http" not in line)
        return code, captured.out, captured.err

    return run


def load(file: Path) -> Result:
    result = read.read(file.read_bytes(), file.name)
    assert isinstance(result, Result)
    return result


def write(result: Result, name: str) -> str:
    Path(name).write_text(results.render(result))
    return name


def test_lists_and_shows_published_runs(busbw: Busbw) -> None:
    code, out, _ = busbw("reference", "--system", "h200x8", "--nodes", "1")
    assert code == 0
    assert "1 x 8 H200" in out and "az_1x8_h200" in out and "h100" not in out
    assert "9 curves of 5 runs" in out
    assert busbw("reference", "--collective", "alltoall", "--nodes", "9")[2] == "no such curve\n"
    words = ("--format", "json", "--collective", "gather", "--nodes", "2")
    out = busbw("reference", *words)[1]
    document = json.loads(out)
    assert document["schema"] == "busbw.reference/1"
    assert [curve["collective"] for curve in document["curves"]] == ["gather"]
    assert len(document["sources"]) == 1
    out = busbw("reference", "show", "az_1x8_h200")[1]
    assert "link     https://github.com/Azure/" in out and "8 GiB  479.96" in out
    error = busbw("reference", "show", "az_1x8_h2")[2]
    assert "no run of this name, and no such file" in error
    assert busbw("reference", "--nodes", "2", "show", "az_1x8_h200")[0] == 2


def test_a_log_beside_published_runs(busbw: Busbw, recorded: Path) -> None:
    log = str(recorded / "nccl_tests/old/all_reduce_2x8_h100.txt")
    code, out, _ = busbw("reference", "show", log, "--nics", "8x100G", "--plot")
    assert code == 0
    assert "no reference: " in out
    assert "model" in out and "o measured, | reference" in out
    document = json.loads(
        busbw("reference", "show", log, "--system", "h200x8", "--nodes", "2", "--format", "json")[1]
    )
    assert document["rows"][-1]["runs"] == ["rh_2x8_h200_roce", "runai_nebius_ar", "oci_h200_2x8"]
    Path("compared.json").write_text(json.dumps(document))
    assert busbw("show", "compared.json")[1].startswith(log[:20])
    assert busbw("reference", "show", log)[0] == 2  # its NICs are unknown


def test_own_runs_come_first_everywhere(busbw: Busbw) -> None:
    files = [str(RUNS / f"run_{number}.json") for number in (1, 2, 3)]
    code, out, _ = busbw("reference", "add", *files[:2])
    assert (code, out.count(": run run_")) == (0, 2)
    out = busbw("reference", "show", files[2])[1]
    assert "median of your own runs" in out and "  own runs\n" in out
    assert "2 of them your own" in busbw("reference", "--system", "h200x2")[1]
    assert "calibration" in busbw("predict", "--system", "h200x2", "-b", "1G")[1]
    assert busbw("predict", "all_gather", "--system", "h200x2")[0] == 0, "none of it was asked for"
    assert "2 curves of 2 runs" in busbw("show", "data/busbw/reference.json")[1]
    assert busbw("reference", "add", files[0])[0] == 2
    assert busbw("reference", "remove", "run_1", "run_9")[0] == 2
    assert busbw("reference", "remove", "run_1", "run_2")[0] == 0
    assert "calibration" not in busbw("predict", "--system", "h200x2", "-b", "1G")[1]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"out_of_bounds": 1}, "it has wrong data"),
        ({"complete": False}, "its sweep did not end"),
        ({"argv": ["busbw", "run", "--inject", "late:rank=1"]}, "a fault was injected"),
        ({"library": EngineLibrary("sim")}, "it was simulated"),
        ({"library": EngineLibrary("mpi")}, "its ranks ran on CPUs"),
        ({"errors": ["rank 1 was lost"]}, "it ended with an error: rank 1 was lost"),
    ],
)
def test_an_unhealthy_result_is_refused(
    busbw: Busbw, changes: dict[str, object], text: str
) -> None:
    good = str(RUNS / "run_2.json")
    name = write(msgspec.structs.replace(load(RUNS / "run_1.json"), **changes), "bad.json")
    code, out, error = busbw("reference", "add", good, name)
    assert (code, out) == (2, "")
    assert f"error: bad.json: {text}" in error
    assert not Path("data/busbw/reference.json").exists()  # all or none


def test_times_that_contradict_each_other_are_refused(busbw: Busbw) -> None:
    assert busbw("reference", "add", str(RUNS / "run_1.json"))[0] == 0
    result = load(RUNS / "run_2.json")
    for row in result.rows:
        if row.size_bytes == 64 * M and row.out_of_place:
            row.out_of_place.time_s *= 4
    error = busbw("reference", "add", write(result, "odd.json"))[2]
    assert "odd.json: 64 MiB took " in error
    assert "in run 'run_1' of the same job" in error
    twice = load(RUNS / "run_2.json")
    again = msgspec.convert(msgspec.to_builtins(twice.rows[-1]), type(twice.rows[-1]))
    assert again.out_of_place
    again.out_of_place.time_s *= 4
    twice.rows.append(again)
    error = busbw("reference", "add", write(twice, "twice.json"))[2]
    assert "twice.json: row 8 GiB float: " in error and "contradict each other" in error


def test_the_setting_names_the_file(busbw: Busbw, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("busbw.toml").write_text('reference = "shared.json"\n')
    assert busbw("reference", "add", str(RUNS / "run_1.json"))[0] == 0
    assert Path("shared.json").exists()
    monkeypatch.setenv("BUSBW_REFERENCE", "off")
    assert "run_1" not in busbw("reference", "--system", "h200x2")[1]
    assert "no file of your own runs" in busbw("reference", "remove", "run_1")[2]
    Path("broken.json").write_text("{")
    code, _, error = busbw("predict", "--system", "h200x2")
    assert code == 0, error
    monkeypatch.setenv("BUSBW_REFERENCE", "broken.json")
    assert "broken.json" in busbw("predict", "--system", "h200x2")[2]


def test_the_gate_by_a_reference(busbw: Busbw) -> None:
    result = load(RUNS / "run_3.json")
    other = msgspec.structs.replace(result.spec, collective="hypercube")
    gate = Minimum(None, 0.9, REFERENCE)
    gate.refuse(result)
    assert gate.judge(result) == (Exit.OK, "")
    result = msgspec.structs.replace(result, spec=other)
    with pytest.raises(NoMeasurement, match="no published run of hypercube on 1 x 2 H200"):
        gate.refuse(result)
    code, reason = gate.judge(result)
    assert code is Exit.UNKNOWN and "no published run" in reason
    result = load(RUNS / "run_3.json")
    own = Path("own.json")
    assert busbw("reference", "add", str(RUNS / "run_1.json"), "--reference", str(own))[0] == 0
    gate = Minimum(None, 0.9, REFERENCE, own)
    gate.refuse(result)
    assert gate.judge(result) == (Exit.OK, "")
    code, reason = Minimum(None, 1.5, REFERENCE, own).judge(result)
    assert code is Exit.BAD
    assert "% of your own run of 1 x 2 H200, below --min-percent 150% (sources: " in reason
    for figure in figures(result.rows[-1]):
        cell, middle_s = figure.cell, figure.time_s / 1.1
        cell.time_s, cell.busbw, cell.stopped = middle_s, 1.1 * cell.busbw, "unstable"
        cell.low_s, cell.high_s = middle_s / 2, 2 * middle_s
    code, reason = Minimum(None, 1.5, REFERENCE, own).judge(result)
    assert code is Exit.UNKNOWN and "its samples did not settle" in reason
    on_cpus = msgspec.structs.replace(result, library=EngineLibrary("mpi"))
    with pytest.raises(NoMeasurement, match="only runs of GPUs over NCCL"):
        gate.refuse(on_cpus)
    with pytest.raises(UsageError, match="--min-percent is not given"):
        Minimum(None, None, REFERENCE).check()
