"""`busbw run`: measure one collective."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from busbw.cli.config.reference import known_or_published
from busbw.cli.keep import finishing
from busbw.cli.min_busbw import Minimum, minimum_options
from busbw.cli.options import groups
from busbw.cli.options.grouped import GroupedCommand
from busbw.cli.options.nccl import nccl_options
from busbw.cli.options.parameters import Seconds, argv, given, not_empty
from busbw.cli.options.sampling import CLASSIC_ONLY, sampling_options, take_sampling
from busbw.cli.options.shared import (
    dry_run_option,
    net_option,
    no_history_option,
    options,
    refuse_ran,
    result_file,
    result_options,
    start_options,
    take_where,
)
from busbw.cli.output import BRIEF, SweepOutput, exit_code, print_command
from busbw.cli.print_env import print_env, print_env_option
from busbw.cli.run_page import keep_and_write_page, page_target
from busbw.cli.streams import talk
from busbw.cli.terminal import is_terminal, width
from busbw.core.collectives import collective
from busbw.core.errors import UsageError
from busbw.core.options import OPTIONS, Option
from busbw.core.sizes import parse_size, short_size
from busbw.core.sweep import SweepSpec
from busbw.engines.registry import ENGINES
from busbw.engines.sim_parameters import parse_parameters
from busbw.measure.api import prepare, run
from busbw.measure.fault_injection import parse as parse_fault
from busbw.measure.record import Record
from busbw.model import bounds
from busbw.report.registry import VIEWS, view

TIMED = -1
SOAK_ROUNDS = 100  # data checks of a row: fewer rows to keep for the same data
SWEEP_OPTIONS = [row for row in OPTIONS if not row.compat_only]
MORE_HELP = {  # what applies only to `busbw run`
    "check": "; `timed` = also verify what the timed iterations wrote",
    "iters": "; if not given, precise timing takes as many as needed",
    **dict.fromkeys(CLASSIC_ONLY, " (classic timing)"),
}
FULL_ROWS = "; if not given, the first of these sizes at which every rank has an element"


def _size(_: click.Context, parameter: click.Parameter, value: str) -> int:
    return parse_size(value, parameter.opts[0])


def _rounds(_: click.Context, _parameter: click.Parameter, value: str) -> int:
    if value != "timed" and not value.isdecimal():
        raise UsageError(
            f"--check: '{value}' is not a number of rounds", "give 0, 1 or more, or `timed`"
        )
    return TIMED if value == "timed" else int(value)


def sweep_option(row: Option, more_help: str = "") -> Callable[[Any], Any]:
    """The click option of a row of the table of options."""
    names = [row.name(strict=True)]
    if "_" in row.long:
        names.append(f"--{row.long}")
    if row.short != "n":  # -n means ranks, as with mpirun
        names.append(f"-{row.short}")
    kind = "rounds" if row.field == "check" else row.kind
    callback = {"size": _size, "rounds": _rounds}.get(kind)
    metavar = kind.upper() if callback else None
    if row.choices:
        metavar = f"[{'|'.join(map(str, row.choices))}]"
    allowed = f"; {row.allowed}" if row.allowed and not row.choices else ""
    default = short_size(row.default_for_run) if row.kind == "size" else row.default_for_run
    return click.option(
        *names,
        row.field,
        type=int if kind == "int" else str,
        callback=callback,
        default=default,
        show_default=True,
        help=row.help + MORE_HELP.get(row.field, more_help) + allowed,
        metavar=metavar,
    )


@click.command(
    "run",
    cls=GroupedCommand,
    groups=groups.RUN,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("name", metavar="COLLECTIVE", default="")
@start_options
@net_option
@nccl_options
@click.option(
    "--engine",
    default="auto",
    callback=not_empty,
    show_default=True,
    metavar="ENGINE",
    help=f"auto, {', '.join(row.name for row in ENGINES)}",
)
@click.option(
    "--sim",
    "simulation",
    default="",
    metavar="NAME=VALUE,...",
    help="parameters of the sim engine: alpha_us=5,gbps=370,noise=0.01",
)
@click.option(
    "--inject",
    default="",
    metavar="FAULT",
    help="inject a fault: late:rank=2,us=200; the run is not kept in the history",
)
@click.option(
    "--counts",
    default="",
    metavar="COUNTS",
    callback=not_empty,
    help=(
        "alltoallv: bytes of each pair of ranks: zipf:1.05[,rows=N][,ids=N,dedup][,sorted|,seed=N],"
        " or file:NAME"
    ),
)
@click.option(
    "--watch",
    is_flag=True,
    help="show for each size what the ports and NVLinks carried and lost (precise timing)",
)
@click.option(
    "--ideal",
    default="",
    callback=not_empty,
    metavar="RATE",
    help="ideal busbw, instead of the one from the topology: 450GB/s",
)
@click.option(
    "--format",
    "format_name",
    metavar="FORMAT",
    default="table",
    show_default=True,
    help=", ".join(row.name for row in VIEWS),
)
@click.option(
    "--ran",
    is_flag=True,
    help="columns with NCCL's algorithm, protocol and channels, and how ranks are connected",
)
@click.option("--brief", is_flag=True, help="the same as --format brief")
@minimum_options
@result_options
@click.option(
    "--html",
    "html_name",
    default="",
    callback=not_empty,
    help="write the finished run to this file as one HTML page, as busbw report does",
)
@no_history_option
@dry_run_option
@print_env_option
@click.option(
    "--limit",
    "limit_s",
    type=Seconds(zero=True),
    default=60.0,
    show_default=True,
    help=(
        "stop the run after this many seconds without a completed operation; more if the previous"
        " size was slow; 0 = no limit"
    ),
)
@click.option(
    "--soak",
    "soak_s",
    type=Seconds(),
    default=None,
    help=(
        f"repeat the sweep for so many seconds, with {SOAK_ROUNDS} data checks per row, and stop at"
        " the first wrong data"
    ),
)
@sampling_options
@options(
    *(sweep_option(row, FULL_ROWS if row.field == "min_bytes" else "") for row in SWEEP_OPTIONS)
)
def command(
    name: str,
    format_name: str,
    json_name: str,
    force: bool,
    html_name: str,
    history: bool,
    dry_run: bool,
    env_format: str | None,
    ran: bool,
    brief: bool,
    min_busbw: float | None,
    min_percent: float | None,
    share_of: str,
    reference_file: Path | None,
    **fields: Any,
) -> int:
    """Measure COLLECTIVE (all_reduce, all-gather, AllToAll ...) over all local GPUs, or over the
    given ranks or hosts.

    Under mpirun, srun or torchrun each process is a rank of the existing job.
    """
    if env_format:
        return print_env(fields["net"], fields["ifname"], env_format)
    if not name:
        raise UsageError("no collective is named", "busbw run all_reduce")
    minimum = Minimum(min_busbw, min_percent, share_of, reference_file)
    minimum.check()
    format_name = BRIEF if brief else format_name
    fields |= take_where(fields)
    sampling = take_sampling(fields)
    sweep = {row.field: fields.pop(row.field) for row in SWEEP_OPTIONS}
    if given("step_bytes") and not given("step_factor"):
        sweep["step_factor"] = 1
    sweep["counts"] = fields.pop("counts")
    timed = sweep["check"] == TIMED
    if timed:
        sweep["check"] = 1
    soak_s = _take_soak(fields, sweep)
    spec = SweepSpec(
        collective=collective(name).name,
        check_timed=timed,
        soak_s=soak_s,
        sampling=sampling,
        **sweep,
    )
    _refuse_contradictions(spec, fields)
    to_stdout = json_name == "-"
    if to_stdout and given("format_name") and format_name != "json":
        raise UsageError(
            f"--json - and --format {format_name} both want stdout",
            "leave out one, or give --json a file, like --json result.json",
        )
    if ran:
        refuse_ran("json" if to_stdout else format_name)
    if fields["engine"] == "torch" and format_name == "csv":
        format_name = "torch-csv"  # the CSV of the PyTorch benchmark
    output_view = view("json" if to_stdout else format_name, width(), colors=is_terminal(), ran=ran)
    fields |= {
        "net": fields["net"] or "",
        "program": "busbw run",
        "argv": argv(),
        "full_rows": not given("min_bytes"),
    }
    if dry_run:
        return print_command(*prepare(spec, **fields))
    known = partial(known_or_published, reference_file)
    record = Record(result_file(json_name), overwrite=force, known=known)
    page_file = page_target(html_name, overwrite=force)
    sink = SweepOutput(record, output_view, refuse=minimum.refuse)
    title = Path(json_name).name if record.file else "this run"
    asked = history and not fields["inject"]
    with finishing(record, lambda result: keep_and_write_page(result, asked, page_file, title)):
        result = run(spec, sink=sink, **fields)
    code, reason = minimum.judge(result)
    if reason:
        talk(f"error: {reason}")
    return max(exit_code(result, format_name), int(code), key=(0, 3, 1).index)


def _take_soak(fields: dict[str, Any], sweep: dict[str, Any]) -> float:
    """Remove --soak from `fields`, and return its seconds; sets the number of data checks that goes
    with it. UsageError if other options contradict it.
    """
    soak_s = fields.pop("soak_s")
    if soak_s is None:
        return 0.0
    for name in filter(given, ("run_cycles", "repeats")):
        raise UsageError(
            f"--soak with --{name.replace('_', '-')}: both say how often to run the sweep",
            "leave out one of them",
        )
    if not sweep["check"]:
        raise UsageError("--soak with --check 0: nothing would be verified", "leave out --check")
    if not given("check"):
        sweep["check"] = SOAK_ROUNDS
    return float(soak_s)


def _refuse_contradictions(spec: SweepSpec, fields: dict[str, Any]) -> None:
    """UsageError for invalid values, and for options that contradict each other."""
    inject, engine, simulation = fields["inject"], fields["engine"], fields["simulation"]
    if parse_fault(inject) and spec.sampling is None:
        raise UsageError(
            f"--inject {inject} with --timing classic: only precise timing starts operations by a"
            " clock",
            "leave out one of them",
        )
    if fields["ideal"]:
        bounds.given(fields["ideal"])
    if simulation and engine != "sim":
        raise UsageError(
            f"--sim {simulation}: --engine is {engine}, and only sim has parameters",
            "add --engine sim, or leave out --sim",
        )
    if engine == "sim":
        parse_parameters(simulation)
