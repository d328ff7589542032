"""`busbw train gpt` on a CPU, each method in a process of its own."""

import json

import pytest

from busbw.cli.main import guarded

HANG_S = 300  # where other processes use all cores
pytestmark = [pytest.mark.torch, pytest.mark.timeout(HANG_S + 60)]

SMALL = ("gpt", "--params", "2M", "--sequence", "16", "--batch-size", "2")


def test_ways_are_compared_and_one_that_fails_is_recorded(run, warm_python, tmp_path, capsys):
    words = ("--warmup", "1", "--iters", "2", "--compare", "offload,torchao", "--json", "r.json")
    done = run("busbw", "train", *SMALL, *words, limit_s=HANG_S, python=warm_python)
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0] == "# gpt: 1,914,496 parameters in 7 layers of 128, vocabulary of 4,096"
    assert [line.split()[0] for line in lines[4:]] == ["method", "offload", "torchao"]
    assert "torchao" in lines[-1]
    runs = json.loads((tmp_path / "r.json").read_text())["training"]["runs"]
    assert [len(method_run["steps_s"]) for method_run in runs] == [2, 0]
    assert runs[0]["states"]["down_bytes"] == pytest.approx(2 * 1_914_496, rel=1e-3)
    assert guarded(["show", str(tmp_path / "r.json"), "--wide"]) == 0
    assert capsys.readouterr().out == done.out
    assert guarded(["show", str(tmp_path / "r.json"), "--format", "markdown"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[0] for line in table] == [
        "| method",
        "| ---",
        "| offload",
        "| torchao",
    ]


def test_a_model_that_fits_in_no_way_has_exit_code_3(run, warm_python):
    words = ("gpt", "--params", "500B", "--compare", "adamw", "--no-history")
    done = run("busbw", "train", *words, limit_s=HANG_S, python=warm_python)
    assert (done.code, "does not fit in host memory" in " ".join(done.out.split())) == (3, True)
