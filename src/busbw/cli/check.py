"""`busbw check`: whether a machine, or every node of a cluster, is set up correctly."""

from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from busbw.check import cluster
from busbw.check import text as view
from busbw.check.api import LIMIT_S, here, of_several, of_source, words_of_hosts
from busbw.check.base import Check
from busbw.check.chosen import check_rows, chosen_checks, refuse_contradictions
from busbw.check.earlier import BY_TOTALS, read_first, refuse_watch_options
from busbw.check.expect.file import Expect, unused_mutes
from busbw.check.types import CheckReport
from busbw.cli.checks import command_line, config, engines, explain, job, launch, trend
from busbw.cli.checks import expect as expectations
from busbw.cli.checks.arguments import known, machine_in, matching_files, refuse_before_subcommand
from busbw.cli.checks.brief import BriefGroup
from busbw.cli.checks.output import FORMATS, CheckOutput, check_output
from busbw.cli.checks.save import STDOUT, prepare_folder, refuse_others, save_option, save_snapshot
from busbw.cli.config.reference import reference_file
from busbw.cli.options import groups
from busbw.cli.options.parameters import Seconds, not_a_format, not_empty
from busbw.cli.options.shared import hosts_options
from busbw.cli.streams import print_err, print_out
from busbw.cli.terminal import width
from busbw.core.errors import Exit
from busbw.core.finding import Layer, Verdict
from busbw.host.limited import within
from busbw.host.source import LiveMachine, Source
from busbw.launch.hostfile import given_hosts

LAYERS = [layer.value for layer in Layer]


@click.group(
    "check",
    cls=BriefGroup,
    groups=groups.CHECK,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--only",
    multiple=True,
    metavar="CHECK",
    callback=known,
    help="only this check, by name or id; may be repeated",
)
@click.option(
    "--layer",
    multiple=True,
    type=click.Choice(LAYERS, case_sensitive=False),
    metavar="LAYER",
    help=f"only this layer: {', '.join(LAYERS)}",
)
@click.option(
    "--skip",
    multiple=True,
    metavar="CHECK",
    callback=known,
    help="not this check, by name or id; may be repeated",
)
@click.option(
    "--from",
    "files",
    multiple=True,
    metavar="FILE",
    help=(
        "snapshot or kernel log of another machine, instead of this one; may be repeated, a folder"
        " of snapshots, or a quoted pattern: '*.jsonl'"
    ),
)
@hosts_options("hosts to check over ssh and to compare: h1,h2 or gpu[01-16]")
@click.option(
    "--limit",
    "limit_s",
    type=Seconds(),
    default=LIMIT_S,
    show_default=True,
    help="give up after this time on this host, or on each of --hosts",
)
@click.option(
    "--load",
    "load_s",
    type=Seconds(),
    help=(
        "first load each GPU, each RDMA port next to one, then all GPUs with NCCL, for so many"
        " seconds, and judge links, clocks and busbw"
    ),
)
@click.option(
    "--watch-for",
    "watch_s",
    type=Seconds(),
    help="read all twice, this time apart (10s), and judge how error counters rose",
)
@click.option(
    "--since",
    metavar="FILE",
    default="",
    callback=not_empty,
    help=(
        "judge how error counters rose since this snapshot of the machine; or a folder with one of"
        " each machine"
    ),
)
@save_option
@click.option("--differences", is_flag=True, help="only compare the nodes, without checks")
@expectations.expect_options
@click.option(
    "--all", "everything", is_flag=True, help="also print what passed and what does not apply"
)
@click.option("--nagios", "brief", is_flag=True, help="one line and exit code of a Nagios plugin")
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
@click.option(
    "--output",
    metavar="FILE",
    default="",
    callback=not_a_format,
    help="write the output to this file, which is replaced at once, and that all users can read",
)
@click.pass_context
def command(
    context: click.Context,
    only: tuple[str, ...],
    layer: tuple[str, ...],
    skip: tuple[str, ...],
    files: tuple[str, ...],
    hosts: str,
    hostfile: Path | None,
    limit_s: float,
    load_s: float | None,
    watch_s: float | None,
    since: str,
    save: str,
    differences: bool,
    everything: bool,
    brief: bool,
    listed: bool,
    node: bool,
    format_name: str,
    output: str,
    expect: str,
    learn: bool,
    accept_faults: bool,
    force: bool,
    fail_on: Verdict,
) -> int | None:
    """Check GPUs, NVLink, PCIe, network ports, kernel, limits, CPUs and the environment of this
    machine.

    Prints each fault, what was read, and the command that fixes it. With several hosts or snapshots
    it first prints what differs between them. --learn writes what a node should have, --expect
    compares with it. `busbw check explain BW070` prints the page of a check.
    """
    if context.invoked_subcommand:
        refuse_before_subcommand(context, context.invoked_subcommand)
        return None
    check_output(output, other=listed or learn or node, brief=brief)
    expectations.refuse_without(learn=accept_faults and not learn, save=force and not save)
    if learn:
        return expectations.learn(matching_files(files), limit_s, accept_faults=accept_faults)
    if listed:
        print_out(view.listing(check_rows(only, layer, skip), width()))
        return int(Exit.OK)
    checks: tuple[Check, ...] = ()
    expected: Expect | None = None
    if not differences:
        checks = chosen_checks(only, layer, skip)
        expected = expectations.load_expected(expect, check_rows(only, layer, skip), node=node)
    if node:
        return _answer_node(checks, expected, watch_s, limit_s)
    if save:
        refuse_others()
    names = [host.name for host in given_hosts(hosts, hostfile)]
    named, files = files, matching_files(files)
    refuse_contradictions(
        names, files, load=bool(load_s), differences=differences, ignored=bool(brief or expect)
    )
    refuse_watch_options(watch_s, since, files, hosts=len(names))
    printed = CheckOutput(
        format_name=format_name,
        everything=everything,
        brief=brief,
        fail_on=fail_on,
        file=output,
        chosen=bool(only or layer) and not differences,
    )
    if names and save:
        prepare_folder(save, names, force=force)
    if names or len(files) > 1:
        words = words_of_hosts(only, layer, skip, watch_s, expected, differences=differences)
        nodes = of_several(
            *(names, files, words, limit_s, watch_s, checks, expected, since, save),
            newest=files != named,
        )
        _warn_of_mutes(expected, nodes.nodes, fleet=True)
        return printed.print_several(nodes)
    if save or files:
        source = _save(save, limit_s, force=force) if save else machine_in(files[0])
        return _print_recorded(source, "".join(files), checks, expected, since, printed)
    report = here(checks, expected, load_s, watch_s, since, limit_s, reference_file)
    return _print_report(report, expected, printed)


def _print_report(report: CheckReport, expected: Expect | None, output: CheckOutput) -> int:
    if report.no_earlier:
        print_err(f"warning: --since {report.no_earlier}, {BY_TOTALS}")
    _warn_of_mutes(expected, [report])
    return output.print_one(report)


def _warn_of_mutes(
    expected: Expect | None, reports: Sequence[CheckReport], *, fleet: bool = False
) -> None:
    """Warn of mutes that accept nothing, whose host or part may be misspelled."""
    for text in unused_mutes(expected, reports, fleet=fleet) if expected else ():
        print_err(f"warning: {text}")


def _answer_node(
    checks: Sequence[Check], expected: Expect | None, watch_s: float | None, limit_s: float
) -> int:
    """Print this node's part of a comparison."""
    earlier = read_first(checks, watch_s, limit_s)
    node = within(
        lambda source: cluster.findings_here(source, checks, earlier=earlier, expect=expected),
        LiveMachine(),
        limit_s=limit_s,
    )
    print_out(msgspec.json.encode(node).decode() + "\n")
    return int(Exit.OK)


def _save(file: str, limit_s: float, *, force: bool) -> Source | None:
    """The machine as it was saved; None if the file is stdout, which has no room for checks."""
    source = save_snapshot(file, limit_s, force=force)
    return None if file == STDOUT else source


def _print_recorded(
    source: Source | None,
    name: str,
    checks: Sequence[Check],
    expected: Expect | None,
    since: str,
    output: CheckOutput,
) -> int:
    if source is None:
        return int(Exit.OK)
    report = of_source(source, name, checks, expected, since)
    return _print_report(report, expected, output)


for _subcommand in (launch, command_line, job, trend, engines, explain, config):
    command.add_command(_subcommand.command)
