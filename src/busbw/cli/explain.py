"""`busbw explain RESULT`: which algorithm a busbw fits, and the load of each link."""

from dataclasses import replace

import click

from busbw.api.systems import LinkOptions, parse_allowed
from busbw.cli.config.reference import known_curves
from busbw.cli.file_kinds import read_sweep, table_option
from busbw.cli.options.parameters import not_empty
from busbw.cli.options.result_system import system_of
from busbw.cli.options.shared import format_option
from busbw.cli.options.system import recorded_nodes_option, settings_options, system_options
from busbw.cli.stored_runs import TakesRuns
from busbw.cli.streams import print_out
from busbw.cli.terminal import width
from busbw.core import json_codec
from busbw.core.cells import headline, is_precise
from busbw.core.errors import Exit, NoMeasurement
from busbw.measure import alltoallv_traffic
from busbw.measure.formats.ideal_text import larger_text
from busbw.model import causes, explanation_text
from busbw.model.estimate import EstimateInputs
from busbw.model.explain import ExplainedFigure, explain
from busbw.model.nccl.choice import AllowedAlgorithms, allowed
from busbw.model.nccl.constants import of_number, release
from busbw.model.reference.compared import evidence
from busbw.ui.number_formats import busbw_text, no_headline

ASSUMED_MATRIX = (
    "the file does not say the bytes of each pair of ranks: those of nccl-tests' own matrix are"
    " assumed"
)
MEASURE = "measure one: busbw run all_reduce --json run.json"


@click.command("explain", cls=TakesRuns, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("file", metavar="RESULT")
@system_options("as recorded")
@recorded_nodes_option
@click.option(
    "--nccl", default="", callback=not_empty, help="release of NCCL, where the file does not say"
)
@settings_options
@click.option("--no-nvls", is_flag=True, help="NVLink SHARP was off: NCCL_NVLS_ENABLE=0")
@click.option(
    "--collective",
    default=None,
    callback=not_empty,
    help="the collective of a log that does not name it",
)
@table_option
@format_option
def command(
    file: str,
    system: str,
    topo: str,
    nics: str,
    fabric: str,
    cpu: str | None,
    nodes: int | None,
    nccl: str,
    algo: str,
    proto: str,
    no_nvls: bool,
    collective: str | None,
    table: int | None,
    format_name: str,
) -> int:
    """Explain the largest busbw in RESULT, any file that busbw show reads (- = stdin):
    exclude algorithms by their bounds, and compare it with what is expected of such a system.

    The links and NCCL's settings are those that the file recorded, or that the options describe.
    """
    result = read_sweep(file, collective, table)
    figure = headline(result)
    if figure is None:
        raise NoMeasurement(f"{file}: {no_headline(result)}", MEASURE)
    if figure.busbw <= 0:
        raise NoMeasurement(f"{file}: no busbw is in it", MEASURE)
    if not is_precise(result, figure):
        raise NoMeasurement(
            f"{file}: its largest busbw, {busbw_text(figure)}, is less precise than requested",
            "measure again with a longer --max-time",
        )
    described = system, topo, LinkOptions(nics, fabric, cpu)
    hardware, source, (hosts, per_host) = system_of(result, file, described, nodes)
    if hosts * per_host < 2:
        raise NoMeasurement(
            f"{file}: with one rank no data crosses a link, so there is nothing to explain",
            "measure two ranks or more",
        )
    row = result.spec.row
    environment = dict(result.environment)
    if no_nvls or result.nvls is False:
        environment["NCCL_NVLS_ENABLE"] = "0"
    if hosts > 1 and environment.get("NCCL_COLLNET_ENABLE", "").strip() == "1":
        hardware = replace(hardware, collnet=True)
    setting = EstimateInputs(
        hardware,
        release(nccl) if nccl else of_number(result.library.nccl),
        _allowed(environment, algo, proto, row.name),
        traffic=alltoallv_traffic.of_result(result, per_host),
        dtype=figure.row.dtype or "float",
        op=figure.row.op or "sum",
    )
    slowing = causes.stated(result, hardware.nics if hosts > 1 else 0)
    measured = ExplainedFigure(row, hosts, per_host, figure, file, slowing)
    explanation = explain(measured, setting, source, evidence(setting, known_curves()))
    if larger := larger_text(result).removeprefix("; "):
        explanation.notes.append(larger)
    if row.uneven and result.traffic is None:
        explanation.notes.append(ASSUMED_MATRIX)
    if format_name == "json":
        print_out(json_codec.indented(explanation))
    else:
        print_out(explanation_text.text(explanation, width()))
    bad = not explanation.fits or explanation.verdict == "slower"
    return int(Exit.BAD if bad else Exit.OK)


def _allowed(
    environment: dict[str, str], algo: str, proto: str, collective: str
) -> AllowedAlgorithms:
    """What the options allow NCCL, and where they are not given, what the file recorded."""
    parse_allowed(algo, proto, collective)
    given = {"NCCL_ALGO": algo, "NCCL_PROTO": proto}
    return allowed(environment | {name: text for name, text in given.items() if text}, collective)
