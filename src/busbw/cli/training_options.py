"""The options that `busbw train` and `busbw plan` share: what trains, and where."""

from collections.abc import Callable
from typing import Any

import click

from busbw.cli.words import File, filled
from busbw.core.training import PRECISIONS

COUNT = click.IntRange(1, 1_000_000)
_WHAT = (
    click.option("--batch-size", type=COUNT, default=32, show_default=True, help="samples a rank and step"),
    click.option("--sequence", type=COUNT, default=1024, show_default=True, help="tokens a sample of a language model"),
    click.option(
        "--precision", type=click.Choice(PRECISIONS), default="fp32", show_default=True, help="bf16 and fp16: autocast; tf32: fp32's"
    ),
    click.option("--bucket-mb", type=click.FloatRange(0, min_open=True), default=25.0, show_default=True, help="DDP's bucket_cap_mb"),
)
_WHERE = (
    click.option("-n", "--ranks", type=click.IntRange(1), help="local ranks to start  [default: all GPUs, or 2 on CPUs]"),
    click.option("--hosts", default="", callback=filled, help="hosts and ranks on each: h1:8,h2:8"),
    click.option("--hostfile", type=File(), help="file of hosts: `h1 slots=8` a line"),
    click.option("--ifname", default="", callback=filled, help="network interface for MPI, PMIx, Gloo and NCCL together"),
    click.option("--launch-limit", type=float, default=120.0, show_default=True, help="seconds until all ranks must have joined"),
    click.option(
        "--limit", type=click.FloatRange(0), default=300.0, show_default=True, help="seconds that an iteration may take; 0 = no limit"
    ),
)


def _all(options: tuple[Callable[[Any], Any], ...]) -> Callable[[Any], Any]:
    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


what = _all(_WHAT)
where = _all(_WHERE)
