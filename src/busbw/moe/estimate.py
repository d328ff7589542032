"""What dispatch and combine could reach at most on a system that is described: nothing is measured.

Combine moves the rows of dispatch the other way, and links carry as much in both directions: one
row stands for both.
"""

from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from busbw.core import json_codec
from busbw.core.dtypes import dtype
from busbw.core.errors import UsageError
from busbw.core.shown import Shown
from busbw.core.sizes import counted
from busbw.model.systems import System
from busbw.moe.bound import bound, relayed_bound
from busbw.moe.types import MoeSpec
from busbw.moe.volumes import DISPATCH, host_rows, volumes
from busbw.ui.columns import Column, aligned, wrapped
from busbw.ui.number_formats import bandwidth_text, micro_text, text_or_unknown

if TYPE_CHECKING:
    from busbw.moe.draws import Array

DEFINITIONS = (
    "least: us, the bytes of the busiest rank or host over what its links carry",
    "wire: GB/s that leave a rank for other ranks; the rank with the most counts",
    "recv: GB/s of rows that a rank receives (combine: returns), its own included",
    "sel: GB/s of tokens x top-k rows, as if each choice got a row of its own",
    "imb: imbalance, the received rows of the rank with the most over the mean",
)
OF_LATENCY = "least+lat: us, least plus the {} us that busbw predict gives for a 1 KiB alltoall"
OF_RELAYED = (
    "relayed: us, the same if a token crosses once to each host, and is passed on there over the"
    " links between GPUs, as DeepEP does",
    "hosts: GB/s of the rows that a rank then sends to hosts, its own included, in that time",
)


class EstimatedExchange(msgspec.Struct, kw_only=True):
    """One number of tokens of each rank. The bytes are those of a measured row."""

    tokens: int
    wire_bytes: int
    received_bytes: int
    selections_bytes: int
    imbalance: float
    bound_s: Annotated[
        float | None, Meta(description="the least time of the exchange; null with one rank")
    ] = None
    bound: Annotated[str, Meta(description="formula of the bound with its numbers")] = ""
    relayed_s: Annotated[
        float | None,
        Meta(
            description="the least time if a token crosses once to each host and is passed on"
            " there; null on one host"
        ),
    ] = None
    relayed: Annotated[str, Meta(description="formula of that with its numbers")] = ""
    hosts_bytes: Annotated[
        int,
        Meta(
            description="bytes of the rows that a rank then sends to hosts, its own included; 0 on"
            " one host"
        ),
    ] = 0


class MoeEstimate(
    Shown, msgspec.Struct, tag="busbw.moe-estimate/1", tag_field="schema", kw_only=True
):
    """The least time of dispatch and combine over the links of a system."""

    moe: MoeSpec
    system: str
    hosts: int
    ranks: int
    latency_s: Annotated[
        float | None,
        Meta(
            description="what `busbw predict` expects of a small alltoall of NCCL on these hosts;"
            " null with one rank"
        ),
    ] = None
    rows: list[EstimatedExchange] = []


def estimate(spec: MoeSpec, system: System, name: str, ranks: int | None) -> MoeEstimate:
    """The bounds with one rank on each GPU of the system; without `ranks`, of one host.

    UsageError if the ranks do not fill the hosts, or the NICs that join them are not known.
    """
    from busbw.moe.batch import GPU_TOKENS, batch  # with numpy

    count = ranks or system.gpus
    per_host = min(count, system.gpus)
    hosts = count // per_host
    if count % per_host:
        raise UsageError(
            f"-np {count}: {counted(hosts + 1, 'host')} of {per_host} GPUs would not be filled",
            f"give a multiple of {per_host}",
        )
    if hosts > 1 and not system.nics:
        raise UsageError(
            f"--system {name}: the NICs that join its hosts are not known",
            "name them, like --nics 8x400G",
        )
    fabric = system.fabric(hosts, per_host)
    host_of_rank = [str(rank // per_host) for rank in range(count)]
    row_bytes = spec.hidden * dtype(spec.datatype).itemsize
    ids, sizes = batch(spec, count, GPU_TOKENS)
    found = MoeEstimate(moe=spec, system=name, hosts=hosts, ranks=count)
    for size in sizes:
        moved = volumes(ids[:, :size], spec.experts, row_bytes)
        least = bound(moved.matrix(DISPATCH), host_of_rank, fabric)
        to_hosts = _bytes_to_hosts(ids[:, :size], spec.experts, row_bytes, per_host)
        relayed = None
        if hosts > 1:
            relayed = relayed_bound(moved.matrix(DISPATCH), to_hosts, per_host, fabric)
        row = EstimatedExchange(
            tokens=size,
            wire_bytes=moved.wire_bytes(DISPATCH),
            received_bytes=moved.received_bytes,
            selections_bytes=moved.selections_bytes,
            imbalance=moved.imbalance,
            bound_s=least.time_s if least else None,
            bound=least.text if least else "",
            relayed_s=relayed.time_s if relayed else None,
            relayed=relayed.text if relayed else "",
            hosts_bytes=max(map(sum, to_hosts)) if hosts > 1 else 0,
        )
        found.rows.append(row)
    return found


def _bytes_to_hosts(ids: "Array", experts: int, row_bytes: int, per_host: int) -> list[list[int]]:
    """From each rank to each host, if a token is sent once to a host."""
    return [[rows * row_bytes for rows in of_rank] for of_rank in host_rows(ids, experts, per_host)]


def text(found: MoeEstimate, width: int | None = None) -> str:
    """The estimate for people."""
    spec = found.moe
    head = (
        f"# {counted(spec.experts, 'expert')} on {counted(found.ranks, 'rank')} of"
        f" {counted(found.hosts, 'host')} {found.system}, top-{spec.top_k}, hidden {spec.hidden},"
        f" {spec.datatype}, routing {spec.routing}, seed {spec.seed}\n"
        "# the most that the links allow; nothing was measured\n"
    )
    least = [
        f"least time at {row.tokens} tokens: {row.bound or 'no byte leaves a rank'}"
        for row in found.rows[-1:]
    ]
    begin, lines = _COLUMNS[:3], [DEFINITIONS[0]]
    if found.latency_s is not None:
        begin = [*begin, _latency_column(found.latency_s)]
        lines.append(OF_LATENCY.format(micro_text(found.latency_s)))
    if found.hosts > 1:
        begin = [*begin, *_RELAYED]
        lines += OF_RELAYED
        least += [f"relayed at {row.tokens} tokens: {row.relayed}" for row in found.rows[-1:]]
    columns = [*begin, *_COLUMNS[3:]]
    lines += [*DEFINITIONS[1:], *least]
    table = aligned(columns, found.rows, width)
    return wrapped(head, width) + f"\n{table}" + wrapped("\n" + "\n".join(lines) + "\n", width)


def json(found: MoeEstimate) -> str:
    """The estimate as indented JSON."""
    return msgspec.json.format(json_codec.encode(found), indent=2).decode() + "\n"


def _rate_column(title: str, field: str) -> Column:
    def value(row: EstimatedExchange) -> str:
        rate = getattr(row, field) / row.bound_s if row.bound_s else None
        return text_or_unknown(rate, bandwidth_text)

    return Column(title=title, value=value)


def _latency_column(latency_s: float) -> Column:
    def value(row: EstimatedExchange) -> str:
        return text_or_unknown(row.bound_s and row.bound_s + latency_s, micro_text)

    return Column(title="least+lat", value=value)


def _hosts_text(row: EstimatedExchange) -> str:
    return bandwidth_text(row.hosts_bytes / row.relayed_s) if row.relayed_s else "-"


_RELAYED = [
    Column(title="relayed", value=lambda row: text_or_unknown(row.relayed_s, micro_text)),
    Column(title="hosts", value=_hosts_text),
]
_COLUMNS = [
    Column(title="tokens", value=lambda row: row.tokens),
    Column(title="wire MB", value=lambda row: f"{row.wire_bytes / 1e6:.2f}"),
    Column(title="least", value=lambda row: text_or_unknown(row.bound_s, micro_text)),
    _rate_column("wire", "wire_bytes"),
    _rate_column("recv", "received_bytes"),
    _rate_column("sel", "selections_bytes"),
    Column(title="imb", value=lambda row: f"{row.imbalance:.2f}"),
]
