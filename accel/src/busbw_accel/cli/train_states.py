"""`busbw train gpt`: ways to keep a model's states."""

import dataclasses
import os
from typing import Any

import click

from busbw.cli.keep import keep
from busbw.cli.options.parameters import is_given, not_empty
from busbw.cli.options.shared import options, result_file
from busbw.cli.output import RunOutput
from busbw.cli.run_job import RunOptions
from busbw.cli.streams import print_out
from busbw.cli.terminal import width
from busbw.core.errors import Exit, UsageError
from busbw.core.sizes import parse_size
from busbw.launch import environment
from busbw.measure.record import RunRecord, check_writable, encoded
from busbw.measure.target import LaunchTarget
from busbw_accel.memory_plan.gpt_shape import RECOMPUTE_FROM, parse_count, shape_of
from busbw_accel.train import states_text
from busbw_accel.train.kinds import TrainJob, TrainResult
from busbw_accel.train.largest_model import StatesComparison
from busbw_accel.train.names import GPT
from busbw_accel.train.states.methods import DEFAULT, parse_all
from busbw_accel.train.types import StatesSpec

# A step of a gpt takes seconds.
DEFAULT_STEPS = {"warmup": 3, "iters": 10, "steps": 1, "rounds": 1}
states_options = options(
    click.option(
        "--params", default="", callback=not_empty, help="gpt only: number of parameters, like 1.5B"
    ),
    click.option(
        "--recompute/--no-recompute",
        default=None,
        help="gpt only: compute activations again in backward  [default: from 1B parameters]",
    ),
    click.option(
        "--gpu-memory",
        default="",
        callback=not_empty,
        help="gpt only: the most of a GPU's memory to use, like 24G",
    ),
)
NAMES = ("params", "recompute", "gpu_memory")


def take_states(model: str, fields: dict[str, Any]) -> StatesSpec | None:
    """Remove these options from a command's `fields`; returns the spec of a gpt, None for another
    model. UsageError if they are given for another model.
    """
    taken = {name: fields.pop(name) for name in NAMES}
    if model != GPT:
        for name, value in taken.items():
            if value not in ("", None):
                raise UsageError(
                    f"--{name.replace('_', '-')} is for the model {GPT}, not {model}",
                    "busbw train gpt --params 1.5B",
                )
        return None
    if not taken["params"]:
        raise UsageError(
            "gpt has no size of its own", "give the number of parameters, like --params 1.5B"
        )
    if is_given("precision") and fields["precision"] != "bf16":
        raise UsageError(
            f"--compute-dtype {fields['precision']}: gpt computes in bf16",
            "leave it out, or train gpt2",
        )
    fields["precision"] = "bf16"
    count = parse_count(taken["params"])
    recompute = count >= RECOMPUTE_FROM if taken["recompute"] is None else taken["recompute"]
    memory = parse_size(taken["gpu_memory"], "--gpu-memory") if taken["gpu_memory"] else 0
    return StatesSpec(
        shape=shape_of(count, fields["sequence"]), recompute=recompute, gpu_memory=memory
    )


class OneMethod(RunOutput):
    """The messages of one method's run. The table is printed by the comparison."""

    def __init__(self) -> None:
        super().__init__(RunRecord(), save_unasked=False)


class StatesPrinter:
    """Prints the lines of a comparison, with the header before the first."""

    def __init__(self) -> None:
        self._has_header = False

    def add(self, result: TrainResult, run: Any) -> None:
        """Print one line."""
        if not self._has_header:
            print_out(states_text.header(result, width()))
        self._has_header = True
        print_out(states_text.row(result, run, width()))


def train(job: TrainJob, options: RunOptions, *, largest: bool) -> int:
    """Run the comparison and print it; exit code 3 where no way has figures."""
    if environment.detect(os.environ) is not None:
        raise UsageError(
            "busbw train gpt starts its own ranks, but this process is a rank of a job",
            "run it outside mpirun and torchrun",
        )
    file, table = result_file(options.json_name), options.format_name == "table"
    if file is not None:
        check_writable(file, overwrite=options.force)
    add_line = StatesPrinter().add if table else lambda *_: None
    comparison = StatesComparison(job, options.where, file, OneMethod, add_line)
    result = comparison.largest() if largest else comparison.compare()
    print_out(states_text.footer(result, width()) if table else encoded(result).decode())
    keep(result, asked=options.history)
    nothing = not largest and all(run.failed for run in result.training.runs)
    return int(Exit.UNKNOWN if nothing else Exit.OK)


def with_defaults(methods: str, fields: dict[str, Any]) -> tuple[str, ...]:
    """Set the defaults of a gpt in `fields`, and return its methods."""
    fields.update({name: value for name, value in DEFAULT_STEPS.items() if not is_given(name)})
    return tuple(method.name for method in parse_all(methods or ",".join(DEFAULT)))


def on_one_gpu(where: LaunchTarget) -> LaunchTarget:
    """`where`, or one GPU if the command does not say where a comparison runs."""
    if where.ranks or where.hosts or where.hostfile or where.step:
        return where
    return dataclasses.replace(where, ranks=1)
