"""`--min-busbw` and `--min-percent`: what a run must reach."""

import click

from busbw.cli.options.parameters import Rate, ShareParam
from busbw.cli.options.shared import Decorator, options, reference_option
from busbw.core.rates import BUSBW_EXAMPLE

IDEAL, REFERENCE = "ideal", "reference"
minimum_options: Decorator = options(
    click.option(
        "--min-busbw",
        type=Rate(BUSBW_EXAMPLE),
        help=(
            "exit code 1 if the largest busbw is below this, 3 if only a part of its interval is:"
            " 300GB/s"
        ),
    ),
    click.option(
        "--min-percent",
        type=ShareParam(0, 10),
        help="exit code 1 if the largest busbw is below this part of the ideal: 80%",
    ),
    click.option(
        "--of",
        "share_of",
        type=click.Choice((IDEAL, REFERENCE)),
        default=IDEAL,
        show_default=True,
        help=(
            "what --min-percent is a part of; reference: the median of runs of the same system"
            " (busbw reference), exit code 3 if there is none"
        ),
    ),
    reference_option,
)
