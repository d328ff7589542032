"""`busbw predict`: how long a collective, or a recorded application's communication, takes on a
system.
"""

import click

from busbw.api.prediction import (
    OVERSUBSCRIPTIONS,
    RANGES,
    CollectiveOptions,
    PatternOptions,
    SystemOptions,
    of_collective,
    of_pattern,
)
from busbw.cli.config.reference import reference_file
from busbw.cli.file_kinds import read_sweep
from busbw.cli.options import groups
from busbw.cli.options.grouped import GroupedCommand
from busbw.cli.options.parameters import is_given, not_empty
from busbw.cli.options.scaling import scale_option
from busbw.cli.options.shared import format_option
from busbw.cli.options.system import (
    HostCounts,
    Uplinks,
    nccl_option,
    settings_options,
    system_options,
)
from busbw.cli.streams import print_out
from busbw.cli.terminal import width
from busbw.core import json_codec
from busbw.core.errors import Exit, UsageError
from busbw.model import prediction_text
from busbw.model.patterns import SENT
from busbw.model.systems import MAX_HOSTS

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
@click.option("-b", "--minbytes", "smallest", default="1K", show_default=True, help="smallest size")
@click.option("-e", "--maxbytes", "largest", default="16G", show_default=True, help="largest size")
@click.option(
    "-f",
    "--stepfactor",
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
    type=click.IntRange(*RANGES["ctas"]),
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
    type=click.FloatRange(*OVERSUBSCRIPTIONS),
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
    --scale makes it one of other ranks.
    """
    calibration = [(file, read_sweep(file, None)) for file in results]
    of_system: SystemOptions = {
        "system": system,
        "topo": topo,
        "nics": nics,
        "fabric": fabric,
        "cpu": cpu,
        "gpus": gpus,
        "nccl": nccl,
        "algo": algo,
        "proto": proto,
        "sharp": sharp,
        "ctas": ctas,
        "oversubscription": oversubscription,
        "hosts_per_leaf": hosts_per_leaf,
        "ecmp": uplinks,
        "rails_lost": rails_lost,
        "reference": reference_file(),
    }
    if pattern_file:
        _refuse_of_collective(pattern_file)
        of_job = PatternOptions(
            **of_system, nodes=_hosts_of_job(nodes), together=together, scale=scale
        )
        expected = of_pattern(pattern_file, of_job, calibration)
        if format_name == "json":
            print_out(json_codec.indented(expected))
        else:
            print_out(prediction_text.pattern_text(expected, width()))
        unknown = any(row.reason != SENT for row in expected.without)
        return int(Exit.BAD if unknown else Exit.OK)
    for option in ("scale", "together"):
        if is_given(option):
            raise UsageError(
                f"--{option}: it is of a pattern", f"add --pattern FILE, or leave out --{option}"
            )
    options = CollectiveOptions(
        **of_system,
        nodes=nodes,
        min_bytes=smallest,
        max_bytes=largest,
        step_factor=factor,
        datatype=datatype,
        counts=counts,
    )
    prediction = of_collective(collective, options, calibration)
    if format_name == "json":
        print_out(json_codec.indented(prediction))
    else:
        print_out(prediction_text.text(prediction, width()))
    return int(Exit.OK)


def _refuse_of_collective(file: str) -> None:
    """UsageError for options of one collective: a pattern states its own collectives and sizes."""
    for parameter, name in _OF_COLLECTIVE.items():
        if is_given(parameter):
            raise UsageError(
                f"{name}: collectives and sizes are those of {file}",
                f"leave out {name}, or --pattern",
            )


def _hosts_of_job(nodes: tuple[int, ...]) -> int:
    """The number of hosts that a pattern is predicted for; 0 if it is not given."""
    if len(nodes) > 1:
        raise UsageError(
            f"--nodes {','.join(map(str, nodes))}: a pattern is predicted for one number of hosts",
            f"--nodes {nodes[-1]}",
        )
    return nodes[0] if is_given("nodes") else 0
