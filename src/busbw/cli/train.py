"""`busbw train`: the training benchmark."""

import sys
from pathlib import Path
from typing import Any

import click

from busbw.cli.output import Output
from busbw.cli.session import Where, run_job
from busbw.cli.slurm_options import slurm_options, take_step
from busbw.core.errors import UsageError
from busbw.core.networks import BY_NAME as NETWORKS
from busbw.core.sweep import SweepSpec
from busbw.core.training import PRECISIONS, TrainSpec
from busbw.measure.job import Job
from busbw.measure.record import Record
from busbw.views.registry import view

FORMATS = ("table", "json")
COUNT = click.IntRange(1, 1_000_000)


@click.command("train", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("model_name", metavar="MODEL")
@click.option("--batch-size", type=COUNT, default=32, show_default=True, help="samples a rank and step")
@click.option("--sequence", type=COUNT, default=1024, show_default=True, help="tokens a sample of a language model")
@click.option("--precision", type=click.Choice(PRECISIONS), default="fp32", show_default=True, help="bf16 and fp16: autocast; tf32: fp32's")
@click.option("--accel", default="", help="one method of --compare instead of DDP as it is")
@click.option("--compare", default="", help="methods to run in turn, such as none,bf16,torch-powersgd,2d+int8,topk+ratio=0.01")
@click.option("--warmup", type=click.IntRange(1), default=10, show_default=True, help="steps before each method that do not count")
@click.option("--iters", type=COUNT, default=10, show_default=True, help="iterations, of which each gives a rate")
@click.option("--batches", type=COUNT, default=10, show_default=True, help="steps an iteration")
@click.option("--rounds", type=COUNT, default=1, show_default=True, help="times that all methods run, in turn")
@click.option("--bucket-mb", type=click.FloatRange(0, min_open=True), default=25.0, show_default=True, help="DDP's bucket_cap_mb")
@click.option("-n", "--ranks", type=click.IntRange(1), help="local ranks to start  [default: all GPUs, or 2 on CPUs]")
@click.option("--hosts", default="", help="hosts and ranks on each: h1:8,h2:8")
@click.option("--hostfile", type=click.Path(path_type=Path), help="file of hosts: `h1 slots=8` a line")
@click.option("--ifname", default="", help="network interface for MPI, PMIx, Gloo and NCCL together")
@click.option(
    "--net", type=click.Choice(list(NETWORKS)), default=None, show_default="NCCL's own choice", help="network that NCCL shall use"
)
@click.option("--format", "format_name", type=click.Choice(FORMATS), default="table", show_default=True, help="on stdout")
@click.option("--json", "json_file", default="", help="keep the result in this file, updated after every method; - = stdout at the end")
@click.option("--dry-run", is_flag=True, help="print the launcher's command line and stop")
@click.option("--launch-limit", type=float, default=120.0, show_default=True, help="seconds until all ranks must have joined")
@click.option(
    "--limit", type=click.FloatRange(0), default=300.0, show_default=True, help="seconds that an iteration may take; 0 = no limit"
)
@slurm_options
def command(
    model_name: str, accel: str, compare: str, ranks: int | None, hosts: str, hostfile: Path | None, ifname: str, net: str | None,
    format_name: str, json_file: str, dry_run: bool, launch_limit: float, limit: float, **fields: Any,
) -> int:  # fmt: skip
    """Train MODEL on synthetic samples and print samples a second: each rank alone, then all with every method.

    Models: vgg16, resnet50 (torchvision's), gpt2, gpt-small, mlp, mlp-small. Methods: none (DDP as it is), torch-bf16, torch-fp16 and
    torch-powersgd (torch's own hooks), and those of busbw.accel: dense, bf16, fp16, int8, topk, 2d and settings, joined by +.
    """
    step = take_step(fields, ranks, bool(hosts or hostfile))
    if accel and compare:
        raise UsageError("--accel and --compare both name what to run", "name all of them with --compare")
    spec = checked(TrainSpec(model=model_name, methods=_names(compare or accel or "none"), **fields))
    to_stdout = json_file == "-"
    shown = view("json" if to_stdout else format_name)
    where = Where(ranks, hosts, hostfile, ifname, "torch", "", dry_run, launch_limit, step, limit)
    sweep = SweepSpec(collective="all_reduce")
    argv = [Path(sys.argv[0]).name, *sys.argv[1:]]
    job = Job(sweep=sweep, engine="torch", program="busbw train", argv=argv, net=net or "", training=spec)
    return run_job(job, where, Output(Record(sweep, None if to_stdout or not json_file else Path(json_file)), shown))


def _names(text: str) -> tuple[str, ...]:
    from busbw.train.methods import parse_all

    return tuple(method.name for method in parse_all(text))


def checked(spec: TrainSpec) -> TrainSpec:
    """The spec, where its model is one; UsageError otherwise."""
    from busbw.train.names import known

    known(spec.model)
    return spec
