"""`busbw check explain CHECK`: what a check reads, why it matters, and how to fix what it finds."""

import click

from busbw.check import text as view
from busbw.check.registry import find_row
from busbw.cli.streams import print_out
from busbw.cli.terminal import width
from busbw.core.errors import Exit


@click.command("explain", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", metavar="CHECK...", nargs=-1, required=True)
def command(names: tuple[str, ...]) -> int:
    """Print the page of each CHECK, by its id (BW070) or its name.

    `busbw check --list` lists both.
    """
    rows = [find_row(name) for name in names]
    print_out("\n".join(view.page(row, width()) for row in rows))
    return int(Exit.OK)
