"""`busbw moe`: what dispatch and combine of a mixture of experts reach."""

import os
import re
from typing import Any

import click

from busbw.cli.options import groups, shared
from busbw.cli.options.grouped import GroupedCommand
from busbw.cli.options.parameters import COUNT, Seconds, given_options, not_empty
from busbw.cli.run_job import take_run_options
from busbw.cli.streams import print_out
from busbw.cli.terminal import width
from busbw.core.backend_names import parse_names
from busbw.core.errors import Exit, UsageError
from busbw.core.sizes import parse_size
from busbw.launch import environment
from busbw.measure.target import LaunchTarget
from busbw.moe import text as moe_text
from busbw.moe.registry import BY_NAME
from busbw.moe.routing import (
    FILE,
    check_experts,
    check_shape,
    parse_routing,
    read_ids,
    tokens_of_file,
)
from busbw.moe.types import MoeJob, MoeSpec

TYPES = ("bfloat16", "half", "float")
MAX_TOKENS = 1 << 20
_TOKENS = re.compile(r"(\d+[KM]?)(?::(\d+[KM]?))?", re.ASCII | re.IGNORECASE)
# parameters of a run, which --system refuses
OF_RUNS = (
    *("hosts", "hostfile", "ifname", "slurm", "net", "dry_run", "limit_s", "launch_limit_s"),
    *("json_name", "force", "history", "max_time", "backends"),
)


class Tokens(click.ParamType[tuple[int, int]]):
    """`512`, or `128:4096`: the smallest and the largest number."""

    name = "tokens"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        words = _TOKENS.fullmatch(str(value))
        if words is not None:
            first, last = (
                parse_size(word, "--tokens") for word in (words[1], words[2] or words[1])
            )
            if 1 <= first <= last <= MAX_TOKENS:
                return first, last
        raise UsageError(
            f"--tokens {value}: not 1 to {MAX_TOKENS} tokens, the smaller number first",
            "write it like --tokens 512 or --tokens 128:4K",
        )


@click.command(
    "moe",
    cls=GroupedCommand,
    groups=groups.MOE,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--tokens",
    type=Tokens(),
    metavar="N[:N]",
    show_default="128:4096; on CPUs 128:512",
    help="tokens of each rank, from the first number to the second by a factor of 2",
)
@click.option("--hidden", type=COUNT, default=7168, show_default=True, help="elements of a token")
@click.option(
    "--top-k", type=COUNT, default=8, show_default=True, help="experts that each token chooses"
)
@click.option(
    "--experts",
    type=COUNT,
    default=64,
    show_default=True,
    help="experts of all ranks together, a multiple of the ranks",
)
@click.option(
    "--routing",
    default="uniform",
    show_default=True,
    callback=not_empty,
    metavar="ROUTING",
    help=(
        "how tokens choose experts: uniform; zipf:1.0, by a power law; hot:0.3, this share of the"
        " tokens chooses expert 0; file:NAME, ids from a file"
    ),
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**32),
    default=1,
    show_default=True,
    help="number that the choices are drawn from",
)
@click.option(
    "-d",
    "--datatype",
    type=click.Choice(TYPES),
    default=TYPES[0],
    show_default=True,
    help="element type",
)
@click.option(
    "--backends",
    default="",
    callback=lambda _ctx, _param, value: parse_names(BY_NAME, value),
    metavar="LIST",
    help=f"compare these: {', '.join(BY_NAME)}  [default: all that can run]",
)
@click.option(
    "--max-time",
    type=Seconds(),
    show_default="1; on CPUs all end after 30 s",
    help="target time per size and direction",
)
@shared.limit_option
@click.option(
    "--system",
    default="",
    callback=not_empty,
    help=(
        "measure nothing: compute the most that hosts with these GPUs allow, like h200x8 or"
        " p5.48xlarge, with -np ranks  [default: one host]"
    ),
)
@click.option(
    "--nics", default="", callback=not_empty, help="ports of a host and the rate of each: 8x400G"
)
@shared.run_options("text", "json")
def command(max_time: float | None, system: str, nics: str, **fields: Any) -> int:
    """Measure what dispatch and combine of a mixture of experts reach, with the time of each phase,
    and verify every element. Of several backends, it says which is the fastest.

    Dispatch sends each token once to every rank that has any of its experts; combine returns the
    weighted sum. Experts are divided evenly between ranks, in order. A file of ids has a line for
    each token, rank 0's first: 3,17,42 or [3, 17, 42].
    """
    options = take_run_options(fields)
    spec = MoeSpec(max_time_s=max_time, **fields)
    check_shape(parse_routing(spec.routing), spec.experts, spec.top_k)
    if system:
        return _estimate(spec, system, nics, options.where.ranks, options.format_name)
    if nics:
        raise UsageError(
            f"--nics {nics}: a run uses the NICs it finds", "add --system, like h200x8"
        )
    _check_ranks(spec, options.where)
    job = MoeJob(engine="torch", program="busbw moe", **options.job_fields, moe=spec)
    return options.print_at_end(job, moe_text.render_all, save_unasked=True)


def _check_ranks(spec: MoeSpec, where: LaunchTarget) -> None:
    """UsageError for what the ranks would refuse, as far as it is known before they start: a file
    of ids is read by rank 0, here if no other host is named.
    """
    if where.ranks:
        check_experts(spec.experts, where.ranks)
    routing = parse_routing(spec.routing)
    is_elsewhere = where.hosts or where.hostfile or where.step or environment.detect(os.environ)
    if routing.kind == FILE and not is_elsewhere:
        given = read_ids(routing.path, spec.experts, spec.top_k)
        if where.ranks:
            most = spec.tokens[1] if spec.tokens else None
            tokens_of_file(routing.path, len(given), where.ranks, most)


def _estimate(spec: MoeSpec, system: str, nics: str, ranks: int | None, format_name: str) -> int:
    """Print what the links of a system allow."""
    if options := given_options(OF_RUNS):
        hint = "leave it out" if len(options) == 1 else "leave them out"
        if options == ["--json"]:
            hint = "keep the estimate with --format json > FILE, which busbw show reads"
        raise UsageError(f"{', '.join(options)}: nothing is measured with --system", hint)
    from busbw.api.systems import LinkOptions, given_system
    from busbw.core import json_codec
    from busbw.model.clouds import instance
    from busbw.moe import estimate
    from busbw.reference.own_table import known_curves
    from busbw.reference.place import own_file

    described = given_system(system, "", LinkOptions(nics))
    assert described is not None
    known = known_curves(own_file(os.environ))
    found = estimate.estimate(spec, described[0], system, ranks, known)
    found.nics_assumed = bool(found.nics) and not nics and instance(system) is None
    print_out(
        json_codec.indented(found) if format_name == "json" else estimate.text(found, width())
    )
    return int(Exit.OK)
