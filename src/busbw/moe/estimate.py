"""What dispatch and combine could reach at most on a system that is described: nothing is measured.

Combine moves the rows of dispatch the other way, and links carry as much in both directions: one
row stands for both.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from busbw.core.alltoallv import traffic
from busbw.core.collectives import collective
from busbw.core.dtypes import dtype
from busbw.core.errors import NoMeasurement, UsageError
from busbw.core.shown import Shown
from busbw.core.sizes import counted
from busbw.model.estimate import EstimateInputs
from busbw.model.fabric import Fabric
from busbw.model.forecast import forecast
from busbw.model.own_nics import LeastTime, OwnNics
from busbw.model.reference.compared import evidence
from busbw.model.reference.curves import Reference, built_in
from busbw.model.systems import System
from busbw.moe.bound import Matrix, bound, own_nic_bound, relayed_bound
from busbw.moe.text import shape
from busbw.moe.types import MoeSpec
from busbw.moe.volumes import DISPATCH, Volumes, bytes_to_hosts, volumes
from busbw.ui.columns import Column, aligned, wrapped
from busbw.ui.number_formats import bandwidth_text, micro_text, text_or_unknown

DROP_ORDER = ("wire MB",)
NUMPY = "pip install 'busbw[mpi]'"  # the smallest extra that brings it
LEAST = (
    "least: us, the bytes of the busiest rank or host over the rates of its links, as `links` of"
    " busbw predict"
)
OF_OWN_NICS = (
    "own NIC: us, the same if each GPU uses the NICs next to it alone, as NCCL without PXN and"
    " DeepEP's low-latency kernels do"
)
OF_NCCL = (
    "nccl: us that busbw predict expects of NCCL's alltoallv of these bytes, with latency and the"
    " share of the links that NCCL reaches"
)
OF_RECEIVER = "; what a GPU receives from other hosts arrives over the NICs next to it"
OF_RELAYED = (
    "relayed: us, own NIC if a token crosses once to each host, and is passed on there over the"
    " links between GPUs, as DeepEP does",
    "hosts: GB/s of the rows that a rank then sends to hosts, its own included, in that time",
)
DEFINITIONS = (
    "wire: GB/s that leave a rank for other ranks in `least`; the rank with the most counts",
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
    own_nic_s: Annotated[
        float | None,
        Meta(
            description="the least time if each GPU uses the NICs next to it alone; null on one"
            " host"
        ),
    ] = None
    own_nic: Annotated[str, Meta(description="formula of that with its numbers")] = ""
    nccl_s: Annotated[
        float | None,
        Meta(
            description="what `busbw predict` expects of NCCL's alltoallv of these bytes; null with"
            " one rank, and where it has no model"
        ),
    ] = None
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
    nics: Annotated[str, Meta(description="the NICs that join the hosts; empty on one host")] = ""
    nics_assumed: Annotated[
        bool, Meta(description="whether these are what hosts of the GPU usually have")
    ] = False
    rows: list[EstimatedExchange] = []


def estimate(
    spec: MoeSpec, system: System, name: str, ranks: int | None, known: Reference | None = None
) -> MoeEstimate:
    """The bounds with one rank on each GPU of the system; without `ranks`, of one host. `known`
    are the runs that a prediction may use: the published ones, if it is None.

    UsageError if the ranks do not fill the hosts, or the NICs that join them are not known.
    NoMeasurement without numpy.
    """
    try:
        from busbw.moe.batch import GPU_TOKENS, batch
    except ImportError as error:
        raise NoMeasurement(
            f"the experts of tokens are drawn with numpy: {error}", NUMPY
        ) from error

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
    links = system.fabric(hosts, per_host)
    row_bytes = spec.hidden * dtype(spec.datatype).itemsize
    ids, sizes = batch(spec, count, GPU_TOKENS)
    found = MoeEstimate(moe=spec, system=name, hosts=hosts, ranks=count, nics=links.nic_link)
    for size in sizes:
        moved = volumes(ids[:, :size], spec.experts, row_bytes)
        to_hosts = bytes_to_hosts(ids[:, :size], spec.experts, row_bytes, per_host)
        row = _exchange(size, moved, to_hosts, links, system)
        row.nccl_s = _nccl_s(moved.matrix(DISPATCH), system, links, known or built_in())
        found.rows.append(row)
    return found


def _exchange(
    tokens: int, moved: Volumes, to_hosts: Matrix, links: Fabric, system: System
) -> EstimatedExchange:
    """The bounds of one number of tokens. `to_hosts` has the bytes from each rank to each host."""
    matrix, hosts = moved.matrix(DISPATCH), _host_of_rank(links)
    least = bound(matrix, hosts, links)
    of_own: LeastTime | None = None
    relayed: LeastTime | None = None
    if links.hosts > 1:
        own = OwnNics(links, system.nics_of(links.per_host))
        of_own = own_nic_bound(matrix, hosts, own)
        relayed = relayed_bound(matrix, to_hosts, own)
    return EstimatedExchange(
        tokens=tokens,
        wire_bytes=moved.wire_bytes(DISPATCH),
        received_bytes=moved.received_bytes,
        selections_bytes=moved.selections_bytes,
        imbalance=moved.imbalance,
        bound_s=least.time_s if least else None,
        bound=least.text if least else "",
        own_nic_s=of_own.time_s if of_own else None,
        own_nic=of_own.text if of_own else "",
        relayed_s=relayed.time_s if relayed else None,
        relayed=relayed.text if relayed else "",
        hosts_bytes=max(map(sum, to_hosts)) if links.hosts > 1 else 0,
    )


def _nccl_s(matrix: Matrix, system: System, links: Fabric, known: Reference) -> float | None:
    """What `busbw predict` expects of NCCL's alltoallv of these bytes, in seconds; None where no
    byte crosses a link, or there is no model.
    """
    moved = traffic(matrix, "routing", _host_of_rank(links))
    if moved is None or system.rccl:
        return None
    setting = EstimateInputs(system, traffic=lambda _hosts, _size_bytes: moved)
    expected = forecast(
        setting,
        collective("alltoallv"),
        links.hosts,
        links.per_host,
        moved.size_bytes,
        evidence(setting, known),
    )
    return expected.time_s if expected else None


def _host_of_rank(links: Fabric) -> list[str]:
    return [str(rank // links.per_host) for rank in range(links.ranks)]


def text(found: MoeEstimate, width: int | None = None) -> str:
    """The estimate for people."""
    nics = found.nics + (", assumed: name yours with --nics" if found.nics_assumed else "")
    head = (
        f"# {counted(found.moe.experts, 'expert')} on {counted(found.ranks, 'rank')} of"
        f" {counted(found.hosts, 'host')} {found.system}, {shape(found.moe)}\n"
        + (f"# {nics}\n" if nics else "")
        + "# the most that the links allow; nothing was measured\n"
    )
    several = found.hosts > 1
    modelled = any(row.nccl_s for row in found.rows)
    of_own = [_time_column("own NIC", "own_nic_s")] if several else []
    of_nccl = [_time_column("nccl", "nccl_s")] if modelled else []
    columns = [*_FIRST, *of_own, *of_nccl, *(_RELAYED if several else []), *_RATES]
    lines = [LEAST]
    lines += [OF_OWN_NICS] if several else []
    lines += [OF_NCCL + (OF_RECEIVER if several else "")] if modelled else []
    lines += [*(OF_RELAYED if several else []), *DEFINITIONS]
    for row in found.rows[-1:]:
        lines.append(f"least at {row.tokens} tokens: {row.bound or 'no byte leaves a rank'}")
        if several:
            lines.append(f"own NIC at {row.tokens} tokens: {row.own_nic}")
            lines.append(f"relayed at {row.tokens} tokens: {row.relayed}")
    table = aligned(columns, found.rows, width, DROP_ORDER)
    return wrapped(head, width) + f"\n{table}" + wrapped("\n" + "\n".join(lines) + "\n", width)


def _rate_column(title: str, field: str) -> Column:
    def value(row: EstimatedExchange) -> str:
        rate = getattr(row, field) / row.bound_s if row.bound_s else None
        return text_or_unknown(rate, bandwidth_text)

    return Column(title=title, value=value)


def _time_column(title: str, field: str) -> Column:
    return Column(title=title, value=lambda row: text_or_unknown(getattr(row, field), micro_text))


def _hosts_text(row: EstimatedExchange) -> str:
    return bandwidth_text(row.hosts_bytes / row.relayed_s) if row.relayed_s else "-"


_RELAYED = [_time_column("relayed", "relayed_s"), Column(title="hosts", value=_hosts_text)]
_FIRST = [
    Column(title="tokens", value=lambda row: row.tokens),
    Column(title="wire MB", value=lambda row: f"{row.wire_bytes / 1e6:.2f}"),
    _time_column("least", "bound_s"),
]
_RATES = [
    _rate_column("wire", "wire_bytes"),
    _rate_column("recv", "received_bytes"),
    _rate_column("sel", "selections_bytes"),
    Column(title="imb", value=lambda row: f"{row.imbalance:.2f}"),
]
