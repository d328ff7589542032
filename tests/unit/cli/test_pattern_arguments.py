"""`busbw show` of patterns: files and directories in, tables and exit codes out."""

import csv
import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from busbw.cli.main import cli, guarded
from busbw.core.errors import UsageError

Output = pytest.CaptureFixture[str]


@pytest.fixture
def samples(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(recorded / "patterns")
    return recorded / "patterns"


def refused(*words: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        cli.main(["show", *words], prog_name="busbw", standalone_mode=False)
    assert caught.value.hint
    return caught.value


@pytest.mark.usefixtures("samples")
@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("clog_v1.log", 0),
        ("inspector_v4.3.jsonl", 0),
        ("nccl_under_ray.log", 1),
        ("nccl_2.20_choices.log", 2),
        ("kineto_gloo_rank_0.json", 2),
    ],
)
def test_the_exit_code_is_1_for_a_part_and_2_for_nothing(
    file: str, code: int, capsys: Output
) -> None:
    assert guarded(["show", file]) == code
    captured = capsys.readouterr()
    assert bool(captured.out) == (code != 2) and bool(captured.err) == (code == 2)


@pytest.mark.usefixtures("samples")
@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("inspector_v4.0.jsonl", "communication's GPU time"),
        ("clog_v1.log", "CPU time"),
        ("simai_moe.txt", "bytes (average of all ranks; the calls are not timed)"),
    ],
)
def test_the_table_names_its_sort_key_and_fits_80_columns(
    file: str, kind: str, capsys: Output
) -> None:
    assert guarded(["show", file]) == 0
    table = capsys.readouterr().out
    assert f"sorted by share of {kind}" in table
    assert max(map(len, table.splitlines())) <= 80


def test_directory_stands_for_its_files_in_order_of_ranks(
    samples: Path, tmp_path: Path, capsys: Output
) -> None:
    data = (samples / "flight_recorder_2.10_gloo_rank_0.pickle").read_bytes()
    for rank in (0, 2, 10):
        (tmp_path / f"dump_rank_{rank}").write_bytes(data)
    (tmp_path / ".hidden").write_text("no dump")
    assert guarded(["show", str(tmp_path), "--format", "jsonl"]) == 0
    header = json.loads(capsys.readouterr().out.splitlines()[0])
    assert header["ranks"] == [0, 2, 10]


def test_files_can_be_compressed_or_come_from_stdin(
    samples: Path, tmp_path: Path, capsys: Output
) -> None:
    data = (samples / "clog_v1.log").read_bytes()
    (tmp_path / "clog.gz").write_bytes(gzip.compress(data))
    assert guarded(["show", "clog_v1.log"]) == 0
    plain = capsys.readouterr().out
    assert guarded(["show", str(tmp_path / "clog.gz")]) == 0
    assert capsys.readouterr().out == plain
    assert CliRunner().invoke(cli, ["show", "-"], input=data, standalone_mode=False).output == plain


@pytest.mark.usefixtures("samples")
def test_record_is_a_format_like_the_others(tmp_path: Path, capsys: Output) -> None:
    file = tmp_path / "pattern.jsonl"
    assert guarded(["show", "clog_v1.log", "--format", "jsonl", "--output", str(file)]) == 0
    assert guarded(["show", "clog_v1.log"]) == 0
    before = capsys.readouterr().out
    assert guarded(["show", str(file)]) == 0
    assert capsys.readouterr().out == before
    assert "2 files, the first of them a record" in refused(str(file), str(file)).message


@pytest.mark.usefixtures("samples")
def test_pattern_csv_of_a_log(capsys: Output) -> None:
    assert guarded(["show", "nccl_2.23_fsdp.log", "--format", "pattern-csv", "--calls"]) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines()[1:] == [
        "allgather,2359808,float32,4,?,?,37756928,?,2",
        "broadcast,1,int64,4,?,?,8,?,1",
        "broadcast,3145,uint8,4,?,?,3145,?,1",
    ]
    assert "note: 3 of 4 ranks were read; the log does not say which" in captured.err


def test_invalid_arguments_are_refused(samples: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    copy = tmp_path / "clog.log"
    copy.write_bytes((samples / "clog_v1.log").read_bytes())
    assert "adds a column to pattern-csv" in refused("clog_v1.log", "--calls").message
    assert refused("-", "-").message == "stdin is given twice"
    assert refused(str(tmp_path / "empty")).message.endswith("there are no files in this directory")
    (tmp_path / "empty" / "gpu_error").mkdir()
    hint = f"name one of its directories: {tmp_path}/empty/gpu_error"
    assert refused(str(tmp_path / "empty")).hint == hint
    assert refused("missing.log").message == "missing.log: No such file or directory"
    assert "unknown format 'nccl'" in refused("clog_v1.log", "--input-format", "nccl").message
    assert "would overwrite" in refused(str(copy), "--output", str(copy)).message
    assert copy.read_bytes() == (samples / "clog_v1.log").read_bytes()


def test_a_trace_for_perfetto_has_a_slice_for_each_timed_call(
    samples: Path, capsys: Output
) -> None:
    ranks = [f"profiler_rank_{rank}.capture.gz" for rank in range(2)]
    assert guarded(["show", *ranks, "--format", "perfetto"]) == 0
    events = json.loads(capsys.readouterr().out)["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    assert slices and all(event["dur"] >= 0 and event["ts"] >= 0 for event in slices)
    named = {(event["pid"], event.get("tid")) for event in events if event["ph"] == "M"}
    assert {(event["pid"], event["tid"]) for event in slices} <= named
    assert (
        "no call of this pattern has a start"
        in refused("simai_moe.txt", "--format", "perfetto").message
    )


@pytest.mark.usefixtures("samples")
def test_steps_of_a_server_are_csv(capsys: Output) -> None:
    file = "kineto_vllm_prefill_rank_0.json"
    assert guarded(["show", file, "--format", "steps-csv"]) == 0
    first, second = csv.DictReader(capsys.readouterr().out.splitlines())
    assert (first["phase"], first["steps"], first["calls_function"]) == (
        "prefill",
        "1",
        "all_reduce",
    )
    assert first["share_median"] == second["share_median"] == first["share_high"]
    assert (second["calls_library"], second["calls_bytes"]) == ("NCCL or RCCL", "402176")
    assert float(first["calls_per_step"]) == 3


@pytest.mark.usefixtures("samples")
def test_a_pattern_of_no_server_has_no_steps() -> None:
    error = refused("clog_v1.log", "--format", "steps-csv")
    assert "no steps of an inference server" in error.message


@pytest.mark.usefixtures("samples")
def test_a_phase_without_communication_is_a_line(capsys: Output) -> None:
    assert guarded(["show", "kineto_sglang_decode.json", "--format", "steps-csv"]) == 0
    (line,) = csv.DictReader(capsys.readouterr().out.splitlines())
    assert (line["phase"], line["share_median"], line["calls_function"]) == ("decode", "0.0", "")
