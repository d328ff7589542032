"""`busbw replay`: run what an application sends, without the application."""

from typing import Any

import click

from busbw.cli.options import groups, shared
from busbw.cli.options.grouped import GroupedCommand
from busbw.cli.options.parameters import COUNT, Seconds
from busbw.cli.options.scaling import scale_option
from busbw.cli.output import JsonOutput, RunOutput, exit_code, print_command
from busbw.cli.run_job import take_run_options
from busbw.cli.streams import print_err, print_out
from busbw.cli.terminal import width
from busbw.core.errors import Exit
from busbw.core.result import Outcome
from busbw.engines.registry import AUTO, BY_NAME
from busbw.measure.events import Ended, Event
from busbw.measure.record import RunRecord
from busbw.pattern.replay import text as replay_text
from busbw.pattern.replay.kind import ReplayJob, ReplayResult
from busbw.pattern.replay.text import ROWS
from busbw.pattern.replay.types import CHOICES, ReplaySpec

ENGINES = (AUTO, *(name for name, row in BY_NAME.items() if not row.in_process))


class ReplayOutput(RunOutput):
    """Prints a replay when it has ended, at most `rows` of it."""

    rows, ran = ROWS, False

    def show(self, event: Event, result: Outcome) -> None:
        if isinstance(event, Ended) and isinstance(result, ReplayResult):
            print_out(replay_text.render_all(result, width(), self.rows, ran=self.ran))


class CsvOutput(RunOutput):
    """Prints a replay as the CSV of the PyTorch benchmark."""

    def show(self, event: Event, result: Outcome) -> None:
        if isinstance(event, Ended) and isinstance(result, ReplayResult):
            print_out(replay_text.torch_csv(result))


OUTPUTS = {"table": ReplayOutput, "csv": CsvOutput, "json": JsonOutput}


@click.command(
    "replay",
    cls=GroupedCommand,
    groups=groups.REPLAY,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("file")
@click.option(
    "--engine",
    type=click.Choice(ENGINES),
    default=AUTO,
    show_default=True,
    help="who moves the data",
)
@click.option(
    "--repeats", type=COUNT, default=1, show_default=True, help="times to replay the pattern"
)
@scale_option
@click.option(
    "--choice",
    type=click.Choice(CHOICES),
    default="recorded",
    show_default=True,
    help="who chooses algorithm and protocol: the pattern where it states them, or NCCL",
)
@click.option(
    "--rows",
    type=COUNT,
    default=ROWS,
    show_default=True,
    help="rows of the table, the longest first",
)
@click.option(
    "--ran",
    is_flag=True,
    help="the number of NCCL's channels of each row, and how ranks are connected",
)
@click.option(
    "--limit",
    "limit_s",
    type=Seconds(zero=True),
    default=60.0,
    show_default=True,
    help="give up after this time without progress; 0 = no limit",
)
@shared.run_options(*OUTPUTS)
def command(
    file: str,
    engine: str,
    repeats: int,
    scale: str,
    choice: str,
    rows: int,
    ran: bool,
    **fields: Any,
) -> int:
    """Replay the communication in FILE: a pattern of `busbw capture`, or any format that `busbw
    show` reads as one.

    With an order: the calls in that order, on communicators like the recorded ones; calls that
    overlapped may overlap again. Without one: every row 20 times, weighted by its calls. Nothing is
    computed between the calls. --format csv prints the columns of the PyTorch benchmark's
    --pattern.
    """
    options = take_run_options(fields)
    if ran:
        shared.refuse_ran(options.format_name)
    job = ReplayJob(
        engine=engine,
        program="busbw replay",
        **options.job_fields,
        replay=ReplaySpec(pattern=file, repeats=repeats, scale=scale, choice=choice),
    )
    if options.dry_run:
        return print_command(job, options.where)

    def output(record: RunRecord) -> RunOutput:
        made = OUTPUTS[options.format_name](record, save_unasked=False)
        if isinstance(made, ReplayOutput):
            made.rows, made.ran = rows, ran
        return made

    result = options.measure(job, output)
    if not isinstance(result, ReplayResult):
        return exit_code(result)
    if options.format_name != "table":
        for line in replay_text.warnings(result):
            print_err(line)
    return int(Exit.BAD) if result.replay.skipped else exit_code(result)
