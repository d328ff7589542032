"""What a comparison takes for a difference."""

import click

from busbw.cli.options.parameters import ShareParam
from busbw.cli.options.shared import options

judging_options = options(
    click.option(
        "--tolerance",
        type=ShareParam(0.0, 10.0),
        default="5%",
        show_default=True,
        help="largest difference treated as equal",
    ),
    click.option(
        "--confidence",
        type=ShareParam(0.5, 1.0),
        default="95%",
        show_default=True,
        help="confidence level, over all cells together",
    ),
)
