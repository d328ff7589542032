"""`busbw watch job`: whom a job that runs under `busbw capture` waits for, while it runs."""

from contextlib import ExitStack
from pathlib import Path

import click

from busbw.cli.options.parameters import File, Seconds
from busbw.cli.options.shared import fail_on_option
from busbw.cli.streams import print_err, print_out
from busbw.cli.terminal import width
from busbw.core.errors import UsageError
from busbw.core.finding import Verdict, exit_of
from busbw.watch.watcher import event_of_signals, ticks

ONCE = 5  # readings: who makes no progress is seen in several


@click.command("job", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("folder", metavar="DIR", type=File(folder=True))
@click.option(
    "--interval",
    "interval_s",
    type=Seconds(least=0.1, most=60.0),
    default="1s",
    show_default=True,
    help="time between readings, from 100ms",
)
@click.option("--once", is_flag=True, help=f"print the verdict after {ONCE} readings, and end")
@click.option(
    "--format",
    "format_name",
    type=click.Choice(("table", "json")),
    default="table",
    show_default=True,
    help="output on stdout",
)
@fail_on_option
def command(folder: Path, interval_s: float, once: bool, format_name: str, fail_on: Verdict) -> int:
    """Watch the job that runs under `busbw capture --output DIR`, and name the rank that the others
    wait for: one that is stopped, has died, has not made a call, made another call, or is late.

    Prints a line for each interval, and the evidence when the verdict changes, until the job ends
    or Ctrl-C. It reads the files in DIR, from which the job takes no notice of it, and /proc: the
    states of processes are those of this host alone. Who is late is known of
    DistributedDataParallel, and of any training on CPUs that has an optimizer, from 5 steps on.
    """
    from busbw.job.live import text as view
    from busbw.job.live.judge import OVER, judge
    from busbw.job.live.reader import JobFolder
    from busbw.job.live.types import interval

    if not folder.is_dir():
        raise UsageError(
            f"{folder}: no such folder", f"busbw capture --output {folder} -- COMMAND makes it"
        )
    watched, verdicts, shown = JobFolder(folder), set[Verdict](), None
    noted = set[str]()
    with ExitStack() as undo:
        for number, _ in enumerate(ticks(interval_s, event_of_signals(undo)), 1):
            look = watched.look()
            found = interval(look, judge(look))
            for reason in found.unread:
                if reason not in noted:
                    print_err(f"note: {reason}")
            noted.update(found.unread)
            if once and number < ONCE and found.kind != OVER:
                continue
            if format_name == "json":
                print_out(view.line(found))
            else:
                new = view.key(found) != shown
                print_out(view.text(found, width(), evidence=new))
            shown = view.key(found)
            verdicts.add(found.verdict)
            if once or found.kind == OVER:
                break
    known = verdicts - {Verdict.UNKNOWN}
    return int(exit_of(known or verdicts, fail_on))
