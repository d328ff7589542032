"""Options that `busbw train` and `busbw plan` share."""

import click

from busbw.cli.options.parameters import COUNT, POSITIVE, Seconds
from busbw.cli.options.shared import options
from busbw_accel.train.types import PRECISIONS

training_options = options(
    click.option(
        "--batch-size", type=COUNT, default=32, show_default=True, help="samples per rank and step"
    ),
    click.option(
        "--sequence",
        type=COUNT,
        default=1024,
        show_default=True,
        help="tokens per sample of a language model",
    ),
    click.option(
        "--compute-dtype",
        "precision",
        type=click.Choice(PRECISIONS),
        default="fp32",
        show_default=True,
        help="bf16, fp16: autocast; tf32: fp32 on TF32",
    ),
    click.option(
        "--bucket-mb", type=POSITIVE, default=25.0, show_default=True, help="DDP's bucket_cap_mb"
    ),
    click.option(
        "--limit",
        "limit_s",
        type=Seconds(zero=True),
        default=300.0,
        show_default=True,
        help="give up after this time on one iteration; 0 = no limit",
    ),
)
