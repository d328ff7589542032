"""`busbw watch job`: whom a job that runs under `busbw capture` waits for, while it runs."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from busbw.check.shell_words import word
from busbw.cli.metrics_server import metrics_address, metrics_options
from busbw.cli.options.parameters import File, is_given
from busbw.cli.options.shared import (
    fail_on_option,
    hosts_options,
    interval_options,
    launch_limit_option,
)
from busbw.cli.streams import print_err
from busbw.core.errors import UsageError
from busbw.core.finding import Verdict, exit_of
from busbw.core.link_samples import JOB_METRICS_PORT
from busbw.launch.hostfile import given_hosts
from busbw.watch.exporter import LOOPBACK
from busbw.watch.watcher import event_of_signals, ticks

if TYPE_CHECKING:
    from busbw.job.live.types import JobLook, LiveVerdict

_Look = Callable[[], tuple["JobLook", "LiveVerdict"]]
ONCE = 5  # readings: who makes no progress is seen in several
SERVED_S = 60.0  # metrics of a job that has ended: Prometheus scrapes once in that time
TABLE, JSON = "table", "json"


@click.command("job", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("folder", metavar="[DIR]", required=False, type=File(folder=True))
@click.option(
    "--pid",
    "pids",
    default="",
    metavar="PID[,PID...]",
    help="ranks on this host, or their launcher, of a job that was not started under `capture`",
)
@hosts_options("hosts of the job: h1,h2 or gpu[01-16]  [default: this one]")
@launch_limit_option
@interval_options(0.1, 60.0)
@click.option("--once", is_flag=True, help=f"print the verdict after {ONCE} readings, and end")
@click.option(
    "--format",
    "format_name",
    type=click.Choice((TABLE, JSON)),
    default=TABLE,
    show_default=True,
    help="output on stdout",
)
@metrics_options(f"{LOOPBACK}:{JOB_METRICS_PORT}")
@fail_on_option
def command(
    folder: Path | None,
    pids: str,
    hosts: str,
    hostfile: Path | None,
    launch_limit_s: float,
    interval_s: float,
    count: int | None,
    seconds: float | None,
    once: bool,
    format_name: str,
    listen: str,
    token_file: Path | None,
    fail_on: Verdict,
) -> int:
    """Watch the job that runs under `busbw capture --output DIR`, and name the rank that the others
    wait for: one that is stopped, has died, has not made a call, made another call, or is late.

    On a terminal it is a screen with the steps of the last minutes and the ranks, the latest first;
    to a pipe a line for each interval, and the evidence when the verdict changes. It ends with the
    job, or with Ctrl-C, and says then how often and for how long each verdict was seen.

    It reads the files in DIR, from which the job takes no notice of it, and /proc. With --hosts it
    does so on each of these, over ssh: DIR may be shared, or a folder of each host. Who is late is
    known of DistributedDataParallel, of any training on CPUs that has an optimizer, and of NCCL's
    calls under `capture --timed`, from 5 steps on.

    With --pid it reads /proc and NCCL's RAS alone: a stopped or dead process is named, and whether
    the job makes progress is unknown.
    """
    from busbw.cli.watch_job_output import NOTHING, JobOutput
    from busbw.job.live.prometheus import JobPage
    from busbw.job.live.types import interval

    named = [host.name for host in given_hosts(hosts, hostfile)]
    _check_source(folder, pids, named)
    if once and (count or seconds or listen):
        raise UsageError(
            f"--once: it ends after {ONCE} readings", "leave out --once, or the other options"
        )
    where = metrics_address(listen, token_file)
    last = None if seconds is None else max(1, round(seconds / interval_s))
    quiet = where is not None and not is_given("format_name")
    name = folder.resolve().name if folder else f"pid {pids}"
    page, verdicts = JobPage(name), set[Verdict]()
    with ExitStack() as undo:
        stop = event_of_signals(undo)
        if folder is None:
            look_and_judge = _processes(pids)
        else:
            look_and_judge = _folder(folder, named, launch_limit_s, undo)
        if where:
            where.serve(lambda: page.text, undo)
        output = JobOutput(NOTHING if quiet else format_name, name, once=once)
        for number, _ in enumerate(ticks(interval_s, stop, count, last), 1):
            look, verdict = look_and_judge()
            found, is_over = interval(look, verdict), verdict.is_over
            if folder:
                found = replace(found, next=found.next.replace("DIR", word(str(folder))))
            output.note(found)
            if once and number < ONCE and not is_over:
                continue
            page.take(found)
            output.show(found)
            verdicts.add(found.verdict)
            if is_over and where:
                print_err(f"note: metrics are served for {SERVED_S:g} s more")
                stop.wait(SERVED_S)
            if once or is_over:
                break
        output.end()
    known = verdicts - {Verdict.UNKNOWN}
    return int(exit_of(known or verdicts, fail_on))


def _check_source(folder: Path | None, pids: str, hosts: list[str]) -> None:
    """UsageError without a job to watch, or with two."""
    if (folder is None) == (not pids):
        raise UsageError(
            "watch job: give either the folder of a capture or --pid",
            "busbw watch job DIR, or busbw watch job --pid PID",
        )
    if pids and hosts:
        raise UsageError(
            "--pid: processes of this host, not of --hosts", "start it on the host of the processes"
        )
    if folder and not hosts and not folder.is_dir():
        raise UsageError(
            f"{folder}: no such folder", f"busbw capture --output {folder} -- COMMAND makes it"
        )


def _folder(folder: Path, hosts: list[str], launch_limit_s: float, undo: ExitStack) -> _Look:
    """Looks at the job of a capture and judges it."""
    from busbw.job.live.hosts import JobHosts
    from busbw.job.live.judge import judge
    from busbw.job.live.reader import JobFolder

    readers = undo.enter_context(JobHosts(hosts, folder)) if hosts else None
    if readers:
        readers.start(launch_limit_s)
    watched = JobFolder(folder, readers)

    def of_folder() -> tuple["JobLook", "LiveVerdict"]:
        look = watched.look()
        return look, judge(look)

    return of_folder


def _processes(pids: str) -> _Look:
    """The same of processes."""
    from busbw.job.live.process_judge import judge_processes
    from busbw.job.live.processes import JobProcesses

    words = pids.split(",")
    if not all(word.strip().isdecimal() for word in words):
        raise UsageError(
            f"--pid {pids}: not numbers of processes", "busbw watch job --pid 4711,4712"
        )
    watched = JobProcesses([int(word) for word in words])

    def of_processes() -> tuple["JobLook", "LiveVerdict"]:
        look = watched.look()
        return look.job, judge_processes(look)

    return of_processes
