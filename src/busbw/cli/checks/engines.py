"""`busbw check engines`: the engines and their availability."""

import click

from busbw.cli.streams import answer
from busbw.engines.registry import ENGINES

INDENT = 7


@click.command("engines", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> int:
    """List the engines that can run on this machine, and what the others need."""
    for row in ENGINES:
        reason = row.availability()
        answer(f"{row.name:{INDENT}}{row.help}\n")
        answer(f"{'':{INDENT}}{'ready' if reason is None else f'no: {reason}'}\n")
        if reason is not None:
            answer(f"{'':{INDENT}}{row.install}\n")
    return 0
