"""`busbw train` with real ranks on CPUs."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from busbw.cli.main import guarded
from busbw.launch import mpirun

pytestmark = pytest.mark.torch

SOURCE = str(Path(__file__).parents[2] / "src")
SMALL = ("--batch-size", "2", "--warmup", "2", "--iters", "2", "--batches", "1")


def test_methods_are_compared_in_turn(run, tmp_path):
    done = run("busbw", "train", "mlp-small", "-n", "2", *SMALL, "--rounds", "2", "--compare", "none,topk", "--json", "r.json")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0] == "# mlp-small: 1,300,456 parameters, 5.2 MB of gradients a step"
    assert sum(line.startswith("Iter #0: ") and line.endswith(" img/sec per CPU") for line in lines) == 6
    assert sum(line.startswith("Total img/sec on 2 CPU(s): ") for line in lines) == 6
    (titles,) = (number for number, line in enumerate(lines) if line.startswith("method "))
    assert [line.split()[0] for line in lines[titles + 1 :][:3]] == ["alone", "none", "topk"]
    assert lines[-1].startswith("on a perfect network a step under DDP takes ")
    training = json.loads((tmp_path / "r.json").read_text())["training"]
    assert [(one["method"], one["round"]) for one in training["runs"]] == [
        (name, number) for number in range(2) for name in ("alone", "none", "topk")
    ]
    assert all(len(one["steps_s"]) == len(one["rates"]) == 2 * len(one["silent_s"]) == 2 for one in training["runs"])
    again = run("busbw", "show", "r.json")
    assert again.out.splitlines()[-5:] == lines[-5:]
    refused = run("busbw", "compare", "r.json", "r.json")
    assert (refused.code, refused.err.splitlines()[0]) == (2, "error: r.json is a training of mlp-small, not a sweep")


def test_a_language_model_under_an_outer_mpirun():
    words = ["-m", "busbw", "train", "gpt-small", "--sequence", "8", "--precision", "fp16", "--accel", "topk", "--format", "json"]
    words += ["--batch-size", "1", "--warmup", "1", "--iters", "1", "--batches", "1"]
    line = mpirun.command(mpirun.find(), [sys.executable, *words], 2)
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    training = json.loads(done.stdout[done.stdout.index("{") :])["training"]
    assert training["unit"] == "seq"
    assert [one["method"] for one in training["runs"]] == ["alone", "topk"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("vgg",), "error: unknown model 'vgg'"),
        (("mlp", "--compare", "none,none"), "error: 'none,none' names none twice"),
        (("mlp", "--accel", "topk", "--compare", "none"), "error: --accel and --compare both name methods to run"),
    ],
)
def test_invalid_arguments_are_refused_before_the_start(words, said, capsys):
    assert (guarded(["train", *words]), capsys.readouterr().err.splitlines()[0]) == (2, said)


def test_a_killed_rank_is_named_and_finished_methods_are_kept(tmp_path):
    file = tmp_path / "r.json"
    words = ["train", "mlp-small", "-n", "2", "--batch-size", "4", "--warmup", "2", "--iters", "60", "--batches", "1", "--rounds", "1000"]
    line = [sys.executable, "-m", "busbw", *words, "--json", str(file)]
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    with subprocess.Popen(line, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        end = time.monotonic() + 90
        while time.monotonic() < end and not (file.exists() and json.loads(file.read_text())["training"]["runs"]):
            time.sleep(0.1)
        result = json.loads(file.read_text())
        os.kill(result["world"]["devices"][1]["pid"], signal.SIGKILL)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 3
    assert "died of signal 9 (SIGKILL), after the method " in said, said
    kept = json.loads(file.read_text())
    assert not kept["complete"]
    assert kept["training"]["runs"]
    assert kept["errors"]
