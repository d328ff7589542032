"""Errors of `busbw show`, and of all commands that read a result, for a file without a sweep."""

import json
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest

from busbw.cli.file_kinds import load
from busbw.cli.main import guarded
from busbw.core.result import Cell, RankDevice, Result, ResultRow, World
from busbw.core.sweep import SweepSpec
from busbw.report import file_kinds, results
from busbw.report.file_kinds import FileContent

ROOT = Path(__file__).parents[3]
BENCHMARK = ROOT / "benchmarks" / "all_reduce_2xh200_202611"
LINKS = ROOT / "benchmarks" / "link_2cpu_202611" / "four_hosts.json"
PATTERN = ROOT / "benchmarks" / "capture_2xh100_202611" / "gpt2.jsonl"
HOSTS = ROOT / "tests" / "hosts"


# with a bus factor of 0 and of 1
@pytest.mark.parametrize("collective", ["all_reduce", "broadcast"])
@pytest.mark.parametrize(
    "system", [(), ("--system", "h100x8")], ids=["its own system", "a described system"]
)
def test_one_rank_has_nothing_to_explain(
    collective: str, system: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cell = Cell(1e-3, 1e9, 5e9)  # some programs print a busbw for one rank too
    rows = [ResultRow(1 << 20, 1 << 18, "float", "", 0, cell, cell, 20)]
    one_rank = Result(
        SweepSpec(collective=collective),
        rows=rows,
        world=World([RankDevice(0, 1, "h1", 0, "", "NVIDIA H100")], 1),
    )
    (tmp_path / "one.json").write_text(results.render(one_rank))
    assert guarded(("explain", str(tmp_path / "one.json"), *system)) == 3
    assert "one.json: with one rank no data crosses a link" in capsys.readouterr().err


def check_schema(*texts: str) -> None:
    """Each of these fits the schema that the package has for it."""
    for text in texts:
        document = json.loads(text)
        name = f"{document['schema'].replace('/', '-')}.schema.json"
        schema = json.loads((files("busbw") / "schemas" / name).read_text())
        jsonschema.Draft202012Validator(schema).validate(document)


DESCRIBED = ("--system", "h100x8", "--nics", "8x400G")


@pytest.mark.parametrize(
    ("words", "title"),
    [
        (("predict", "all_reduce", "--nodes", "1,4", *DESCRIBED), "Prediction"),
        (("predict", "--pattern", str(PATTERN), *DESCRIBED), "Prediction of an application"),
        (("explain", str(BENCHMARK / "run_1.json")), "Explanation"),
        (("compare", str(BENCHMARK / "run_1.json"), str(BENCHMARK / "torch_1.json")), "Comparison"),
        (("check", "--from", str(HOSTS / "no-nic.jsonl")), "Check of a machine"),
        (
            (
                "check",
                "--from",
                str(HOSTS / "no-nic.jsonl"),
                "--from",
                str(HOSTS / "vm-veth.jsonl"),
            ),
            "Check of several machines",
        ),
        (
            ("check", "command", "--no-machine", "mpirun -np 16 all_reduce_perf -g 8"),
            "Check of a command line",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value[:2]).partition("/")[0],
)
def test_a_saved_answer_is_shown_as_its_command_printed_it(
    words: tuple[str, ...],
    title: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    guarded(words)
    printed = capsys.readouterr().out
    name = 2 if words[:2] == ("check", "command") else 1
    guarded((*words[:name], "--format", "json", *words[name:]))
    saved = capsys.readouterr().out
    (tmp_path / "f.json").write_text(saved)
    check_schema(saved)
    assert guarded(("show", "f.json")) == 0
    assert capsys.readouterr().out == printed
    assert guarded(("show", "f.json", "--format", "json")) == 0
    # that of compare has its texts too
    assert json.loads(capsys.readouterr().out).items() <= json.loads(saved).items()
    document = load("f.json")
    assert isinstance(document, FileContent) and document.title == title


def test_counters_patterns_and_snapshots_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert (
        guarded(("watch", "--no-gpus", "--format", "json", "--count", "2", "--interval", "100ms"))
        == 0
    )
    (tmp_path / "watch.jsonl").write_text(capsys.readouterr().out)
    check_schema(*(tmp_path / "watch.jsonl").read_text().splitlines())
    assert guarded(("show", "watch.jsonl")) == 0
    assert capsys.readouterr().out.startswith("the last of 2 intervals\n")
    assert guarded(("show", str(PATTERN), "--format", "json")) == 2
    assert "which has no format 'json'" in capsys.readouterr().err
    assert guarded(("show", str(LINKS), "--rows", "3")) == 2
    assert "--rows: " in capsys.readouterr().err
    assert guarded(("show", str(LINKS), "--format", "jsonl")) == 2
    assert "--format jsonl is for patterns" in capsys.readouterr().err
    assert guarded(("show", str(HOSTS / "no-nic.jsonl"))) == 0
    assert " checks: " in capsys.readouterr().out
    (tmp_path / "half.json").write_text('{"schema":"busbw.check/1","host":')
    assert guarded(("show", "half.json")) == 2
    assert capsys.readouterr().err.startswith("error: half.json: busbw.check/1: ")


def test_a_tuner_table_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rule = "4 * all_reduce 1024 1048576 Ring LL128 8   # 12.1 % less time"
    (tmp_path / "t.table").write_text(f"busbw-tuner-table 1\nabout device NVIDIA H200\n{rule}\n")
    assert guarded(("show", "t.table")) == 0
    output = capsys.readouterr().out
    assert output.startswith(
        "device    NVIDIA H200\n\nranks  hosts  collective   from     to  choice"
    )
    assert output.endswith(
        "    4    any  all_reduce  1 KiB  1 MiB  Ring LL128, 8 channels  12.1 % less time\n"
    )
    assert guarded(("report", ".")) == 0
    (tmp_path / "t.table").write_text("busbw-tuner-table 1\nrubbish\n")
    assert guarded(("show", "t.table")) == 2


def test_every_kind_has_its_own_schema() -> None:
    names = [kind.name for kind in file_kinds.KINDS]
    names += [kind.schema for kind in results.kinds()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Out of bounds values : 0 OK", "Out of bounds values : 3 FAILED"),
        ("# Avg bus", "node1: Test NCCL failure common.cu:401 'unhandled system error'\n# Avg bus"),
    ],
)
def test_a_failure_in_any_table_of_a_log_is_exit_code_1(
    tmp_path: Path, recorded: Path, old: str, new: str
) -> None:
    good = (recorded / "nccl_tests" / "all_reduce_2xH200_one_process.txt").read_text()
    bad = good.replace(old, new)
    assert bad != good
    for name, text, code in (("good", good * 2, 0), ("bad", bad, 1), ("second", good + bad, 1)):
        (tmp_path / name).write_text(text)
        assert guarded(["show", str(tmp_path / name)]) == code


def test_a_folder_of_results_is_shown_one_at_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    folder = ROOT / "benchmarks" / "overlap_2cpu_202611"
    assert guarded(("show", str(folder))) == 2
    error = capsys.readouterr().err
    assert "all_reduce beside alltoall, and a folder is given" in error
    assert f"busbw show {folder}/alltoall.json; all on one page: busbw report {folder}" in error
