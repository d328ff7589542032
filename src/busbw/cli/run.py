"""`busbw run`: the modern face of a measurement."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from busbw.cli.output import SweepOutput, exit_code, print_command
from busbw.cli.slurm_options import slurm_options, take_step
from busbw.cli.terminal import width
from busbw.cli.words import File, Share, filled
from busbw.core.collectives import collective
from busbw.core.errors import UsageError
from busbw.core.networks import BY_NAME, NETWORKS
from busbw.core.options import BY_FIELD, OPTIONS, Option
from busbw.core.sizes import parse_size, short_size
from busbw.core.sweep import Sampling, SweepSpec
from busbw.engines.registry import ENGINES
from busbw.engines.sim_parameters import parse_parameters
from busbw.measure.inject import parse as parse_fault
from busbw.measure.record import Record
from busbw.model.bounds import given
from busbw.session.api import Options, command_line, run
from busbw.stats.sampling import MOST_TAIL_SAMPLES
from busbw.views.registry import VIEWS, view

FORMATS = [v.name for v in VIEWS]


class Size(click.ParamType[int]):
    """A size argument: bytes, or a number with K, M or G."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Bytes."""
        return value if isinstance(value, int) else parse_size(str(value), param.opts[0] if param else "size")


class Rounds(click.ParamType[int]):
    """Rounds of checks, or `timed`: one round, and what the timed iterations wrote."""

    name = "rounds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Rounds; TIMED for `timed`."""
        if value == "timed":
            return TIMED
        if not str(value).isdecimal():
            raise UsageError(f"--check: '{value}' is not a number of rounds", "give 0, 1 or more, or `timed`")
        return int(value)


TIMED = -1
LONGEST_LAUNCH_S = 86400
LIMIT_HELP = "seconds without a completed operation, more where the size before was slow; 0 = no limit"
_TYPES: dict[str, Any] = {"check": Rounds(), "int": int, "size": Size(), "word": str}


def _limit(_context: click.Context, _parameter: click.Parameter, value: float) -> float:
    if not 0 <= value <= LONGEST_LAUNCH_S:
        raise UsageError(f"--limit {value:g}: must be seconds from 0 to {LONGEST_LAUNCH_S}", "give seconds, like --limit 60")
    return value


def _option(row: Option) -> Callable[[Any], Any]:
    # -n means ranks here, as it does to mpirun; iterations have their long name alone.
    names = [
        f"--{row.long.replace('_', '-')}",
        *([f"--{row.long}"] if "_" in row.long else []),
        *([] if row.short == "n" else [f"-{row.short}"]),
    ]
    kind = _TYPES.get(row.field) or _TYPES[row.kind]
    text = f"{row.help}; `timed` = also verify what the timed iterations wrote" if row.field == "check" else row.help
    values = f"[{'|'.join(map(str, row.choices))}]" if row.choices else None
    bounds = f"; {row.allowed}" if row.allowed and not row.choices else ""
    default = short_size(row.default_for_run) if row.kind == "size" else row.default_for_run
    return click.option(*names, row.field, type=kind, default=default, show_default=True, help=text + bounds, metavar=values)


def _sampling_options(function: Any) -> Any:
    for option in reversed((
        click.option("--timing", type=click.Choice(["precise", "classic"]), default="precise", show_default=True,
                     help="precise: medians with intervals, host cost apart; classic: a mean as nccl-tests takes it"),
        click.option("--precision", type=Share(0, 1), default=None, show_default="1% on GPUs, 5% on CPUs",
                     help="how far the median's interval may reach to either side"),
        click.option("--confidence", type=Share(0.5, 0.99999), default="99%", show_default=True, help="of that interval"),
        click.option("--max-time", type=float, default=Sampling().max_time_s, show_default=True, help="seconds for a size and placement"),
        click.option("--tail", is_flag=True, help="also the 99th percentile, which takes several hundred samples"),
        click.option("--repeats", type=click.IntRange(1, 1000), default=1, show_default=True,
                     help="run everything this often, with communicators made anew and sizes in random order"),
    )):  # fmt: skip
        function = option(function)
    return function


MOST_GROUPED = 64  # operations that are all enqueued while the queue is held
CLASSIC_ONLY = ("blocking", "cudagraph", "report_cputime", "average", "per_iter_timing", "per_iter_skip")


def _sampling(timing: str, precision: float | None, confidence: float, max_time: float, tail: bool, repeats: int) -> Sampling | None:
    """What the timing options ask for; UsageError for options of the other timing."""
    if timing == "classic":
        for name in ("precision", "confidence", "max_time", "tail", "repeats"):
            if _given(name):
                raise UsageError(f"--{name.replace('_', '-')} with --timing classic: only precise timing has it", "leave out one of them")
        return None
    for name in CLASSIC_ONLY:
        if _given(name):
            raise UsageError(
                f"{BY_FIELD[name].name(strict=True)}: precise timing has no such thing", "add --timing classic, or leave it out"
            )
    iters = int(click.get_current_context().params["iters"]) if _given("iters") else 0
    if _given("iters") and not 1 <= iters <= MOST_TAIL_SAMPLES:
        raise UsageError(f"--iters {iters}: precise timing takes 1 to {MOST_TAIL_SAMPLES}", "leave it out to take as many as needed")
    grouped = click.get_current_context().params["agg_iters"]
    if grouped > MOST_GROUPED:
        raise UsageError(f"--agg-iters {grouped}: precise timing groups at most {MOST_GROUPED}", "add --timing classic, or give fewer")
    if not 0 < max_time <= LONGEST_LAUNCH_S:
        raise UsageError(f"--max-time {max_time:g}: must be seconds above 0, at most {LONGEST_LAUNCH_S}", "give seconds, like --max-time 5")
    return Sampling(precision=precision or 0.0, confidence=confidence, max_time_s=max_time, fixed=iters, tail=tail, repeats=repeats)


def _sweep_options(function: Any) -> Any:
    for row in reversed([row for row in OPTIONS if not row.compat_only]):
        function = _option(row)(function)
    return function


@click.command("run", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("name", metavar="COLLECTIVE")
@click.option("-n", "--ranks", type=click.IntRange(1), help="local ranks to start  [default: all GPUs, or 2 on CPUs]")
@click.option("--hosts", default="", callback=filled, help="hosts and ranks on each: h1:8,h2:8")
@click.option("--hostfile", type=File(), help="file of hosts: `h1 slots=8` a line")
@click.option("--ifname", default="", callback=filled, help="network interface for MPI, PMIx and NCCL together")
@click.option(
    "--net",
    type=click.Choice(list(BY_NAME)),
    default=None,
    show_default="NCCL's own choice",
    help=f"network that NCCL shall use; it fails where it cannot: {'; '.join(f'{row.name} = {row.meaning}' for row in NETWORKS)}",
)
@click.option(
    "--engine", "engine_name", default="auto", callback=filled, show_default=True, help=f"auto, {', '.join(row.name for row in ENGINES)}"
)
@click.option("--sim", "simulation", default="", help="parameters of the sim engine: alpha_us=5,gbps=370,noise=0.01")
@click.option("--inject", default="", help="inject a fault: late:rank=2,us=200")
@click.option("--ideal", default="", help="ideal busbw in GB/s, instead of the one from the topology")
@click.option("--format", "format_name", default="table", show_default=True, help=", ".join(FORMATS))
@click.option(
    "--json", "json_file", default="", callback=filled, help="keep the result in this file, updated after every size; - = stdout at the end"
)
@click.option("--force", is_flag=True, help="let --json replace an existing file")
@click.option("--dry-run", is_flag=True, help="print the launcher's command line and stop")
@click.option("--launch-limit", type=float, default=120.0, show_default=True, help="seconds until all ranks must have joined")
@click.option("--limit", type=float, default=60.0, show_default=True, callback=_limit, help=LIMIT_HELP)
@slurm_options
@_sampling_options
@_sweep_options
def command(
    name: str, ranks: int | None, hosts: str, hostfile: Path | None, ifname: str, net: str | None, engine_name: str, simulation: str,
    inject: str, ideal: str,
    format_name: str, json_file: str, force: bool, dry_run: bool, launch_limit: float, limit: float,
    timing: str, precision: float | None, confidence: float, max_time: float, tail: bool, repeats: int, **fields: Any,
) -> int:  # fmt: skip
    """Measure COLLECTIVE (all_reduce, all-gather, AllToAll ...) over all local GPUs, or the given ranks or hosts.

    Under mpirun, srun or torchrun each process is a rank of the job that is already there.
    """
    step = take_step(fields, ranks, bool(hosts or hostfile))
    timed = fields["check"] == TIMED
    fields["check"] = 1 if timed else fields["check"]
    sampling = _sampling(timing, precision, confidence, max_time, tail, repeats)
    spec = SweepSpec(collective=collective(name).name, check_timed=timed, sampling=sampling, **fields)
    if parse_fault(inject) and sampling is None:
        raise UsageError(
            f"--inject {inject} with --timing classic: only precise timing starts operations by a clock", "leave out one of them"
        )
    if ideal:
        given(ideal)
    to_stdout = json_file == "-"
    _check_words(engine_name, simulation, launch_limit, format_name if to_stdout and _given("format_name") else "json")
    shown = view("json" if to_stdout else _csv_of(engine_name, format_name), width())
    options = Options(
        ranks=ranks, hosts=hosts, hostfile=hostfile, ifname=ifname, step=step, engine=engine_name, net=net or "", simulation=simulation,
        inject=inject, ideal=ideal, limit_s=limit, launch_limit_s=launch_limit, program="busbw run", argv=_argv(),
    )  # fmt: skip
    if dry_run:
        return print_command(command_line(spec, **options))
    record = Record(None if to_stdout or not json_file else Path(json_file), overwrite=force)
    return exit_code(run(spec, sink=SweepOutput(record, shown), **options))


def _check_words(engine_name: str, simulation: str, launch_limit: float, format_beside_json: str) -> None:
    """UsageError for options of this command that contradict each other, or have no meaning."""
    if simulation and engine_name != "sim":
        raise UsageError(
            f"--sim {simulation}: --engine is {engine_name}, and only sim has parameters", "add --engine sim, or leave out --sim"
        )
    if engine_name == "sim":
        parse_parameters(simulation)
    if not 0 < launch_limit <= LONGEST_LAUNCH_S:
        raise UsageError(
            f"--launch-limit {launch_limit:g}: must be seconds above 0, at most {LONGEST_LAUNCH_S}", "give seconds, like --launch-limit 120"
        )
    if format_beside_json != "json":
        raise UsageError(
            f"--json - and --format {format_beside_json} both want stdout", "leave out one, or give --json a file, like --json result.json"
        )


def _given(parameter: str) -> bool:
    """Whether the command line has it, and not its default alone."""
    return click.get_current_context().get_parameter_source(parameter) is not ParameterSource.DEFAULT


def _csv_of(engine_name: str, format_name: str) -> str:
    """`csv` with the torch engine is the CSV of the PyTorch benchmark."""
    return "torch-csv" if engine_name == "torch" and format_name == "csv" else format_name


def _argv() -> list[str]:
    return [Path(sys.argv[0]).name, *sys.argv[1:]]
