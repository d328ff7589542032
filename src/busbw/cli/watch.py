"""`busbw watch`: the counters of a host's links over time."""

import platform
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import click

from busbw.cli import watch_job
from busbw.cli.checks.arguments import refuse_before_subcommand
from busbw.cli.metrics_server import metrics_address, metrics_options
from busbw.cli.options.parameters import is_given
from busbw.cli.options.shared import fail_on_option, interval_options
from busbw.cli.streams import print_err, print_out
from busbw.cli.terminal import is_terminal, takes_escapes, width
from busbw.core.errors import Exit
from busbw.core.finding import Verdict, exit_of
from busbw.core.link_samples import WatchInterval
from busbw.ui.redraw import CLEAR_SCREEN
from busbw.watch import prometheus
from busbw.watch import text as view
from busbw.watch.exporter import DEFAULT_ADDRESS
from busbw.watch.reader import LinkSelection, SampleReader
from busbw.watch.totals import Page
from busbw.watch.watcher import Watcher, event_of_signals, ticks

MIN_INTERVAL_S, MAX_INTERVAL_S = 0.1, 3600.0
TABLE, JSON, RDMA_MONITOR = "table", "json", "rdma_monitor"
Show = Callable[[WatchInterval], None]


@click.group(
    "watch", invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@interval_options(MIN_INTERVAL_S, MAX_INTERVAL_S)
@click.option(
    "--port",
    "ports",
    multiple=True,
    help="watch only this RDMA device, port, interface or bond; may be repeated",
)
@click.option(
    "--no-gpus",
    is_flag=True,
    help="skip NVLink and PCIe of GPUs, whose counters take 3 to 4 ms of CPU time to read",
)
@click.option(
    "--format",
    "format_name",
    type=click.Choice((TABLE, JSON, RDMA_MONITOR)),
    default=TABLE,
    show_default=True,
    help="output on stdout",
)
@metrics_options(DEFAULT_ADDRESS)
@fail_on_option
@click.pass_context
def command(
    context: click.Context,
    interval_s: float,
    count: int | None,
    seconds: float | None,
    ports: tuple[str, ...],
    no_gpus: bool,
    format_name: str,
    listen: str,
    token_file: Path | None,
    fail_on: Verdict,
) -> int:
    """Show what the RDMA ports, interfaces, NVLinks and PCIe slots of this host carry, and what
    their counters mean.

    Rates are also shares of the links' rates, and pauses are shares of time. Counter patterns found
    are below the table, such as `the receiver's PCIe is the limit`. It only reads, and needs no
    root.
    """
    if context.invoked_subcommand:
        refuse_before_subcommand(context, context.invoked_subcommand)
        return int(Exit.OK)
    last = None if seconds is None else max(1, round(seconds / interval_s))
    where = metrics_address(listen, token_file)
    with ExitStack() as undo:
        reader = SampleReader(LinkSelection(ports, gpus=not no_gpus, system=format_name != TABLE))
        undo.callback(reader.close)
        stop = event_of_signals(undo)
        first = reader.read()
        page = Page(first)
        if where:
            where.serve(lambda: prometheus.render(page.shown), undo)
        show = _output(format_name) if not listen or is_given("format_name") else None
        watcher = Watcher(platform.node(), first)
        verdicts = set[Verdict]()
        for missed in ticks(interval_s, stop, count, last):
            sample = reader.read()
            watched = watcher.take(sample, missed)
            verdicts.update(watched.verdicts())
            if where:
                page.take(sample, watched)
            if show:
                show(watched)
    return int(Exit.OK if where else exit_of(verdicts, fail_on))


def _output(format_name: str) -> Show:
    """The function that prints an interval. Reasons for missing counters are printed once; on a
    terminal below the table.
    """
    if format_name == JSON:
        return lambda watched: print_out(view.line(watched))
    if format_name == TABLE and is_terminal() and takes_escapes():
        print_out(CLEAR_SCREEN, controls=True)
        return lambda watched: print_out(
            view.screen(watched, width(), shutil.get_terminal_size().lines), controls=True
        )
    printed, first = set[str](), True

    def show(watched: WatchInterval) -> None:
        nonlocal first
        for reason in watched.unread:
            if reason not in printed:
                print_err(f"note: {reason}")
        printed.update(watched.unread)
        if format_name == RDMA_MONITOR:
            print_out(view.text(watched, first=first))
        else:
            print_out(view.table(watched, width()) + "\n")
        first = False

    return show


command.add_command(watch_job.command)
