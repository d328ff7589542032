"""`busbw check engines`: the engines and their availability."""

import click

from busbw.cli.streams import print_out
from busbw.engines.registry import ENGINES

INDENT = 7


@click.command("engines", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> int:
    """List the engines that can run on this machine, and what the others need."""
    for row in ENGINES:
        reason = row.availability()
        print_out(f"{row.name:{INDENT}}{row.help}\n")
        print_out(f"{'':{INDENT}}{'ready' if reason is None else f'no: {reason}'}\n")
        if reason is not None:
            print_out(f"{'':{INDENT}}{row.install}\n")
    return 0
