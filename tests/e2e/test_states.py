"""`busbw train gpt` on a CPU, each method in a process of its own, and `busbw plan gpt --memory`."""

import json

import pytest

pytestmark = pytest.mark.torch

SMALL = ("gpt", "--params", "2M", "--sequence", "16", "--batch-size", "2")
MACHINE = ("--gpu-memory", "24G", "--host-memory", "100G", "--tflops", "150", "--pcie", "25", "--adam-rate", "3")


def test_ways_are_compared_and_one_that_fails_is_recorded(run, tmp_path):
    words = ("--warmup", "1", "--iters", "2", "--compare", "compute,offload,torchao", "--json", "r.json")
    done = run("busbw", "train", *SMALL, *words)
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0] == "# gpt: 1,914,496 parameters in 7 layers of 128, vocabulary of 4,096"
    assert [line.split()[0] for line in lines[4:]] == ["method", "compute", "offload", "torchao"]
    assert "torchao" in lines[-1]
    runs = json.loads((tmp_path / "r.json").read_text())["training"]["runs"]
    assert [len(one["steps_s"]) for one in runs] == [2, 2, 0]
    assert runs[1]["states"]["down_bytes"] == pytest.approx(2 * 1_914_496, rel=1e-3)
    assert run("busbw", "show", "r.json").out == done.out
    table = run("busbw", "show", "r.json", "--format", "markdown").out.splitlines()
    assert [line.split(" | ")[0] for line in table] == ["| method", "| ---", "| compute", "| offload", "| torchao"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("train", "gpt"), "error: gpt has no size of its own"),
        (("train", "mlp", "--offload"), "error: --offload is for the model gpt, not mlp"),
        (("train", "mlp", "--params", "1B"), "error: --params is for the model gpt, not mlp"),
        (("train", "gpt", "--params", "1B", "--precision", "fp32"), "error: --precision fp32: gpt computes in bf16"),
        (("plan", "gpt", "--params", "1B"), "error: busbw plan gpt plans memory only"),
        (("plan", "mlp", "--memory"), "error: --memory is for the model gpt"),
        (("plan", "gpt", "--params", "1B", "--memory", "--tflops", "100"), "error: the machine is described without --adam-rate, "),
    ],
)
def test_options_that_do_not_belong_are_refused(run, words, said):
    done = run("busbw", *words)
    assert done.code == 2
    assert done.err.startswith(said)


def test_a_plan_says_what_fits_and_the_command(run, tmp_path):
    done = run("busbw", "plan", "gpt", "--params", "3B", "--batch-size", "4", "--memory", *MACHINE, "--json", "p.json")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert [line.split()[1] for line in lines if line.startswith(("adamw", "offload"))] == ["no", "yes", "yes"]
    assert lines[-2].startswith("  optimizer = busbw.accel.offload(model, torch.optim.AdamW(model.parameters()), max_norm=None")
    assert lines[-1].startswith("  busbw train gpt --params 3B --batch-size 4 --sequence 1024 --recompute --compare compute,offload")
    ways = json.loads((tmp_path / "p.json").read_text())["ways"]
    assert [bool(way["lacks"]) for way in ways] == [True, False, False]
    nothing = run("busbw", "plan", "gpt", "--params", "70B", "--memory", *MACHINE)
    assert nothing.code == 1
    assert "nothing fits" in nothing.out
