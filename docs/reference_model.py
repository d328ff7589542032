"""The reference page of NCCL's cost model: constants by release, lists of speeds, described
systems and bands.
"""

from markdown_table import code, table

from busbw.core.pattern import PROTOCOLS
from busbw.core.sizes import format_size
from busbw.model.clouds import Instance, instances
from busbw.model.forecast import CALIBRATED
from busbw.model.gpu_hosts import UsualHost, gpu_hosts
from busbw.model.hardware import by_name, pcie_gpus
from busbw.model.nccl import constants, graphs
from busbw.model.nccl.constants import (
    NET,
    NET_OVERHEAD_US,
    NVLINK,
    PCI,
    Release,
    releases,
    tree_shares,
)
from busbw.model.networks import networks
from busbw.model.reference.bands import CHECKED_DOMAIN, CHECKED_RANKS, Band, bands
from busbw.model.systems import PCIE_PAYLOAD, ROCE_PAYLOAD

RATES = (
    ("LL, all channels", "ll_max"),
    ("LL128 of Ring, a channel", "ring_ll128"),
    ("Tree, a channel", "tree"),
    ("LL128 of Tree, a channel", "tree_ll128"),
    ("NVLSTree, a channel", "nvls_tree"),
)


def model() -> str:
    """The whole page."""
    overhead = ", ".join(f"{us:g} us ({cpu})" for cpu, us in NET_OVERHEAD_US.items())
    shares = [(name, " ".join(f"{share:g}" for share in tree_shares()[name])) for name in PROTOCOLS]
    return (
        "How times are computed from these, and how far they are off: [the"
        " model](../explanation/the-model.md).\n\n"
        "## Releases\n\n"
        "A row holds until the next one.\n\n"
        + table(("NCCL", "source"), [(f"{row.name} on", row.source) for row in releases()])
        + "## Latencies\n\nMicroseconds for LL / LL128 / Simple: once for each operation, and for"
        " each hop.\n\n"
        + _latencies()
        + "Between the ranks of a ring over several hosts, posting a network operation takes at"
        f" least {overhead}, with Simple three times that.\n\n## Largest rates\n\nGB/s on one"
        " host / two hosts / more. LL's row is that of the GPU on one host; over several hosts"
        " it is Ampere's with AMD CPUs, else Volta's.\n\n"
        + _rates()
        + "## Shares of Tree's rate by size\n\nFor sizes from 64 B on, one value for each power of"
        " two. From 2.29 on also for NVLSTree on Blackwell with x86.\n\n"
        + table(("protocol", "shares"), shares)
        + "## Speeds of a channel\n\nGB/s among which NCCL searches (src/graph/search.cc).\n\n"
        + _speeds()
        + _systems()
        + _bands()
    )


def _systems() -> str:
    rows = [
        (*_gpu(row.word), row.most, _nics(row), row.cpu, row.source) for row in gpu_hosts().values()
    ]
    titles = ("GPU", "compute capability", "at most", "usual NICs", "CPU", "as")
    return (
        "## Described systems\n\n"
        "`--system` takes one of these GPUs, `x`, and how many a host has, or `nvl` and how many"
        " an NVLink domain has. `--nics` says other NICs than the usual ones. NICs carry"
        f" {100 * ROCE_PAYLOAD:.1f} % of their rate as data (RoCE v2, MTU 4096), PCIe"
        f" {100 * PCIE_PAYLOAD:.0f} %.\n\n"
        + table(titles, rows)
        + "`--system` also takes these types of hosts of clouds, in any case, and Azure's with"
        " `Standard_`. Without `--fabric`, NICs marked with * tell the network, because no other"
        " vendor's host has them beside these GPUs.\n\n"
        + table(
            ("host", "GPUs", "NICs", "fabric", "CPU", "source"),
            [_rented(row) for row in instances().values()],
        )
        + "### Fabrics\n\nWhat the network's plugin reports as its latency. NCCL adds it to each"
        " hop between hosts, and twice with Simple. `--fabric 75us` gives another.\n\n"
        + table(
            ("fabric", "us", "source"),
            [(code(row.name), f"{row.latency_us:g}", row.source) for row in networks().values()],
        )
    )


def _nics(row: UsualHost) -> str:
    if not row.gbit:
        return "unknown"
    count = f"{row.nics} x" if row.nics else "a GPU each,"
    return f"{count} {row.gbit} Gbit/s"


def _rented(row: Instance) -> tuple[str, ...]:
    mark = " *" if row.alone else ""
    return (
        code(row.name),
        f"{row.gpus} {row.word.upper()}",
        f"{row.nics} x {row.gbit} Gbit/s{mark}",
        code(row.network),
        row.cpu,
        row.source,
    )


def _bands() -> str:
    known = bands()
    return (
        "## Ranges and their coverage\n\n"
        "`low` and `high` of a prediction are the expected busbw times these factors, but at most"
        " the highest bound of an algorithm. They are made so that they hold"
        f" {100 * known.coverage:.0f} % of the runs that were published, with 90 % of the sizes of"
        " each. Every run is predicted without its own curves: on one host also without those of"
        " its GPU (*runs of similar systems*), or without any (*model*). *inside* is the share of"
        " sizes within a range that was made without their run; it is unknown where there is only"
        " one run. `python benchmarks/reference_errors.py` computes this table.\n\n"
        + table(
            ("what", "rests on", "from", "runs", "median", "90 %", "low", "high", "inside"),
            [_band(row) for row in known.rows],
        )
        + f"Above {CHECKED_RANKS} ranks, or {CHECKED_DOMAIN} GPUs in one NVLink domain, rows are"
        " `extrapolated`: the logarithm of `low` doubles for every ten times as many ranks. No"
        " measurement says so.\n\n"
        "With `--calibrate`, sizes that were measured on as many hosts have a range of"
        f" {_calibrated()}.\n\n"
    )


def _band(row: Band) -> tuple[str, ...]:
    alone = row.runs < 2
    return (
        row.scope,
        row.basis,
        format_size(row.from_bytes),
        str(row.runs),
        f"{100 * row.median_error:.1f} %",
        f"{100 * row.p90_error:.1f} %",
        f"{row.low:.2f}",
        f"{row.high:.2f}",
        "-" if alone else f"{100 * row.inside:.0f} %",
    )


def _calibrated() -> str:
    return ", ".join(
        f"{100 * share:.0f} % from {format_size(least)} on" for least, share in CALIBRATED
    )


def _gpu(word: str) -> tuple[str, str]:
    row = by_name(word) or pcie_gpus()[word]
    return code(word), f"{row.sm / 10:g}"


def _latencies() -> str:
    rows: dict[tuple[str, ...], str] = {}
    for name in constants.MODELLED:
        for release in releases():
            if name != constants.PAT or release.pat:
                parts = (
                    release.base[name],
                    *(release.hops[link][name] for link in (NVLINK, PCI, NET)),
                )
                rows.setdefault((name, *map(_triple, parts)), release.name)
    return table(
        ("algorithm", "NCCL", "once", "NVLink hop", "PCIe hop", "network hop"), _dated(rows)
    )


def _dated(rows: dict[tuple[str, ...], str], at: int = 1) -> list[list[str]]:
    return [[*texts[:at], f"{release} on", *texts[at:]] for texts, release in rows.items()]


def _rates() -> str:
    rows: dict[tuple[str, ...], str] = {}
    for title, field in RATES:
        for family in (constants.VOLTA, constants.AMPERE, constants.HOPPER, constants.BLACKWELL):
            for release in releases():
                limits = getattr(release, field)
                if limits:
                    rows.setdefault((title, family, _triple(limits[family])), release.name)
    nvls: dict[tuple[str, ...], str] = {}
    for release in releases():
        nvls.setdefault((_nvls(release),), release.name)
    return table(("limit", "GPUs", "NCCL", "GB/s"), _dated(rows, 2)) + table(
        ("NCCL", "NVLS"), _dated(nvls, 0)
    )


def _nvls(row: Release) -> str:
    if row.nvls_efficiency is None:
        return "algbw is 5/6 of the channels' speed"
    return "busbw is twice the channels' speed times " + ", ".join(
        f"{share:g} ({family})" for family, share in row.nvls_efficiency.items() if share
    )


def _triple(values: tuple[float, ...]) -> str:
    return " / ".join(f"{value:g}" for value in values)


def _speeds() -> str:
    names = (("before Hopper", ""), ("Hopper", "_90"), ("Blackwell", "_100"))
    rows = [
        (title, place, " ".join(f"{speed:g}" for speed in getattr(graphs, f"{kind}{suffix}")))
        for title, suffix in names
        for place, kind in (("one host", "INTRA"), ("several hosts", "INTER"))
    ]
    return table(("GPUs", "on", "GB/s"), rows)
