"""`busbw train gpt` on a CPU, each method in a process of its own."""

import json

import pytest

pytestmark = pytest.mark.torch

SMALL = ("gpt", "--params", "2M", "--sequence", "16", "--batch-size", "2")


def test_ways_are_compared_and_one_that_fails_is_recorded(run, tmp_path):
    words = ("--warmup", "1", "--iters", "2", "--compare", "offload,torchao", "--json", "r.json")
    done = run("busbw", "train", *SMALL, *words)
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0] == "# gpt: 1,914,496 parameters in 7 layers of 128, vocabulary of 4,096"
    assert [line.split()[0] for line in lines[4:]] == ["method", "offload", "torchao"]
    assert "torchao" in lines[-1]
    runs = json.loads((tmp_path / "r.json").read_text())["training"]["runs"]
    assert [len(one["steps_s"]) for one in runs] == [2, 0]
    assert runs[0]["states"]["down_bytes"] == pytest.approx(2 * 1_914_496, rel=1e-3)
    assert run("busbw", "show", "r.json").out == done.out
    table = run("busbw", "show", "r.json", "--format", "markdown").out.splitlines()
    assert [line.split(" | ")[0] for line in table] == ["| method", "| ---", "| offload", "| torchao"]
