"""What `busbw run` does with its options."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from busbw.cli.keep import finishing
from busbw.cli.min_busbw import Minimum
from busbw.cli.options.parameters import argv, is_given
from busbw.cli.options.sampling import take_sampling
from busbw.cli.options.shared import refuse_ran, result_file, take_where
from busbw.cli.options.sweep import SOAK_ROUNDS, SWEEP_OPTIONS, TIMED
from busbw.cli.output import BRIEF, SweepOutput, exit_code, print_command
from busbw.cli.run_page import keep_and_write_page, page_target
from busbw.cli.streams import print_err
from busbw.cli.terminal import width
from busbw.core.collectives import collective
from busbw.core.errors import UsageError, worst
from busbw.core.finding import Verdict
from busbw.core.sweep import OF_SIZES, SweepSpec
from busbw.engines.sim_parameters import parse_parameters
from busbw.measure.api import prepare, run
from busbw.measure.record import RunRecord
from busbw.model import bounds
from busbw.report.registry import view

if TYPE_CHECKING:
    from busbw.model.reference.curves import Reference

# Fewer than nccl-tests does by default are rarely meant, and -n is the ranks of mpirun.
USUAL_ITERATIONS = 20


def run_sweep(
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
    fail_on: Verdict,
    min_busbw: float | None,
    min_percent: float | None,
    share_of: str,
    reference_file: Path | None,
    **fields: Any,
) -> int:
    """Measure, print, and return the exit code; the arguments are the options of `busbw run`."""
    if env_format:
        from busbw.cli.print_env import print_env

        return print_env(fields["net"], fields["ifname"], env_format)
    if not name:
        raise UsageError("no collective is named", "busbw run all_reduce")
    minimum = Minimum(min_busbw, min_percent, share_of, reference_file)
    minimum.check()
    format_name = BRIEF if brief else format_name
    fields |= take_where(fields)
    sampling = take_sampling(fields)
    sweep = {row.field: fields.pop(row.field) for row in SWEEP_OPTIONS}
    if is_given("step_bytes") and not is_given("step_factor"):
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
    if to_stdout and is_given("format_name") and format_name != "json":
        raise UsageError(
            f"--json - and --format {format_name} both want stdout",
            "leave out one, or give --json a file, like --json result.json",
        )
    if ran:
        refuse_ran("json" if to_stdout else format_name)
    if fields["engine"] == "torch" and format_name == "csv":
        format_name = "torch-csv"  # the CSV of the PyTorch benchmark
    output_view = view("json" if to_stdout else format_name, width(), ran=ran)
    fields |= {
        "net": fields["net"] or "",
        "program": "busbw run",
        "argv": argv(),
        "full_rows": not is_given("min_bytes"),
        "unset": tuple(name for name in (*OF_SIZES, "max_time") if not is_given(name)),
    }
    if dry_run:
        return print_command(*prepare(spec, **fields))
    _note_iterations(spec)
    known = partial(_known_curves, reference_file)
    record = RunRecord(result_file(json_name), overwrite=force, known=known)
    page_file = page_target(html_name, overwrite=force)
    sink = SweepOutput(record, output_view, refuse=minimum.refuse)
    title = Path(json_name).name if record.file else "this run"
    is_kept = history and not fields["inject"]
    with finishing(record, lambda result: keep_and_write_page(result, is_kept, page_file, title)):
        result = run(spec, sink=sink, **fields)
    code, reason = minimum.judge(result)
    if reason:
        print_err(f"error: {reason}")
    return int(worst([exit_code(result, fail_on), code]))


def _known_curves(file: Path | None) -> "Reference":
    from busbw.cli.config.reference import known_or_published

    return known_or_published(file)


def _take_soak(fields: dict[str, Any], sweep: dict[str, Any]) -> float:
    """Remove --soak from `fields`, and return its seconds; sets the number of data checks that goes
    with it. UsageError if other options contradict it.
    """
    soak_s = fields.pop("soak_s")
    if soak_s is None:
        return 0.0
    for name in filter(is_given, ("run_cycles", "repeats")):
        raise UsageError(
            f"--soak with --{name.replace('_', '-')}: both say how often to run the sweep",
            "leave out one of them",
        )
    if not sweep["check"]:
        raise UsageError("--soak with --check 0: nothing would be verified", "leave out --check")
    if not is_given("check"):
        sweep["check"] = SOAK_ROUNDS
    return float(soak_s)


def _note_iterations(spec: SweepSpec) -> None:
    """Tell who is used to mpirun what -n is."""
    ranks_known = any(map(is_given, ("ranks", "hosts", "hostfile")))
    if is_given("iters") and not ranks_known and spec.iters < USUAL_ITERATIONS:
        print_err(f"note: -n {spec.iters} is the number of iterations; that of ranks is -np")


def _refuse_contradictions(spec: SweepSpec, fields: dict[str, Any]) -> None:
    """UsageError for invalid values, and for options that contradict each other."""
    inject, engine, simulation = fields["inject"], fields["engine"], fields["simulation"]
    if inject:
        from busbw.measure import fault_injection

        fault_injection.parse(inject)
    if inject and spec.sampling is None:
        raise UsageError(
            f"--inject {inject} with --timing classic: only precise timing starts operations by a"
            " clock",
            "leave out one of them",
        )
    if fields["ideal"]:
        bounds.parse_ideal(fields["ideal"])
    if simulation and engine != "sim":
        raise UsageError(
            f"--sim {simulation}: --engine is {engine}, and only sim has parameters",
            "add --engine sim, or leave out --sim",
        )
    if engine == "sim":
        parse_parameters(simulation)
