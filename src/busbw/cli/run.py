"""`busbw run`: the modern face of a measurement."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from busbw.cli.output import Output
from busbw.cli.session import Where, run_job
from busbw.core.collectives import collective
from busbw.core.errors import UsageError
from busbw.core.options import OPTIONS, Option
from busbw.core.sizes import parse_size, short_size
from busbw.core.sweep import SweepSpec, check_spec, dtypes, redops
from busbw.engines.registry import ENGINES
from busbw.engines.sim_parameters import parse_parameters
from busbw.measure.job import Job
from busbw.measure.record import Record
from busbw.model.bounds import given
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
_TYPES: dict[str, Any] = {"check": Rounds(), "int": int, "size": Size(), "word": str}


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


def _sweep_options(function: Any) -> Any:
    for row in reversed([row for row in OPTIONS if not row.compat_only]):
        function = _option(row)(function)
    return function


@click.command("run", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("name", metavar="COLLECTIVE")
@click.option("-n", "--ranks", type=click.IntRange(1), help="local ranks to start  [default: all GPUs, or 2 on CPUs]")
@click.option("--hosts", default="", help="hosts and ranks on each: h1:8,h2:8")
@click.option("--hostfile", type=click.Path(path_type=Path), help="file of hosts: `h1 slots=8` a line")
@click.option("--ifname", default="", help="network interface for MPI, PMIx and NCCL together")
@click.option("--engine", "engine_name", default="auto", show_default=True, help=f"auto, {', '.join(row.name for row in ENGINES)}")
@click.option("--sim", "simulation", default="", help="parameters of the sim engine: alpha_us=5,gbps=370,noise=0.01")
@click.option("--ideal", default="", help="ideal busbw in GB/s, instead of the one from the topology")
@click.option("--format", "format_name", default="table", show_default=True, help=", ".join(FORMATS))
@click.option("--json", "json_file", default="", help="keep the result in this file, updated after every size; - = stdout at the end")
@click.option("--dry-run", is_flag=True, help="print the launcher's command line and stop")
@click.option("--launch-limit", type=float, default=120.0, show_default=True, help="seconds until all ranks must have joined")
@_sweep_options
def command(
    name: str, ranks: int | None, hosts: str, hostfile: Path | None, ifname: str, engine_name: str, simulation: str, ideal: str,
    format_name: str, json_file: str, dry_run: bool, launch_limit: float, **fields: Any,
) -> int:  # fmt: skip
    """Measure COLLECTIVE (all_reduce, all-gather, AllToAll ...) over all local GPUs, or the given ranks or hosts.

    Under mpirun, srun or torchrun each process is a rank of the job that is already there.
    """
    timed = fields["check"] == TIMED
    fields["check"] = 1 if timed else fields["check"]
    spec = SweepSpec(collective=collective(name).name, check_timed=timed, **fields)
    check_spec(spec, strict=True)
    dtypes(spec)
    redops(spec)
    if ideal:
        given(ideal)
    to_stdout = json_file == "-"
    _check_words(engine_name, simulation, launch_limit, format_name if to_stdout and _given("format_name") else "json")
    shown = view("json" if to_stdout else _csv_of(engine_name, format_name))
    where = Where(ranks, hosts, hostfile, ifname, engine_name, simulation, dry_run, launch_limit)
    job = Job(sweep=spec, engine="", program="busbw run", argv=_argv(), ideal=ideal)
    output = Output(Record(spec, None if to_stdout or not json_file else Path(json_file)), shown)
    return run_job(job, where, output)


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
