"""`busbw predict`: how long a collective, or a recorded application's communication, takes on a
system.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import click

from busbw.cli.config.reference import known_curves
from busbw.cli.options import groups
from busbw.cli.options.grouped import GroupedCommand
from busbw.cli.options.parameters import is_given, not_empty
from busbw.cli.options.scaling import scale_option
from busbw.cli.options.shared import format_option
from busbw.cli.options.system import (
    AUTO,
    HostCounts,
    LinkOptions,
    Uplinks,
    given_system,
    nccl_option,
    parse_allowed,
    settings_options,
    sizes,
    system_options,
    this_system,
)
from busbw.cli.streams import print_out
from busbw.cli.terminal import width
from busbw.core.alltoallv import Traffic
from busbw.core.collectives import collective as collective_row
from busbw.core.dtypes import dtype as dtype_row
from busbw.core.errors import BusbwError, Exit, UsageError
from busbw.core.pattern import Pattern
from busbw.measure import alltoallv_traffic
from busbw.model import explanation_text, prediction_text
from busbw.model.buckets import Bucket
from busbw.model.estimate import EstimateInputs
from busbw.model.forecast import MeasuredCurves
from busbw.model.measured_system import of_result, shape
from busbw.model.nccl.constants import release
from busbw.model.overlap import parse_ratios
from busbw.model.patterns import SENT, PatternJob, predict_pattern
from busbw.model.predict import predict, without_rails
from busbw.model.reference.compared import evidence as of_own
from busbw.model.reference.curves import ReferenceCurve
from busbw.model.reference.results import curve_of
from busbw.model.spine import Spine, derived_uplinks
from busbw.model.systems import MAX_HOSTS, System
from busbw.model.training_step import RecordedTraining

_OF_COLLECTIVE = {
    "collective": "COLLECTIVE",
    "smallest": "-b",
    "largest": "-e",
    "factor": "-f",
    "datatype": "-d",
    "counts": "--counts",
}


@click.command(
    "predict",
    cls=GroupedCommand,
    groups=groups.PREDICT,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("collective", default="all_reduce")
@system_options("this host")
@click.option(
    "--nodes",
    type=HostCounts(),
    default="1",
    help="numbers of hosts: 1,2,128  [default: 1; as many as a pattern fills]",
)
@click.option("--gpus", type=click.IntRange(1), help="GPUs used on each host  [default: all]")
@click.option("-b", "smallest", default="1K", show_default=True, help="smallest size")
@click.option("-e", "largest", default="16G", show_default=True, help="largest size")
@click.option(
    "-f",
    "factor",
    type=click.IntRange(2),
    default=16,
    show_default=True,
    help="factor between sizes",
)
@click.option(
    "-d",
    "--datatype",
    default="float",
    show_default=True,
    help="element type: NVLS does not reduce int8, uint8 and fp8",
)
@nccl_option
@settings_options
@click.option(
    "--sharp",
    is_flag=True,
    help="the network's switches reduce, as with NCCL_COLLNET_ENABLE=1 and its plugin",
)
@click.option(
    "--ctas",
    type=click.IntRange(1, 64),
    help="most channels of NCCL, as NCCL_MAX_CTAS  [default: all]",
)
@click.option(
    "--counts",
    default="",
    callback=not_empty,
    help="alltoallv: bytes of each pair of ranks, as in busbw run",
)
@click.option(
    "--calibrate",
    "results",
    multiple=True,
    help="result of such a system, to correct the model by; may be repeated",
)
@click.option(
    "--oversubscription",
    type=click.FloatRange(1, 64),
    default=1.0,
    show_default=True,
    help="of the network between hosts",
)
@click.option(
    "--hosts-per-leaf",
    type=click.IntRange(1, MAX_HOSTS),
    help="hosts whose rails share leaf switches: their traffic with each other does not cross the"
    " spine  [default: all crosses]",
)
@click.option(
    "--ecmp",
    "uplinks",
    type=Uplinks(),
    help="flows are hashed to so many uplinks of a leaf switch, or auto; needs --hosts-per-leaf",
)
@click.option(
    "--rails-lost",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="NICs of each host that are out of use",
)
@click.option(
    "--pattern",
    "pattern_file",
    default="",
    callback=not_empty,
    help="predict an application instead: a capture, or any file that `busbw show` reads as one",
)
@click.option(
    "--together",
    "together",
    multiple=True,
    help="measured slow-down of two functions of a pattern that run together, each on its"
    " communicator: all_reduce+all_gather=1.4, from 1 for none to 2 for one after the other; may be"
    " repeated",
)
@scale_option
@format_option
def command(
    collective: str,
    system: str,
    topo: str,
    nics: str,
    fabric: str,
    cpu: str | None,
    nodes: tuple[int, ...],
    gpus: int | None,
    smallest: str,
    largest: str,
    factor: int,
    datatype: str,
    nccl: str,
    algo: str,
    proto: str,
    sharp: bool,
    ctas: int | None,
    counts: str,
    results: tuple[str, ...],
    oversubscription: float,
    hosts_per_leaf: int | None,
    uplinks: int | None,
    rails_lost: int,
    pattern_file: str,
    together: tuple[str, ...],
    scale: str,
    format_name: str,
) -> int:
    """Predict time and busbw of COLLECTIVE by size and number of hosts, with how far they may be
    off, and print the most that each algorithm could reach.

    The bounds are over the links, over what they carry of data, and by NCCL's cost model. The
    system is this host, or what --system or --topo describe. --calibrate reads any file that
    busbw show reads. A pattern has its own collectives and sizes; its ranks fill the hosts, and
    --scale makes it one of other ranks. Exit code 1 when rows of a pattern have no time, except
    receives, which take that of their sends.
    """
    row = collective_row(collective)
    links = LinkOptions(nics, fabric, cpu)
    hardware, source = given_system(system, topo, links) or this_system(links)
    hardware = replace(hardware, collnet=sharp)
    setting = EstimateInputs(
        hardware,
        release(nccl),
        parse_allowed(algo, proto, row.name),
        _spine(oversubscription, hosts_per_leaf, uplinks),
        dtype=dtype_row(datatype).name,
        ctas=ctas or 0,
    )
    evidence = calibrate(results, hardware) if results else of_own(setting, known_curves())
    if pattern_file:
        _refuse_of_collective(pattern_file, algo, proto)
        job, ratios = _job(nodes, gpus, scale), parse_ratios(together)
        setting = replace(setting, system=without_rails(hardware, rails_lost))
        from busbw.pattern.registry import load  # it imports the readers of all patterns

        pattern = load([pattern_file])
        training = _training(pattern, pattern_file)
        expected = predict_pattern(
            pattern, setting, pattern_file, source, evidence, job, ratios, training
        )
        if format_name == "json":
            print_out(explanation_text.json(expected))
        else:
            print_out(prediction_text.pattern_text(expected, width()))
        unknown = any(row.reason != SENT for row in expected.without)
        return int(Exit.BAD if unknown else Exit.OK)
    for option in ("scale", "together"):
        if is_given(option):
            raise UsageError(
                f"--{option}: it is of a pattern", f"add --pattern FILE, or leave out --{option}"
            )
    per_host, bytes_of = gpus or hardware.gpus, sizes(smallest, largest, factor)
    if counts:
        moved = alltoallv_traffic.of_counts(row.name, counts, per_host)
        bytes_of = _sizes_with_traffic(bytes_of, counts, lambda size: moved(max(nodes), size))
        setting = replace(setting, traffic=moved)
    elif row.uneven:
        setting = replace(setting, traffic=alltoallv_traffic.of_nccl_tests(per_host))
    prediction = predict(setting, row, nodes, per_host, bytes_of, source, evidence, rails_lost)
    if format_name == "json":
        print_out(explanation_text.json(prediction))
    else:
        print_out(prediction_text.text(prediction, width()))
    return int(Exit.OK)


def _training(pattern: Pattern, source: str) -> RecordedTraining | None:
    """The step of a pattern that is a DistributedDataParallel training's; None if it is not, or if
    the record does not tell what a step takes and waits.
    """
    from busbw.pattern.training.finder import recorded_step  # only patterns need it

    try:
        step = recorded_step(pattern, source)
    except BusbwError:
        return None
    if step.step_s is None or step.waited_s is None:
        return None
    buckets = [Bucket(bucket.nbytes, bucket.ready_s) for bucket in step.buckets]
    dtypes = [bucket.dtype for bucket in step.buckets]
    return RecordedTraining(step.ranks, buckets, dtypes, step.step_s, step.waited_s)


def _spine(oversubscription: float, hosts_per_leaf: int | None, uplinks: int | None) -> Spine:
    """The network above the leaf switches; UsageError for uplinks of a leaf of unknown size."""
    if uplinks is None:
        return Spine(oversubscription, hosts_per_leaf or 0)
    if not hosts_per_leaf:
        raise UsageError(
            f"--ecmp {uplinks or AUTO}: how many hosts share a leaf switch is unknown",
            "add --hosts-per-leaf, like --hosts-per-leaf 32",
        )
    derived = derived_uplinks(hosts_per_leaf, oversubscription)
    return Spine(oversubscription, hosts_per_leaf, uplinks or derived)


def _sizes_with_traffic(
    sizes_bytes: Sequence[int], counts: str, traffic_of: Callable[[int], Traffic | None]
) -> list[int]:
    """The sizes of which a byte crosses a link; UsageError if there is none."""
    moving = [size for size in sizes_bytes if traffic_of(size) is not None]
    if not moving:
        raise UsageError(
            f"--counts {counts}: no byte of {sizes_bytes[-1]} crosses a link",
            "give a larger -e, or other counts",
        )
    return moving


def calibrate(files: tuple[str, ...], system: System) -> MeasuredCurves:
    """The curves in force and those of all results. The results' systems are what they recorded,
    with the NICs of `system` if they recorded none.
    """
    curves = [curve for file in files if (curve := _curve(file, system)) is not None]
    if files and not curves:
        raise UsageError(
            f"--calibrate {files[0]}: no size in it has a time", f"busbw show {files[0]}"
        )
    return MeasuredCurves(known_curves(), tuple(curves))


def _curve(file: str, system: System) -> ReferenceCurve | None:
    from busbw.cli.file_kinds import read_sweep  # it imports the readers of all files

    result = read_sweep(file, None)
    recorded = of_result(result)
    if isinstance(recorded, str):  # why there is none
        recorded = system
    if shape(result)[0] > 1 and not recorded.nics:
        recorded = replace(recorded, nics=system.nics, nic=system.nic, network=system.network)
        if not recorded.nics:
            raise UsageError(
                f"--calibrate {file}: the NICs of its hosts are unknown",
                "give them, like --nics 8x400G",
            )
    return curve_of(result, recorded, shape(result), "calibration", file)


def _refuse_of_collective(file: str, algo: str, proto: str) -> None:
    """UsageError for options of one collective: a pattern states its own collectives and sizes."""
    for parameter, name in _OF_COLLECTIVE.items():
        if is_given(parameter):
            raise UsageError(
                f"{name}: collectives and sizes are those of {file}",
                f"leave out {name}, or --pattern",
            )
    for name, text in (("--algo", algo), ("--proto", proto)):
        if ":" in text:
            example = "Ring" if name == "--algo" else "Simple"
            raise UsageError(
                f"{name} {text}: it is of one collective, and a pattern has several",
                f"name them for all collectives, like {name} {example}",
            )


def _job(nodes: tuple[int, ...], gpus: int | None, scale: str) -> PatternJob:
    """The job to predict a pattern for."""
    if len(nodes) > 1:
        raise UsageError(
            f"--nodes {','.join(map(str, nodes))}: a pattern is predicted for one number of hosts",
            f"--nodes {nodes[-1]}",
        )
    return PatternJob(nodes[0] if is_given("nodes") else 0, gpus or 0, scale)
