"""`busbw tune`: which algorithm, protocol and number of channels NCCL should use, found on the
user's own ranks.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from busbw.cli.compare import FORMATS
from busbw.cli.options import groups
from busbw.cli.options.grouped import GroupedCommand
from busbw.cli.options.parameters import File, Seconds, argv, given_options, is_given, not_empty
from busbw.cli.options.shared import net_option, options, start_options, take_where
from busbw.cli.options.sweep import sweep_option
from busbw.cli.output import RunOutput
from busbw.cli.streams import print_err, print_out
from busbw.cli.terminal import width
from busbw.core.collectives import collective
from busbw.core.env import TUNER
from busbw.core.errors import BusbwError, Exit, NoMeasurement, UsageError
from busbw.core.finding import Verdict, exit_of
from busbw.core.networks import CHANNEL_VARIABLES, THREADS_VARIABLE
from busbw.core.options import BY_FIELD, Option
from busbw.core.sizes import counted
from busbw.core.sweep import Sampling, SweepSpec
from busbw.core.tuner_table import TunerTable
from busbw.core.tuning import TUNED
from busbw.engines.sim_parameters import parse_parameters
from busbw.host import net_plugin
from busbw.measure.record import RunRecord, check_writable
from busbw.measure.target import LaunchTarget
from busbw.stats.judging import Limits
from busbw.tune import table_file
from busbw.tune import text as tune_text
from busbw.tune.env_tuner import VariablesTuner
from busbw.tune.job import CHANNELS, SEARCHED_PAIRS
from busbw.tune.jobs import Jobs
from busbw.tune.table_file import check_file, refuse_other
from busbw.tune.tuning import TableTuner
from busbw.tune.types import TuneJob, Tuning, pairs
from busbw.tune.validate import count_sizes

DEFAULTS = {
    "min_bytes": 1 << 10,
    "max_bytes": 64 << 20,
    "step_bytes": None,
    "step_factor": 4,
    "datatype": None,
    "op": None,
}

OF_SEARCH = ("file", "force", "seconds", "settings")  # parameters of the search
# With 0, NCCL chooses in a thread of its own, perhaps when the next candidate is set already.
NOT_BLOCKING = "NCCL_COMM_BLOCKING"


def _row(field: str, default: int | None) -> Option:
    """A row of the table of options, with the default of a tuning."""
    return replace(BY_FIELD[field], run_default=default) if default else BY_FIELD[field]


@click.command(
    "tune",
    cls=GroupedCommand,
    groups=groups.TUNE,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("name", metavar="[COLLECTIVE]", default="")
@start_options
@net_option
@click.option(
    "--engine",
    default="auto",
    callback=not_empty,
    show_default=True,
    help="who moves the data: auto, nccl, torch or sim",
)
@click.option(
    "--sim", "simulation", default="", help="parameters of the sim engine: ll=1.5,channel_us=0.3"
)
@click.option(
    "--output",
    "file",
    type=File(written=True),
    default=Path("busbw-tuner.table"),
    show_default=True,
    help="write the table to this file; rules of other collectives in it stay",
)
@click.option("--force", is_flag=True, help="replace a table of another system")
@click.option(
    "--max-time",
    "seconds",
    type=Seconds(),
    default=6.0,
    show_default=True,
    help="target time per size of the search",
)
@click.option(
    "--rounds",
    type=click.IntRange(4, 100),
    default=4,
    show_default=True,
    help="times to run each side in turn, in the check with new ranks",
)
@click.option(
    "--settings/--no-settings",
    default=True,
    show_default=True,
    help="also search with more channels, and more socket threads",
)
@click.option(
    "--variables",
    is_flag=True,
    help=(
        "without the plugin: find values for NCCL_ALGO, NCCL_PROTO and channels, for all sizes"
        " alike"
    ),
)
@click.option(
    "--recheck",
    "checked",
    type=File(),
    help="measure this table against NCCL's choice again, instead of tuning",
)
@click.option(
    "--format",
    "format_name",
    type=click.Choice(("text", "json")),
    default="text",
    show_default=True,
    help="output on stdout",
)
@click.option(
    "--limit",
    "limit_s",
    type=Seconds(zero=True),
    default=30.0,
    show_default=True,
    help="give up after this time without a completed operation, on a candidate; 0 = no limit",
)
@options(*(sweep_option(_row(field, default)) for field, default in DEFAULTS.items()))
def command(
    name: str,
    file: Path,
    force: bool,
    seconds: float,
    rounds: int,
    settings: bool,
    variables: bool,
    checked: Path | None,
    format_name: str,
    **fields: Any,
) -> int:
    """Find what NCCL should run COLLECTIVE with at each size: algorithm, protocol and channels.

    Every candidate is measured in turn with NCCL's choice. What is faster goes into a table for the
    tuner plugin of busbw-native, after a check with new ranks.
    """
    if variables:
        _refuse_set(("NCCL_ALGO", "NCCL_PROTO", *CHANNEL_VARIABLES))
    else:
        _refuse_set((TUNER.plugin, TUNER.table, NOT_BLOCKING))
    where = LaunchTarget(**take_where(fields))
    _refuse_ignored(checked, variables)
    sweep = {field: fields.pop(field) for field in DEFAULTS}
    if is_given("step_bytes") and not is_given("step_factor"):
        sweep["step_factor"] = 1
    job = _job(_spec(name, checked, sweep), seconds, fields)
    jobs = Jobs(job, where, RunOutput(RunRecord(), save_unasked=False))
    if checked:
        return _check(checked, jobs, rounds, format_name)
    if variables:
        tuning = VariablesTuner(jobs, rounds, print_err).tune()
        return _print(tuning, tuning.variables, format_name)
    check_writable(file, what=f"--output {file}")
    before = table_file.read(file) if file.exists() and not force else None
    tuning = _tune_table(jobs, file, before, rounds, try_settings=settings)
    return _print(tuning, _exports(tuning, jobs), format_name)


def _tune_table(
    jobs: Jobs, file: Path, before: TunerTable | None, rounds: int, *, try_settings: bool
) -> Tuning:
    """Search, and write the table; rules for other collectives in the table `before` stay."""
    if before:
        tuned_system = table_file.system_of_table(before, str(file))
        jobs.judge = lambda system: refuse_other(file, tuned_system, system, print_err)
    spec = jobs.job.sweep
    count = count_sizes(spec)
    candidates = len(pairs(spec.collective)) + SEARCHED_PAIRS * len(CHANNELS)
    for_each = " for each setting" if try_settings else ""
    print_err(
        f"{counted(count, 'size')}, up to {candidates} candidates each: about"
        f" {count * jobs.job.seconds:.0f} s{for_each}, then {2 * rounds} runs"
    )
    tuner = TableTuner(
        jobs,
        file,
        before,
        count,
        rounds,
        Limits(),
        try_settings,
        print_err,
        lambda size: print_err(tune_text.size_line(size)),
    )
    try:
        return tuner.tune()
    except (KeyboardInterrupt, BusbwError):
        if tuner.written:
            print_err(f"{file} has what was found so far; it was not checked with new ranks")
        raise


def _refuse_set(names: Sequence[str]) -> None:
    """UsageError for variables that would change what NCCL chooses itself."""
    variables = [name for name in names if os.environ.get(name)]
    if variables:
        settings = " ".join(f"{name}={os.environ[name]}" for name in variables)
        raise UsageError(
            f"{settings} is set, so NCCL's own choice could not be measured",
            f"unset {' '.join(variables)}",
        )


def _refuse_ignored(checked: Path | None, variables: bool) -> None:
    """UsageError for a given option that would be ignored."""
    ignored: tuple[str, ...] = ()
    why = ""
    if checked:
        ignored = (*OF_SEARCH, *DEFAULTS, "variables")
        why = "--recheck measures what the table was made from"
    elif variables:
        ignored, why = OF_SEARCH, "--variables writes no table"
    if options := given_options(ignored):
        raise UsageError(f"{', '.join(options)}: {why}", "leave it out")


def _spec(name: str, checked: Path | None, sweep: dict[str, Any]) -> SweepSpec:
    if bool(name) == bool(checked):
        raise UsageError(
            "a collective or --recheck FILE is needed, and not both", "busbw tune all_reduce"
        )
    spec = SweepSpec(
        collective=collective(name or TUNED[-1]).name, sampling=Sampling(precision=0.0), **sweep
    )
    count_sizes(spec)
    return spec


def _job(spec: SweepSpec, seconds: float, fields: dict[str, Any]) -> TuneJob:
    simulation = fields["simulation"]
    if simulation and fields["engine"] != "sim":
        raise UsageError(
            f"--sim {simulation}: --engine is {fields['engine']}, and only sim has parameters",
            "add --engine sim",
        )
    if fields["engine"] == "mpi":
        raise UsageError(
            "--engine mpi has no algorithms to choose from",
            "use --engine nccl, torch on GPUs, or sim",
        )
    fields |= {"net": fields["net"] or "", "simulation": parse_parameters(simulation)}
    return TuneJob(sweep=spec, seconds=seconds, program="busbw tune", argv=argv(), **fields)


def _exports(tuning: Tuning, jobs: Jobs) -> dict[str, str]:
    """The variables for any program, with those that --net set; none if NCCL's choice is best."""
    if not tuning.kept() and not tuning.variables:
        return {}
    net = jobs.job.net
    of_net = {}
    if net:
        names = (CHANNEL_VARIABLES[0], THREADS_VARIABLE)
        of_net = {name: jobs.environment[name] for name in names if name in jobs.environment}
    try:
        plugin = {**net_plugin.variables(net), TUNER.plugin: str(net_plugin.find())}
    except NoMeasurement as error:
        print_err(f"note: {error.message}: put its path below")
        plugin = {TUNER.plugin: "/path/to/busbw_native/plugin/libplugin.so"}
    return {**plugin, TUNER.table: str(Path(tuning.file).absolute()), **of_net, **tuning.variables}


def _print(tuning: Tuning, exports: dict[str, str], format_name: str) -> int:
    if format_name == "json":
        print_out(tune_text.json(tuning))
    else:
        print_out(tune_text.text(tuning, exports, width()))
    return int(Exit.OK)


def _check(file: Path, jobs: Jobs, rounds: int, format_name: str) -> int:
    verdicts = []
    for outcome in check_file(file, jobs, rounds, print_err):
        print_out(FORMATS[format_name](outcome.comparison))
        verdicts += outcome.comparison.verdicts() + [Verdict.FAIL] * bool(outcome.wrong)
    return int(exit_of(verdicts))
