"""What dispatch and combine could reach at most on a system that is described: nothing is measured.

Combine moves the rows of dispatch the other way, and links carry as much in both directions: one
row stands for both.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from busbw.core import json_codec
from busbw.core.dtypes import dtype
from busbw.core.errors import UsageError
from busbw.core.shown import Shown
from busbw.core.sizes import counted
from busbw.model.systems import System
from busbw.moe.bound import bound
from busbw.moe.types import MoeSpec
from busbw.moe.volumes import DISPATCH, volumes
from busbw.ui.columns import Column, aligned, wrapped
from busbw.ui.number_formats import bandwidth_text, micro_text, text_or_unknown

DEFINITIONS = (
    "least: us, the bytes of the busiest rank or host over what its links carry",
    "wire: GB/s that leave a rank for other ranks; the rank with the most counts",
    "recv: GB/s of rows that a rank receives (combine: returns), its own included",
    "sel: GB/s of tokens x top-k rows, as if each choice got a row of its own",
    "imb: imbalance, the received rows of the rank with the most over the mean",
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


class MoeEstimate(
    Shown, msgspec.Struct, tag="busbw.moe-estimate/1", tag_field="schema", kw_only=True
):
    """The least time of dispatch and combine over the links of a system."""

    moe: MoeSpec
    system: str
    hosts: int
    ranks: int
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
        row = EstimatedExchange(
            tokens=size,
            wire_bytes=moved.wire_bytes(DISPATCH),
            received_bytes=moved.received_bytes,
            selections_bytes=moved.selections_bytes,
            imbalance=moved.imbalance,
            bound_s=least.time_s if least else None,
            bound=least.text if least else "",
        )
        found.rows.append(row)
    return found


def text(found: MoeEstimate, width: int | None = None) -> str:
    """The estimate for people."""
    spec = found.moe
    head = (
        f"# {counted(spec.experts, 'expert')} on {counted(found.ranks, 'rank')} of"
        f" {counted(found.hosts, 'host')} {found.system}, top-{spec.top_k}, hidden {spec.hidden},"
        f" {spec.datatype}, routing {spec.routing}, seed {spec.seed}\n"
        "# the most that the links allow, without latency; nothing was measured\n"
    )
    least = [
        f"least time at {row.tokens} tokens: {row.bound or 'no byte leaves a rank'}"
        for row in found.rows[-1:]
    ]
    lines = [*DEFINITIONS, *least]
    table = aligned(_COLUMNS, found.rows, width)
    return wrapped(head, width) + f"\n{table}" + wrapped("\n" + "\n".join(lines) + "\n", width)


def json(found: MoeEstimate) -> str:
    """The estimate as indented JSON."""
    return msgspec.json.format(json_codec.encode(found), indent=2).decode() + "\n"


def _rate_column(title: str, field: str) -> Column:
    def value(row: EstimatedExchange) -> str:
        rate = getattr(row, field) / row.bound_s if row.bound_s else None
        return text_or_unknown(rate, bandwidth_text)

    return Column(title=title, value=value)


_COLUMNS = [
    Column(title="tokens", value=lambda row: row.tokens),
    Column(title="wire MB", value=lambda row: f"{row.wire_bytes / 1e6:.2f}"),
    Column(title="least", value=lambda row: text_or_unknown(row.bound_s, micro_text)),
    _rate_column("wire", "wire_bytes"),
    _rate_column("recv", "received_bytes"),
    _rate_column("sel", "selections_bytes"),
    Column(title="imb", value=lambda row: f"{row.imbalance:.2f}"),
]
