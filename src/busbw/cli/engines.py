"""`busbw engines`: what can run here."""

import click

from busbw.cli.streams import answer
from busbw.engines.registry import ENGINES


@click.command("engines", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> int:
    """Which engines can run on this machine, and what the others lack."""
    for row in ENGINES:
        reason = row.availability()
        state = "ready" if reason is None else f"no: {reason}"
        answer(f"{row.name:6} {row.help:44} {state}\n")
        if reason is not None:
            answer(f"{'':6} {row.install}\n")
    return 0
