"""`busbw explain RESULT`: which algorithm a busbw fits, and the load of each link."""

from dataclasses import replace

import click

from busbw.cli.file_kinds import read_sweep, table_option
from busbw.cli.options.parameters import not_empty
from busbw.cli.options.shared import format_option
from busbw.cli.options.system import Links, given_system, system_options, with_links
from busbw.cli.stored_runs import TakesRuns
from busbw.cli.streams import answer
from busbw.cli.terminal import width
from busbw.core.cells import headline
from busbw.core.errors import Exit, NoMeasurement, UsageError
from busbw.core.result import Result
from busbw.core.sizes import counted
from busbw.model import explanation_text
from busbw.model.estimate import Setting
from busbw.model.explain import Measured, explain
from busbw.model.measured_system import DESCRIBE, of_result, on_hosts, shape
from busbw.model.nccl.choice import allowed
from busbw.model.nccl.constants import of_number, release
from busbw.model.systems import MAX_HOSTS, System
from busbw.ui.number_formats import no_headline

MEASURE = "measure one: busbw run all_reduce --json run.json"


@click.command("explain", cls=TakesRuns, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("file", metavar="RESULT")
@system_options("as recorded")
@click.option(
    "--nodes",
    type=click.IntRange(1, MAX_HOSTS),
    help="number of hosts, where the file does not say",
)
@click.option(
    "--nccl", default="", callback=not_empty, help="NCCL's version, where the file does not say"
)
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
    collective: str | None,
    table: int | None,
    format_name: str,
) -> int:
    """Explain the largest precise busbw in RESULT, any file that busbw show reads (- = stdin):
    exclude algorithms by their bounds, and compare it with what is expected of such a system.

    The links are those that the file recorded, or that the options describe. Exit code 1 when the
    busbw is below the expected range, or above the bounds of all algorithms.
    """
    result = read_sweep(file, collective, table)
    figure = headline(result)
    if figure is None:
        raise NoMeasurement(f"{file}: {no_headline(result)}", MEASURE)
    if figure.busbw <= 0:
        raise NoMeasurement(f"{file}: no busbw is in it", MEASURE)
    links = Links(nics, fabric, cpu)
    described = given_system(system, topo, links)
    hosts, per_host = _shape(result, described[0] if described else None, nodes)
    if hosts * per_host < 2:
        raise NoMeasurement(
            f"{file}: with one rank no data crosses a link, so there is nothing to explain",
            "measure two ranks or more",
        )
    hardware, source = described or (_recorded_system(result, file, links), file)
    hardware = replace(hardware, gpus=max(hardware.gpus, per_host))
    if hosts > 1 and not hardware.nics:
        raise UsageError(
            f"{file}: the NICs of its {hosts} hosts are unknown", "give them, like --nics 8x400G"
        )
    row = result.spec.row
    setting = Setting(
        hardware,
        release(nccl) if nccl else of_number(result.library.nccl),
        allowed(result.environment, row.name),
        dtype=figure.row.dtype or "float",
        op=figure.row.op or "sum",
    )
    explanation = explain(Measured(row, hosts, per_host, figure, file), setting, source)
    if format_name == "json":
        answer(explanation_text.json(explanation))
    else:
        answer(explanation_text.text(explanation, width()))
    bad = not explanation.fits or explanation.verdict == "slower"
    return int(Exit.BAD if bad else Exit.OK)


def _shape(result: Result, system: System | None, nodes: int | None) -> tuple[int, int]:
    """The number of NVLink domains and of ranks on each: what the file says, or all GPUs of a
    described system. Described hosts are not joined to racks.
    """
    if not result.world.devices and nodes is not None:
        if system is None:
            raise UsageError("the file names no ranks", DESCRIBE)
        return nodes, system.gpus
    placed = shape(result)
    if system is not None and placed[1] > system.gpus:
        placed = on_hosts(result)
    if nodes is not None and nodes != placed[0]:
        raise UsageError(
            f"--nodes {nodes}: the file names {counted(placed[0], 'host')}",
            f"--nodes {placed[0]}, or leave it out",
        )
    return placed


def _recorded_system(result: Result, file: str, links: Links) -> System:
    """The system that the file recorded, changed by the options."""
    system = of_result(result)
    if isinstance(system, str):  # why there is none
        raise UsageError(f"{file}: {system}", DESCRIBE)
    return with_links(system, links)
