"""`busbw train` with real ranks on CPUs."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import jobs
import pytest

from busbw.cli.main import guarded

pytestmark = [pytest.mark.torch, pytest.mark.timeout(360)]

SOURCE = str(Path(__file__).parents[2] / "src")
HANG_S = 200


@pytest.fixture(scope="module")
def job(tmp_path_factory, warm_python):
    """The output and files of two ranks that are started as torchrun starts them."""
    folder = tmp_path_factory.mktemp("job")
    programs = ["methods_in_turn", "a_language_model"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", warm_python)
        results = jobs.run(
            folder,
            str(Path(__file__).with_name("train_rank.py")),
            programs,
            2,
            program=jobs.AS_TORCHRUN,
            RESULTS=str(folder),
        )
    return folder, [(result["methods_in_turn"], result["a_language_model"]) for result in results]


def test_methods_are_compared_in_turn(job, capsys):
    folder, ((code, out), _), ((_, out_of_rank_1), _) = job[0], *job[1]
    lines = out.splitlines()
    # Ranks compete for processors with whatever else runs, so that figures may contradict each
    # other.
    assert (code, out_of_rank_1) == (
        3 if "no comparison: figures contradict each other:" in out else 0,
        "",
    )
    assert lines[0] == "# mlp-small: 1,300,456 parameters, 5.2 MB of gradients a step"
    assert (
        sum(line.startswith("Iter #0: ") and line.endswith(" img/sec per CPU") for line in lines)
        == 6
    )
    assert sum(line.startswith("Total img/sec on 2 CPU(s): ") for line in lines) == 6
    (titles,) = (number for number, line in enumerate(lines) if line.startswith("method "))
    assert [line.split()[0] for line in lines[titles + 1 :][:3]] == ["alone", "none", "topk"]
    assert any(line.startswith("on a perfect network a step under DDP takes ") for line in lines)
    file = str(folder / "r.json")
    training = json.loads(Path(file).read_text())["training"]
    assert [(run["method"], run["round"]) for run in training["runs"]] == [
        (name, number) for number in range(2) for name in ("alone", "none", "topk")
    ]
    assert all(
        len(run["steps_s"]) == len(run["rates"]) == 2 * len(run["silent_s"]) == 2
        for run in training["runs"]
    )
    assert guarded(["show", file]) == 0
    assert capsys.readouterr().out.splitlines()[-5:] == lines[-5:]
    assert guarded(["compare", file, file]) == 2
    assert (
        capsys.readouterr().err.splitlines()[0]
        == f"error: {file} is a training of mlp-small, which is not compared"
    )


def test_a_language_model_is_trained(job):
    code, out = job[1][0][1]
    training = json.loads(out)["training"]
    assert (code in (0, 3), training["unit"]) == (True, "seq")
    assert [run["method"] for run in training["runs"]] == ["alone", "topk"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("vgg",), "error: unknown model 'vgg'"),
        (("mlp", "--compare", "none,none"), "error: 'none,none' names none twice"),
        (
            ("mlp", "--accel", "topk", "--compare", "none"),
            "error: --accel and --compare both name methods to run",
        ),
    ],
)
def test_invalid_arguments_are_refused_before_the_start(words, message, capsys):
    assert (guarded(["train", *words]), capsys.readouterr().err.splitlines()[0]) == (2, message)


def test_a_killed_rank_is_named_and_finished_methods_are_kept(tmp_path, warm_python):
    file = tmp_path / "r.json"
    words = shlex.split(
        "train mlp-small -np 2 --batch-size 4 --warmup 2 --iters 10 --steps 1 --rounds 1000"
    )
    line = [warm_python, "-m", "busbw", *words, "--json", str(file)]
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    with subprocess.Popen(
        line,
        env=environment,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        end = time.monotonic() + HANG_S
        while time.monotonic() < end and not (
            file.exists() and json.loads(file.read_text())["training"]["runs"]
        ):
            time.sleep(0.1)
        result = json.loads(file.read_text())
        os.kill(result["world"]["devices"][1]["pid"], signal.SIGKILL)
        _, errors = process.communicate(timeout=HANG_S)
    assert process.returncode == 3
    # another test may run out of memory meanwhile, which a container cannot tell apart
    assert re.search(
        r"died of signal 9 \(SIGKILL\)(: perhaps [^,]*, [^,]*)?, after the method ", errors
    ), errors
    document = json.loads(file.read_text())
    assert not document["complete"]
    assert document["training"]["runs"]
    assert document["errors"]
