"""`busbw link`: measures the links between hosts, pair by pair."""

import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from busbw.cli.link_suspects import SEARCHES, SuspectSearch
from busbw.cli.options import groups
from busbw.cli.options.grouped import GroupedCommand
from busbw.cli.options.parameters import File, Rate, Seconds, argv, not_empty
from busbw.cli.options.shared import (
    fail_on_option,
    hosts_options,
    launch_limit_option,
    result_file,
    result_options,
)
from busbw.cli.streams import print_err, print_out
from busbw.cli.terminal import width
from busbw.core import json_codec
from busbw.core.errors import Exit, NoMeasurement, UsageError
from busbw.core.finding import Verdict, exit_of
from busbw.core.sizes import parse_size
from busbw.engines.registry import AUTO, BY_NAME
from busbw.launch.hostfile import given_hosts
from busbw.link import html as link_html
from busbw.link import text as view
from busbw.link.driver import Tournament
from busbw.link.types import METHODS, PERFTEST, LinkReport, LinkSpec, SuspectReport
from busbw.measure.record import check_writable, save

FORMATS = ("table", "json")
# The parameters that are not ignored with --suspect.
DEFAULTS = LinkSpec()
OF_SUSPECT = {
    "hosts",
    "hostfile",
    "suspect",
    "collective",
    "engine",
    "size",
    "rails",
    "json_name",
    "format_name",
    "force",
    "fail_on",
}


@click.command(
    "link",
    cls=GroupedCommand,
    groups=groups.LINK,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@hosts_options("hosts to measure between: h1,h2,h3 or gpu[01-16]")
@click.option(
    "--test",
    "method",
    type=click.Choice(METHODS),
    default=DEFAULTS.method,
    show_default=True,
    help="tcp needs nothing installed; perftest: RDMA",
)
@click.option(
    "--rail",
    "rails",
    multiple=True,
    help="interface, RDMA device or CIDR, may be repeated; all = all shared networks",
)
@click.option(
    "--seconds",
    type=Seconds(),
    default=DEFAULTS.seconds,
    show_default=True,
    help="seconds to measure each transfer",
)
@click.option("--both", is_flag=True, help="also both directions at the same time")
@click.option(
    "--streams",
    type=click.IntRange(1, 64),
    default=DEFAULTS.streams,
    show_default=True,
    help="TCP connections, or queue pairs of perftest",
)
@click.option(
    "--pairings",
    "rounds",
    type=click.IntRange(0),
    default=DEFAULTS.rounds,
    show_default="all pairs",
    help="rounds of random pairs, for many hosts",
)
@click.option(
    "--size",
    default="",
    callback=not_empty,
    help="message size  [default: 1M of perftest, 64M of --suspect]",
)
@click.option(
    "--gpu",
    type=click.IntRange(0),
    help="perftest: send from the memory of this GPU (GPUDirect RDMA)",
)
@click.option(
    "--gid-index",
    type=click.IntRange(0),
    help="perftest: GID index  [default: that of RoCE v2 with the port's address]",
)
@click.option(
    "--line-rate",
    type=Rate("100Gbit/s"),
    help="rate of ports whose driver reports none, and of a lab: 100Gbit/s",
)
@click.option(
    "--limit",
    "limit_s",
    type=Seconds(),
    default=DEFAULTS.limit_s,
    show_default=True,
    help="give up after this time without an answer, beyond the transfer",
)
@launch_limit_option
@click.option(
    "--suspect",
    type=click.Choice(SEARCHES),
    help="find slow hosts, or slow pairs, by runs of a collective (busbw run)",
)
@click.option(
    "--collective",
    default="all_reduce",
    show_default=True,
    help="of --suspect: the collective to run",
)
@click.option(
    "--engine",
    type=click.Choice((AUTO, *BY_NAME)),
    default=AUTO,
    show_default=True,
    help="of --suspect: who moves the data",
)
@click.option(
    "--html", type=File(), metavar="FILE", help="write a page with heat maps to this file"
)
@click.option(
    "--format",
    "format_name",
    type=click.Choice(FORMATS),
    default="table",
    show_default=True,
    help="output on stdout",
)
@click.option("--node", is_flag=True, hidden=True)
@fail_on_option
@result_options
def command(
    hosts: str,
    hostfile: Path | None,
    rails: tuple[str, ...],
    size: str,
    line_rate: float | None,
    launch_limit_s: float,
    suspect: str | None,
    collective: str,
    engine: str,
    html: Path | None,
    format_name: str,
    node: bool,
    fail_on: Verdict,
    json_name: str,
    force: bool,
    **fields: Any,
) -> int:
    """Measure the links between hosts: every pair, in both directions, and small messages.

    Pairs run at the same time only if they share no host. Slow hosts are distinguished from slow
    pairs. The hosts need busbw at the same path and ssh without a password.

    --suspect instead runs a collective over some of the hosts, to find slow hosts with few runs.
    `hosts` halves slow groups. `pairs` runs every two hosts, and also finds two that are slow only
    together. --hosts h1:8,h2:8 gives the ranks of each host.
    """
    if node:
        return _node()
    _refuse_ignored(click.get_current_context(), bool(suspect))
    for option, file in (("--json", result_file(json_name)), ("--html", html)):
        if file is not None:
            check_writable(file, overwrite=force, what=f"{option} {file}")
    output = LinkOutput(html, format_name, json_name, fail_on)
    named = given_hosts(hosts, hostfile)
    if not named:
        raise UsageError("link: no hosts are named", "busbw link --hosts h1,h2, or --hostfile FILE")
    if suspect:
        if len(rails) > 1:
            raise UsageError("--suspect uses one network", "give --rail once")
        size_bytes, rail = parse_size(size or "64M", "--size"), next(iter(rails), "")
        search = SuspectSearch(suspect, collective, size_bytes, named, engine, rail, output.keep)
        return _search(search, output)
    size_bytes = parse_size(size or "1M", "--size")
    spec = LinkSpec(rails=list(rails), size=size_bytes, line_rate=line_rate, **fields)
    for option, value in (("--gpu", spec.gpu), ("--gid-index", spec.gid_index)):
        if spec.method != PERFTEST and value is not None:
            raise UsageError(f"{option} {value}: it is for RDMA", "add --test perftest")
    return _measure([host.name for host in named], spec, launch_limit_s, output)


def _refuse_ignored(context: click.Context, suspect: bool) -> None:
    """UsageError for a given option that would be ignored."""
    source = context.get_parameter_source
    given = {name for name in context.params if source(name) is ParameterSource.COMMANDLINE}
    if suspect:
        ignored, why = given - OF_SUSPECT, "--suspect runs a collective"
    else:
        ignored, why = given & {"collective", "engine"}, "without --suspect no collective runs"
    options = [
        max(parameter.opts, key=len)
        for parameter in context.command.params
        if parameter.name in ignored
    ]
    if options:
        raise UsageError(f"{', '.join(options)}: {why}", "remove it; see busbw link --help")


@dataclass(frozen=True, slots=True)
class LinkOutput:
    """How a report is printed, and the files that it is written to."""

    html: Path | None
    format_name: str
    json_name: str
    fail_on: Verdict = Verdict.FAIL

    def keep(self, report: LinkReport | SuspectReport) -> None:
        """Write the file of --json."""
        file = result_file(self.json_name)
        if file is not None:
            save(json_codec.encode(report) + b"\n", file)

    @property
    def as_json(self) -> bool:
        """Whether stdout gets JSON."""
        return self.format_name == "json" or self.json_name == "-"

    def print(self, report: LinkReport) -> int:
        """Print a report, write its page, and return its exit code."""
        if self.html is not None:
            save(link_html.page(report), self.html, shared=True)
        if self.as_json:
            print_out(json_codec.encode(report).decode() + "\n")
        else:
            print_out(view.render(report, width()))
        return int(exit_of(report.verdicts(), self.fail_on))


def _measure(hosts: list[str], spec: LinkSpec, launch_limit_s: float, output: LinkOutput) -> int:
    interrupted = False
    with Tournament(hosts, spec, output.keep, print_err) as tournament:
        tournament.report.argv = argv()
        try:
            tournament.run(launch_limit_s)
        except KeyboardInterrupt:
            interrupted = True
    code = output.print(tournament.report)
    return int(Exit.INTERRUPTED) if interrupted else code


def _search(search: SuspectSearch, output: LinkOutput) -> int:
    interrupted = False
    try:
        search.run()
    except KeyboardInterrupt:
        interrupted = True
    report = search.report
    if output.as_json:
        print_out(json_codec.encode(report).decode() + "\n")
    else:
        print_out(view.render_suspects(report, width()))
    code = exit_of(report.verdicts(), output.fail_on)
    return int(Exit.INTERRUPTED if interrupted else code)


def _node() -> int:
    """Answer requests on stdin until it closes: one host's side of a test."""
    from busbw.launch.node import serve
    from busbw.link.node import LinkService

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.stdin.isatty():
        raise NoMeasurement(
            "link --node: stdin is a terminal", "busbw link --hosts h1,h2 starts it on each host"
        )
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # only answers may go to stdout
    service = LinkService()
    try:
        serve(service.handle, sys.stdin.buffer, answers)
    finally:
        service.close()
    sys.stdout.flush()
    os._exit(int(Exit.OK))  # does not wait for threads that still wait for a peer
