"""The rule for patterns on another number of ranks."""

import click

from busbw.pattern.replay.types import SCALES

scale_option = click.option(
    "--scale",
    type=click.Choice(SCALES),
    default="none",
    show_default=True,
    help="rule for a pattern on another number of ranks: keep the bytes of algbw, or NCCL's count",
)
