"""`busbw train`: the training benchmark."""

import sys
from pathlib import Path
from typing import Any

import click

from busbw.cli import training_options
from busbw.cli.output import JsonOutput, TrainOutput, exit_code, print_command
from busbw.cli.slurm_options import slurm_options, take_step
from busbw.cli.words import filled
from busbw.core.errors import UsageError
from busbw.core.networks import BY_NAME as NETWORKS
from busbw.core.training import TrainSpec
from busbw.measure.job import TrainJob
from busbw.measure.record import Record
from busbw.session.outside import launch
from busbw.session.start import run
from busbw.session.where import Where

FORMATS = ("table", "json")


@click.command("train", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("model_name", metavar="MODEL")
@training_options.what
@click.option("--accel", default="", callback=filled, help="one method of --compare instead of DDP as it is")
@click.option(
    "--compare", default="", callback=filled, help="methods to run in turn, such as none,bf16,torch-powersgd,2d+int8,topk+ratio=0.01"
)
@click.option("--warmup", type=click.IntRange(1), default=10, show_default=True, help="steps before each method that do not count")
@click.option("--iters", type=training_options.COUNT, default=10, show_default=True, help="iterations, of which each gives a rate")
@click.option("--batches", type=training_options.COUNT, default=10, show_default=True, help="steps an iteration")
@click.option("--rounds", type=training_options.COUNT, default=1, show_default=True, help="times that all methods run, in turn")
@training_options.where
@click.option(
    "--net", type=click.Choice(list(NETWORKS)), default=None, show_default="NCCL's own choice", help="network that NCCL shall use"
)
@click.option("--format", "format_name", type=click.Choice(FORMATS), default="table", show_default=True, help="on stdout")
@click.option(
    "--json",
    "json_file",
    default="",
    callback=filled,
    help="keep the result in this file, updated after every method; - = stdout at the end",
)
@click.option("--force", is_flag=True, help="let --json replace an existing file")
@click.option("--dry-run", is_flag=True, help="print the launcher's command line and stop")
@slurm_options
def command(
    model_name: str, accel: str, compare: str, ranks: int | None, hosts: str, hostfile: Path | None, ifname: str, net: str | None,
    format_name: str, json_file: str, force: bool, dry_run: bool, launch_limit: float, limit: float, **fields: Any,
) -> int:  # fmt: skip
    """Train MODEL on synthetic samples and print samples a second: each rank alone, then all with every method.

    Models: vgg16, resnet50 (torchvision's), gpt2, gpt-small, mlp, mlp-small. Methods: none (DDP as it is), torch-bf16, torch-fp16 and
    torch-powersgd (torch's own hooks), and words and settings of busbw.accel joined by +, such as 2d+int8 or topk+ratio=0.001.
    The reference page on training lists all words.
    """
    step = take_step(fields, ranks, bool(hosts or hostfile))
    if accel and compare:
        raise UsageError("--accel and --compare both name what to run", "name all of them with --compare")
    spec = checked(TrainSpec(model=model_name, methods=_names(compare or accel or "none"), **fields))
    to_stdout = json_file == "-"
    where = Where(ranks=ranks, hosts=hosts, hostfile=hostfile, ifname=ifname, step=step)
    argv = [Path(sys.argv[0]).name, *sys.argv[1:]]
    job = TrainJob(
        engine="torch", program="busbw train", argv=argv, net=net or "", training=spec, limit_s=limit, start_limit_s=launch_limit
    )
    if dry_run:
        prepared = launch(job, where)
        return print_command(prepared.argv if prepared else [])
    record = Record(None if to_stdout or not json_file else Path(json_file), overwrite=force)
    return exit_code(run(job, where, (JsonOutput if to_stdout or format_name == "json" else TrainOutput)(record)))


def _names(text: str) -> tuple[str, ...]:
    from busbw.train.methods import parse_all

    return tuple(method.name for method in parse_all(text))


def checked(spec: TrainSpec) -> TrainSpec:
    """The spec, where its model is one; UsageError otherwise."""
    from busbw.train.names import known

    known(spec.model)
    return spec
