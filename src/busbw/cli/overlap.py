"""`busbw overlap`: a collective and other work at the same time."""

import re
from typing import Any

import click

from busbw.cli.options import groups, shared
from busbw.cli.options.grouped import GroupedCommand
from busbw.cli.options.parameters import is_given
from busbw.cli.options.sweep import sweep_options
from busbw.cli.run_job import take_run_options
from busbw.core.collectives import collective
from busbw.core.errors import UsageError
from busbw.core.sweep import Sampling, SweepSpec, check_elements, check_spec
from busbw.overlap import text as overlap_text
from busbw.overlap.types import COPY, GEMM, OverlapJob

DEFAULTS = {"min_bytes": 1 << 20, "max_bytes": 256 << 20, "step_factor": 4, "datatype": "bfloat16"}
MAX_CTAS = 1024


@click.command(
    "overlap",
    cls=GroupedCommand,
    groups=groups.OVERLAP,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("name", metavar="[COLLECTIVE]", default="all_reduce")
@click.option(
    "--beside",
    "load",
    default=GEMM,
    show_default=True,
    metavar="LOAD",
    help=f"what runs at the same time: {GEMM} (products of matrices), {COPY} (in the GPU's memory),"
    " or a collective on a communicator of its own",
)
@click.option(
    "--max-ctas",
    "ctas",
    default="",
    metavar="LIST",
    help="most channels of NCCL, as NCCL_MAX_CTAS, each with an SM of its own: 4,8,16,any"
    "  [default: any]",
)
@click.option(
    "--rounds",
    type=click.IntRange(8, 1000),
    default=20,
    show_default=True,
    help="times to measure each side alone and beside the other, in turn",
)
@shared.limit_option
@shared.run_options("table", "json")
@sweep_options(DEFAULTS)
def command(name: str, load: str, ctas: str, rounds: int, **fields: Any) -> int:
    """Measure COLLECTIVE and other work alone and at the same time, and say how much each slows the
    other down.

    PyTorch starts the ranks. Each side is timed while the other runs all the time.
    """
    options = take_run_options(fields)
    sweep = {field: fields.pop(field) for field in DEFAULTS}
    job = OverlapJob(
        engine="torch",
        program="busbw overlap",
        **options.job_fields,
        sweep=SweepSpec(
            collective=collective(name).name, sampling=Sampling(precision=0.0), **sweep
        ),
        unset=tuple(field for field in DEFAULTS if not is_given(field)),
        load=_load_name(load),
        ctas=_parse_ctas(ctas),
        rounds=rounds,
    )
    check_spec(job.sweep, strict=True)
    check_elements(job.sweep)
    return options.print_at_end(job, overlap_text.render)


def _load_name(name: str) -> str:
    """A load, or the name of a collective; UsageError for another word."""
    if name in (GEMM, COPY):
        return name
    try:
        return collective(name).name
    except UsageError as error:
        hint = f"{GEMM}, {COPY}, or a collective: {error.hint}"
        raise UsageError(f"--beside: '{name}' is not a load", hint) from error


def _parse_ctas(text: str) -> list[int]:
    """UsageError for anything but whole numbers from 1 on, and `any`."""
    if not text:
        return [0]
    limits = []
    for word in text.split(","):
        if word.strip() == "any":
            limits.append(0)
        elif re.fullmatch(r"\s*[1-9]\d*\s*", word) and int(word) <= MAX_CTAS:
            limits.append(int(word))
        else:
            raise UsageError(
                f"--max-ctas {text}: '{word}' is not a number from 1 to {MAX_CTAS}",
                "give numbers of CTAs, like 4,8,16,any",
            )
    return limits
