"""`busbw train`: the training benchmark."""

from dataclasses import replace
from typing import Any

import click

from busbw.cli.options import groups, shared
from busbw.cli.options.grouped import GroupedCommand
from busbw.cli.options.parameters import COUNT, not_empty
from busbw.cli.output import JsonOutput, exit_code, print_command
from busbw.cli.run_job import take_run_options
from busbw.cli.streams import print_err
from busbw.core.errors import Exit, UsageError
from busbw_accel.cli.options import training_options
from busbw_accel.cli.output import TrainOutput
from busbw_accel.cli.train_states import (
    on_one_gpu,
    states_options,
    take_states,
    train,
    with_defaults,
)
from busbw_accel.train import text as train_text
from busbw_accel.train.kinds import TrainJob, TrainResult
from busbw_accel.train.methods import NONE, parse_all
from busbw_accel.train.names import require_model
from busbw_accel.train.types import TrainSpec


@click.command(
    "train",
    cls=GroupedCommand,
    groups=groups.TRAIN,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("model_name", metavar="MODEL")
@training_options
@click.option("--accel", default="", callback=not_empty, help="one method, instead of plain DDP")
@click.option(
    "--compare",
    default="",
    callback=not_empty,
    help="methods to run in turn, like none,bf16,torch-powersgd,2d+int8,topk+ratio=0.01",
)
@states_options
@click.option("--offload", is_flag=True, help="gpt only: the same as --compare compute,offload")
@click.option(
    "--largest",
    is_flag=True,
    help="gpt only: find the largest model of this width that trains by each method",
)
@click.option(
    "--warmup",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    help="untimed steps before each method in a round",
)
@click.option(
    "--iters",
    type=COUNT,
    default=4,
    show_default=True,
    help="timed iterations in a round; each gives a rate",
)
@click.option(
    "--steps", type=COUNT, default=5, show_default=True, help="training steps per iteration"
)
@click.option(
    "--rounds",
    type=COUNT,
    default=4,
    show_default=True,
    help="times to run all methods in turn; one gives no intervals",
)
@shared.run_options("table", "json")
def command(
    model_name: str, accel: str, compare: str, offload: bool, largest: bool, **fields: Any
) -> int:
    """Train MODEL on synthetic samples and print samples per second: each rank alone, then all
    ranks with each method.

    Models: vgg16, resnet50 (torchvision's), gpt2, gpt-small, mlp, mlp-small. Methods: none (plain
    DDP), torch-bf16, torch-fp16 and torch-powersgd (torch's own hooks), torchft-diloco (if torchft
    is installed), and methods and settings of busbw_accel joined by +, such as 2d+int8 or
    topk+ratio=0.001. The reference page on training lists them all. Shares and parts of a step have
    intervals over --rounds.

    The model gpt has any size (--params) and compares where its weights, gradients and AdamW's
    states are kept: compute, adamw, offload, fsdp2, fsdp2-offload, torchao and deepspeed, with
    settings as in offload+gpu_share=0.1. It runs on one GPU unless --ranks or --hosts says
    otherwise, in bf16.
    """
    options = take_run_options(fields)
    naming_methods = {"--accel": accel, "--compare": compare, "--offload": offload}
    names = [name for name, value in naming_methods.items() if value]
    if len(names) > 1:
        raise UsageError(
            f"{names[0]} and {names[1]} both name methods to run", "name all of them with --compare"
        )
    states = take_states(require_model(model_name), fields)
    if states is None and (offload or largest):
        raise UsageError(
            f"--{'offload' if offload else 'largest'} is for the model gpt, not {model_name}",
            "busbw train gpt --params 1.5B",
        )
    if states is None:
        methods = tuple(method.name for method in parse_all(compare or accel or NONE))
    else:
        methods = with_defaults(compare or accel, fields)
        options = replace(options, where=on_one_gpu(options.where))
    spec = TrainSpec(model=model_name, methods=methods, states=states, **fields)
    job = TrainJob(engine="torch", program="busbw train", training=spec, **options.job_fields)
    if options.dry_run:
        return print_command(job, options.where)
    if states is not None:
        return train(job, options, largest=largest)
    table = options.format_name == "table"
    result = options.measure(job, TrainOutput if table else JsonOutput)
    contradiction = train_text.contradiction(result) if isinstance(result, TrainResult) else ""
    if contradiction and not table:
        print_err(contradiction.strip())
    return int(Exit.UNKNOWN) if contradiction else exit_code(result)
