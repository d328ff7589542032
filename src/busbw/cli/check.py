"""`busbw check`: whether a machine, or every node of a cluster, is set up correctly."""

import platform
from collections.abc import Callable, Sequence
from functools import wraps
from glob import glob
from pathlib import Path
from typing import Any

import click
import msgspec

from busbw.check import cluster, load, measuring
from busbw.check import text as view
from busbw.check import types as check_types
from busbw.check.base import Check
from busbw.check.doctor import launching
from busbw.check.doctor.networks import LaunchContext
from busbw.check.expect.file import Expect, judge
from busbw.check.machine import Machine
from busbw.check.registry import CHECKS, ROWS, find_of_machine, find_row
from busbw.check.types import CheckReport
from busbw.cli import check_command, check_expect, check_job, check_output, check_trend
from busbw.cli.check_output import FORMATS, Output
from busbw.cli.shared_options import Seconds, Span, given, not_empty
from busbw.cli.streams import answer, width
from busbw.core.errors import BusbwError, Exit, UsageError
from busbw.core.finding import CheckRow, Layer, Verdict
from busbw.host.limited import CALL_S, within
from busbw.host.snapshot import recorded
from busbw.host.source import Live, Source
from busbw.launch.hosts import parse_hosts, read_hostfile


def _known(
    _context: click.Context, _parameter: click.Parameter, names: tuple[str, ...]
) -> tuple[str, ...]:
    """Names or ids of checks; UsageError for any other."""
    for name in names:
        find_row(name)
    return names


def _line_for_a_monitor(run: Callable[..., int | None]) -> Callable[..., int | None]:
    """`run`, whose errors are a line on stdout and exit code 3 with --brief: a monitor shows
    nothing else.
    """

    @wraps(run)
    def guarded(context: click.Context, **options: Any) -> int | None:
        try:
            return run(context, **options)
        except BusbwError as error:
            if not options["brief"]:
                raise
            return _not_checked(
                ", ".join(options["files"]) or options["hosts"] or options["hostfile"],
                error.message,
            )

    return guarded


def _not_checked(name: str, reason: str) -> int:
    code, line = view.brief_without(
        name or platform.node(), reason.removeprefix(f"{name}: "), Verdict.UNKNOWN
    )
    answer(line)
    return code


class _Check(click.Group):
    """With --brief, options that are wrong give the line and code of unknown too: the usual code
    2 would mean critical.
    """

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """The context of a command line."""
        brief = "--brief" in args
        try:
            return super().make_context(info_name, args, parent, **extra)
        except (BusbwError, click.ClickException) as error:
            if not brief:
                raise
            raise click.exceptions.Exit(_not_checked("", error.message)) from error


@click.group(
    "check",
    cls=_Check,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--only",
    multiple=True,
    metavar="CHECK",
    callback=_known,
    help="only this check, by name or id; may be repeated",
)
@click.option(
    "--layer",
    multiple=True,
    type=click.Choice([layer.value for layer in Layer], case_sensitive=False),
    help="only this layer",
)
@click.option(
    "--from",
    "files",
    multiple=True,
    metavar="FILE",
    help=(
        "snapshot of another machine, instead of this one; may be repeated, or a quoted pattern:"
        " '*.jsonl'"
    ),
)
@click.option(
    "--hosts",
    default="",
    callback=not_empty,
    help="check these hosts over ssh and compare them: h1,h2",
)
@click.option("--hostfile", default="", callback=not_empty, help="file with one host per line")
@click.option(
    "--limit",
    "limit_s",
    type=Seconds(),
    default=60.0,
    show_default=True,
    help="seconds for this host, or for each of --hosts",
)
@click.option(
    "--load",
    "load_s",
    type=Seconds(),
    help=(
        "first load each GPU, and each RDMA port next to one, for so many seconds, and judge links"
        " and clocks"
    ),
)
@click.option(
    "--watch-for",
    "watch_s",
    type=Span(),
    help="read all twice, this time apart (10s), and judge how error counters rose",
)
@click.option(
    "--since",
    metavar="FILE",
    default="",
    callback=not_empty,
    help="judge how error counters rose since this snapshot of the machine",
)
@click.option("--differences", is_flag=True, help="only compare the nodes, without checks")
@check_expect.expect_options
@click.option(
    "--all", "everything", is_flag=True, help="also print what passed and what does not apply"
)
@click.option("--brief", is_flag=True, help="one line and exit code of a Nagios plugin")
@click.option("--list", "listed", is_flag=True, help="list the checks")
@click.option("--node", is_flag=True, hidden=True, help="print a node's part of a comparison")
@click.option(
    "--format",
    "format_name",
    type=click.Choice(FORMATS),
    default="table",
    show_default=True,
    help="output on stdout",
)
@click.pass_context
@_line_for_a_monitor
def command(
    context: click.Context,
    only: tuple[str, ...],
    layer: tuple[str, ...],
    files: tuple[str, ...],
    hosts: str,
    hostfile: str,
    limit_s: float,
    load_s: float | None,
    watch_s: float | None,
    since: str,
    differences: bool,
    everything: bool,
    brief: bool,
    listed: bool,
    node: bool,
    format_name: str,
    expect: str,
    learn: bool,
    force: bool,
    fail_on: str,
) -> int | None:
    """Check GPUs, NVLink, PCIe, network ports, kernel, limits, CPUs and the environment of this
    machine.

    Prints each fault, what was read, and the command that fixes it. With several hosts or snapshots
    it first prints what differs between them. --learn writes what a node should have, --expect
    compares with it. Exit code 1 if a check fails (with --differences: if nodes differ), 3 if none
    fails and a part of the machine could not be judged. `busbw explain BW070` prints the page of a
    check.
    """
    if context.invoked_subcommand:
        _nothing_given(context, context.invoked_subcommand)
        return None
    if learn or force:
        return check_expect.learn(_matching(files), limit_s, asked=learn, force=force)
    if listed:
        answer(view.listing(_rows(only, layer), width()))
        return int(Exit.OK)
    chosen = () if differences else _chosen(only, layer)
    also = None if differences else check_expect.expected(expect, _rows(only, layer), node=node)
    if node:
        earlier = check_output.first(chosen, watch_s, limit_s)
        found = within(
            lambda source: cluster.here(source, chosen, earlier=earlier, expect=also),
            Live(),
            limit_s=limit_s,
        )
        answer(msgspec.json.encode(found).decode() + "\n")
        return int(Exit.OK)
    names, files = _names(hosts, hostfile), _matching(files)
    _refuse(names, files, load=bool(load_s), differences=differences, alone=bool(brief or expect))
    check_output.refuse(watch_s, since, files, hosts=len(names))
    output = Output(
        format_name=format_name, everything=everything, brief=brief, fail_on=Verdict(fail_on)
    )
    if names:
        options = _options(only, layer, watch_s, also, differences=differences)
        return output.several(
            cluster.ask(names, options, limit_s, watch_s or 0.0, check_expect.sent(also))
        )
    if len(files) > 1:
        return output.several(cluster.recorded_nodes(files, chosen, also))
    if files:
        source = recorded(Path(files[0]))
        return output.one(
            judge(
                Machine(source, check_output.then(since, source) if since else None),
                chosen,
                files[0],
                also,
            )
        )
    return output.one(_here(chosen, also, load_s, watch_s, since, limit_s))


def _names(hosts: str, hostfile: str) -> list[str]:
    """The hosts of --hosts or --hostfile."""
    if hostfile:
        return [host.name for host in read_hostfile(hostfile)]
    return [host.name for host in parse_hosts(hosts)] if hosts else []


def _refuse(
    names: Sequence[str], files: Sequence[str], *, load: bool, differences: bool, alone: bool
) -> None:
    """UsageError for options that exclude each other; `alone` are those that --differences does
    not read.
    """
    if load and (names or files):
        raise UsageError(
            "--load is for this machine", "use it without --hosts, --hostfile and --from"
        )
    if names and files:
        raise UsageError(
            "--hosts and --from exclude each other", "use --from with snapshots of those hosts"
        )
    if differences and (alone or len(names) + len(files) < 2):
        raise UsageError(
            "--differences compares several nodes",
            "give --hosts h1,h2 or --from '*.jsonl', without --brief and --expect",
        )


def _nothing_given(context: click.Context, invoked: str) -> None:
    """UsageError for an option before the name of a subcommand."""
    unused = next(
        (
            parameter.opts[0]
            for parameter in context.command.params
            if parameter.name and given(parameter.name)
        ),
        None,
    )
    if unused:
        raise UsageError(
            f"{unused} stands before {invoked}, which does not read it",
            "give options of a command after its name",
        )


def _here(
    chosen: Sequence[Check],
    expect: Expect | None,
    load_s: float | None,
    watch_s: float | None,
    since: str,
    limit_s: float,
) -> CheckReport:
    """The findings on this machine: after a load, if `load_s` is given, which comes between the
    two readings of `watch_s`.
    """
    earlier = check_output.first(chosen, watch_s, limit_s)

    def work(source: Source) -> CheckReport:
        if load_s:
            load.begin(source)
        return judge(
            Machine(source, check_output.then(since, source) if since else earlier),
            chosen,
            "",
            expect,
        )

    longest_s = [load.longest_s(load_s), measuring.longest_s(load_s)] if load_s else [0.0]
    source = load.Loaded(load_s) if load_s else Live()
    return within(work, source, limit_s=limit_s + sum(longest_s), call_s=CALL_S + max(longest_s))


def _options(
    only: Sequence[str],
    layers: Sequence[str],
    watch_s: float | None,
    expect: Expect | None,
    *,
    differences: bool,
) -> list[str]:
    """The options with which other hosts run the same checks."""
    twice = ["--watch-for", f"{watch_s:g}"] if watch_s else []
    chosen = [
        word
        for option, values in (("--only", only), ("--layer", layers))
        for value in values
        for word in (option, value)
    ]
    return (
        ["--differences"]
        if differences
        else [*chosen, *twice, *check_expect.options_of_nodes(expect)]
    )


def _matching(files: Sequence[str]) -> tuple[str, ...]:
    """The named files, and those that match patterns."""
    found: list[str] = []
    for file in files:
        is_pattern = set("*?[") & set(file) and not Path(file).exists()
        # Path.glob takes no absolute pattern.
        matching = sorted(glob(file)) if is_pattern else [file]  # noqa: PTH207
        if not matching:
            raise UsageError(f"--from {file}: no file matches", "busbw snapshot makes one")
        found += matching
    return tuple(found)


def _rows(only: Sequence[str], layers: Sequence[str]) -> list[CheckRow]:
    named = {find_row(name).id for name in only}
    found = [
        row
        for row in ROWS
        if (not named or row.id in named) and (not layers or row.layer.value in layers)
    ]
    if not found:
        raise UsageError(
            f"no check of {', '.join(only)} is of layer {', '.join(layers)}",
            "busbw check --list names all",
        )
    return found


def _chosen(only: Sequence[str], layers: Sequence[str]) -> tuple[Check, ...]:
    for name in only:
        find_of_machine(name)
    ids = {row.id for row in _rows(only, layers)}
    return tuple(check for check in CHECKS if check.row.id in ids)


@command.command("launch", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--hosts", default="", callback=not_empty, help="hosts and ranks on each: h1:8,h2:8")
@click.option(
    "--hostfile", default="", callback=not_empty, help="file with one host per line: `h1 slots=8`"
)
@click.option(
    "--ifname",
    default="",
    callback=not_empty,
    help="interface or subnet to use, instead of the first that works",
)
@click.option(
    "--engine",
    type=click.Choice(["auto", "nccl", "mpi"]),
    default="auto",
    show_default=True,
    help="mpi: without GPUs",
)
@click.option(
    "--limit",
    "limit_s",
    type=Seconds(),
    default=30.0,
    show_default=True,
    help="seconds for each stage",
)
@click.option(
    "--format",
    "format_name",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="output on stdout",
)
def launch(
    hosts: str, hostfile: str, ifname: str, engine: str, limit_s: float, format_name: str
) -> int:
    """Find out why a launch over several hosts fails: ssh, busbw, names, subnets, TCP, mpirun, MPI,
    NCCL, a small all_reduce.

    It stops at the first stage that fails, with its cause. If none does, it prints command lines
    that work. Exit code 1 if a stage fails.
    """
    named = read_hostfile(hostfile) if hostfile else parse_hosts(hosts) if hosts else ()
    if len(named) < 2:
        raise UsageError(
            "busbw check launch needs two hosts or more", "name them: --hosts h1:8,h2:8"
        )
    context, done = LaunchContext(named, limit_s, ifname, engine), []
    for stage in launching.stages(context):
        done.append(stage)
        if format_name == "table":
            answer(check_types.stage(stage, width()))
    found = launching.diagnosis(context, done)
    answer(
        msgspec.json.format(msgspec.json.encode(found), indent=1).decode() + "\n"
        if format_name == "json"
        else check_types.commands(found)
    )
    return int(Exit.BAD if found.failed else Exit.OK)


command.add_command(check_command.command)
command.add_command(check_job.command)
command.add_command(check_trend.command)
