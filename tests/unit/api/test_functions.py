"""What a program calls: the functions answer as their commands, and results show themselves."""

import gzip
import json
import re
import sys
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

import busbw
from busbw.cli.main import cli
from busbw.core.json_codec import encode
from busbw.launch.hosts import hosts_argument

ROOT = Path(__file__).parents[3]
RUN = ROOT / "benchmarks/all_reduce_2xh200_202611/compat_1.json"
SNAPSHOT = ROOT / "tests/hosts/h100x8-ib.jsonl"
PATTERN = ROOT / "tests/recorded/patterns/flight_recorder_2.10_nccl_rank_0.json"


def printed(*arguments: object) -> dict[str, object]:
    words = [str(argument) for argument in (*arguments, "--format", "json")]
    answer: dict[str, object] = json.loads(CliRunner().invoke(cli, words).stdout)
    return answer


def test_predict_answers_as_its_command() -> None:
    answer = busbw.predict("all_gather", system="h100x8", nodes=[1, 2], max_bytes="1M")
    words = ("all_gather", "--system", "h100x8", "--nodes", "1,2", "-e", "1M")
    assert json.loads(encode(answer)) == printed("predict", *words)
    assert {row["hosts"] for row in answer.records()} == {1, 2}


def test_a_prediction_shows_the_peak_on_the_hosts_that_it_names() -> None:
    several, alone = (busbw.predict(system="h100x8", nodes=hosts) for hosts in ([1, 2, 16], 16))
    assert repr(several) == repr(alone)
    assert repr(alone).startswith("<Prediction all_reduce on 16 hosts of h100x8: up to ")


def test_a_predicted_pattern_is_that_of_its_command() -> None:
    answer = busbw.predict(pattern=PATTERN, system="h100x8")
    words = ("--pattern", PATTERN, "--system", "h100x8")
    assert json.loads(encode(answer)) == printed("predict", *words)


def test_check_answers_as_its_command() -> None:
    one = busbw.check(SNAPSHOT, layer="kernel")
    assert json.loads(encode(one)) == printed("check", "--from", SNAPSHOT, "--layer", "kernel")
    other = ROOT / "tests/hosts/no-nic.jsonl"
    assert busbw.check(SNAPSHOT, layer=["Kernel"]).findings == one.findings
    of_gpus = busbw.check(SNAPSHOT, layer=["gpu", "NVLINK"]).findings
    assert {finding.layer for finding in of_gpus} == {"GPU", "NVLink"}
    with pytest.raises(busbw.UsageError, match="unknown layer 'gpus'"):
        busbw.check(SNAPSHOT, layer="gpus")
    words = ("--from", SNAPSHOT, "--from", other, "--layer", "kernel")
    assert json.loads(encode(busbw.check([SNAPSHOT, other], layer="kernel"))) == printed(
        "check", *words
    )


def test_compare_answers_as_its_command(tmp_path: Path) -> None:
    answer = busbw.compare(RUN, [RUN, RUN], tolerance=0.1)
    (tmp_path / "b").mkdir()
    for name in ("1.json", "2.json"):
        (tmp_path / "b" / name).write_bytes(RUN.read_bytes())
    shown = printed("compare", RUN, tmp_path / "b", "--tolerance", "10%")
    assert json.loads(encode(answer))["cells"] == shown["cells"]


def test_files_are_loaded_as_their_objects(tmp_path: Path) -> None:
    packed = tmp_path / "run.json.gz"
    packed.write_bytes(gzip.compress(RUN.read_bytes()))
    result = busbw.load(packed)
    assert isinstance(result, busbw.Result)
    assert re.fullmatch(r"<Result all_reduce on 2 ranks: busbw .* GB/s at 8 GiB.*>", repr(result))
    assert len(result.records()) == 2 * len(result.rows)
    assert [type(busbw.load(file)).__name__ for file in (SNAPSHOT, PATTERN)] == [
        "CheckReport",
        "Pattern",
    ]


def test_a_notebook_gets_no_markup_of_a_file() -> None:
    result = busbw.load(RUN)
    assert isinstance(result, busbw.Result)
    row = msgspec.structs.replace(result.rows[0], dtype="<script>")
    html = msgspec.structs.replace(result, rows=[row])._repr_html_()
    assert "<table" in html and "&lt;script&gt;" in html and "<script" not in html


def test_without_pandas_the_error_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    result = busbw.load(RUN)
    assert isinstance(result, busbw.Result)
    with pytest.raises(busbw.UsageError) as caught:
        result.to_pandas()
    assert caught.value.hint.endswith("-m pip install pandas")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: busbw.load("missing.json"), "missing.json: No such file"),
        (lambda: busbw.load(ROOT / "pyproject.toml"), "pyproject.toml"),
        (lambda: busbw.compare(RUN, SNAPSHOT), "check of a machine|snapshot"),
        (lambda: busbw.compare(RUN, []), "after: \\[\\]"),
        (lambda: busbw.compare(RUN, RUN, tolerance=50), "tolerance 50"),
        (lambda: busbw.predict(system="h100y"), "'h100y' is not a system"),
        (lambda: busbw.predict(sytem="h100x8"), "unknown option 'sytem'"),
        (lambda: busbw.predict(system="h100x8", nodes=0), "nodes 0"),
        (lambda: busbw.predict(pattern=PATTERN, counts="x"), "counts: it is of a collective"),
        (lambda: busbw.check(only="nope"), "no such check 'nope'"),
        (lambda: busbw.check([]), "an empty list of snapshots"),
        (lambda: busbw.run("all_reduce", min_bytes=8), "unknown option 'min_bytes'"),
        (lambda: busbw.run("all_reduce", hosts=[]), "hosts: an empty list"),
        (lambda: busbw.run("all_reduce", hosts=["h1", 8]), "8 is not the name of a host"),
        (lambda: busbw.run("all_reduce", engine="sim", hosts=["h1:2"]), "in this process"),
    ],
)
def test_wrong_use_is_an_error_with_a_hint(call, message: str) -> None:
    with pytest.raises(busbw.UsageError, match=message) as caught:
        call()
    assert caught.value.hint


def test_hosts_are_a_text_or_a_list() -> None:
    assert hosts_argument(["h1", "h2:8"]) == hosts_argument("h1,h2:8") == "h1,h2:8"
    assert hosts_argument(None) == ""


def test_the_notebook_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = ROOT / "docs/how-to/use-from-python.ipynb"
    monkeypatch.chdir(notebook.parent)
    names: dict[str, object] = {}
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert isinstance(names["result"], busbw.Result) and names["rows"]
