"""`busbw train gpt` and `busbw plan gpt --memory-plan`: options that do not belong, and the plan of a
machine that options describe.
"""

import json
import shlex

import pytest

from busbw.cli.exit_codes import rows_of
from busbw.cli.main import guarded
from busbw.core.finding import Verdict

(PLAN,) = (row for row in rows_of("busbw_accel.cli") if row.command == "plan")
MACHINE = shlex.split(
    "--gpu-memory 24G --host-memory 100G --tflops 150 --pcie 25GB/s --adam-rate 3"
)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("train", "gpt"), "error: gpt has no size of its own"),
        (("train", "mlp", "--offload"), "error: --offload is for the model gpt, not mlp"),
        (("train", "mlp", "--params", "1B"), "error: --params is for the model gpt, not mlp"),
        (
            ("train", "gpt", "--params", "1B", "--compute-dtype", "fp32"),
            "error: --compute-dtype fp32: gpt computes in bf16",
        ),
        (("plan", "gpt", "--params", "1B"), "error: busbw plan gpt plans memory only"),
        (("plan", "mlp", "--memory-plan"), "error: --memory-plan is for the model gpt"),
        (
            ("plan", "gpt", "--params", "1B", "--memory-plan", "--tflops", "100"),
            "error: the machine is described without --adam-rate, ",
        ),
    ],
)
def test_options_that_do_not_belong_are_refused(words, message, capsys):
    assert guarded([*words]) == 2
    assert capsys.readouterr().err.startswith(message)


def test_a_plan_names_what_fits_and_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert (
        guarded(
            [
                *shlex.split("plan gpt --params 3B --batch-size 4 --memory-plan"),
                *MACHINE,
                "--json",
                "p.json",
                "--wide",
            ]
        )
        == 0
    )
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines if line.startswith(("adamw", "offload"))] == [
        "no",
        "yes",
        "yes",
    ]
    assert lines[-2].startswith(
        "  optimizer = busbw_accel.offload(model, torch.optim.AdamW(model.parameters()),"
        " max_norm=None"
    )
    assert lines[-1].startswith(
        "  busbw train gpt --params 3B --batch-size 4 --sequence 1024 --recompute --compare"
        " compute,offload"
    )
    plans = json.loads((tmp_path / "p.json").read_text())["ways"]
    assert [bool(plan["lacks"]) for plan in plans] == [True, False, False]
    assert (
        guarded(["plan", "gpt", "--params", "70B", "--memory-plan", *MACHINE])
        == PLAN.code(Verdict.FAIL)
        == 1
    )
    assert "nothing fits" in capsys.readouterr().out
