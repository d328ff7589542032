"""Plans where to keep a model's states, trains with it, and compares memory and step with the plan.

    python benchmarks/states.py --params 8B --batch-size 8 --sequence 2048 --methods
    compute,adamw,offload --out result_dir

Writes plan.json, train.json and a table. All ways of the plan that fit are trained besides the
named methods. On a machine without a GPU give the plan's options, after an equals sign:
--plan-options="--gpu-memory 80G ...".
"""

import argparse
import json
import shlex
import subprocess
import sys
from pathlib import Path

BUSBW = (sys.executable, "-m", "busbw")


def main() -> int:
    """Both runs, and the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--params", required=True)
    parser.add_argument("--batch-size", default="8")
    parser.add_argument("--sequence", default="2048")
    parser.add_argument(
        "--methods", default="compute,adamw,offload", help="those of the plan that fit are added"
    )
    parser.add_argument(
        "--options",
        default="",
        help="more options of both commands, like --options='--gpu-memory 24G'",
    )
    parser.add_argument("--plan-options", default="", help="more options of the plan")
    parser.add_argument("--train-options", default="", help="more options of the training")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    common = [
        "gpt",
        "--params",
        given.params,
        "--batch-size",
        given.batch_size,
        "--sequence",
        given.sequence,
        *shlex.split(given.options),
    ]
    planned = given.out / "plan.json"
    done = subprocess.run(
        [
            *BUSBW,
            "plan",
            *common,
            "--memory-plan",
            *shlex.split(given.plan_options),
            "--json",
            planned,
            "--force",
        ],
        check=False,
    )
    if done.returncode not in (0, 1):  # 1: nothing fits
        return done.returncode
    ways = {way["method"]: way for way in json.loads(planned.read_text())["ways"]}
    methods = list(
        dict.fromkeys(
            [*given.methods.split(","), *(name for name, way in ways.items() if not way["lacks"])]
        )
    )
    trained = given.out / "train.json"
    words = [
        "--compare",
        ",".join(methods),
        *shlex.split(given.train_options),
        "--json",
        trained,
        "--force",
    ]
    subprocess.run([*BUSBW, "train", *common, *words], check=True)
    _compare(json.loads(planned.read_text()), json.loads(trained.read_text())["training"])
    return 0


def _compare(plan: dict, training: dict) -> None:
    """Predicted and measured, of the ways that are in both."""
    ways = {way["method"]: way for way in plan["ways"]}
    print(f"\n{'way':40} {'GPU GB':>16} {'host GB':>16} {'step ms':>18}")
    for run in training["runs"]:
        steps = sorted(run["steps_s"])
        if run["method"] == "compute" and steps:
            print(
                f"{'compute':40} {'':16} {'':16}"
                f" {_pair(1e3 * plan['compute_s'], 1e3 * steps[len(steps) // 2]):>18}"
            )
        if run["method"] not in ways or not steps:
            continue
        way, states = ways[run["method"]], run["states"]
        needs = way["memory"]
        gpu = sum(value for name, value in needs.items() if name != "host") / 1e9
        host = (needs["host"] + plan["machine"]["process"]) / 1e9
        step = _pair(1e3 * way["step_s"], 1e3 * steps[len(steps) // 2])
        print(
            f"{run['method']:40} {_pair(gpu, states['gpu_bytes'] / 1e9):>16}"
            f" {_pair(host, states['host_bytes'] / 1e9):>16} {step:>18}"
        )


def _pair(predicted: float, measured: float) -> str:
    change = f" ({100 * (predicted / measured - 1):+.0f} %)" if measured else ""
    return f"{predicted:.1f}/{measured:.1f}{change}"


if __name__ == "__main__":
    sys.exit(main())
