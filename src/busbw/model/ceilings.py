"""The levels of what a system can do: its links, what they carry of data, the bound of each
algorithm, and NCCL's model.

L0 is the rate of the links. L1 is what they carry of data, without headers and checksums. L2 is an
algorithm's bound over L1. L3 is the busbw that NCCL's model of a release expects for one size.
"""

from dataclasses import replace

from busbw.core.collectives import Collective
from busbw.core.traffic import Traffic
from busbw.model.bounds import bounds, endpoint
from busbw.model.fabric import gb
from busbw.model.nccl.choice import Allowed, choices
from busbw.model.nccl.constants import Release
from busbw.model.systems import System
from busbw.model.types import Described, Ideals, Level

OWN_NVLS = (
    "before 2.28, NCCL expects more of NVLSTree than it reaches: 4 to 11 % on 2 x 8 H100 and H20"
    " from 1 GiB on"
)


def described(
    system: System, hosts: int, per_host: int, release: Release, source: str
) -> Described:
    """The system in an answer."""
    wire, data = (system.fabric(hosts, per_host, payload=payload) for payload in (False, True))
    nics = (
        f"{round(wire.nics / wire.rail)} x {gb(wire.rail)} GB/s" if wire.nics and wire.rail else ""
    )
    return Described(
        source,
        system.name,
        system.gpu,
        hosts,
        per_host,
        wire.gpu or 0.0,
        data.gpu or 0.0,
        wire.gpu_link,
        wire.nics,
        data.nics,
        nics,
        release.name,
    )


def ideals(
    row: Collective,
    system: System,
    hosts: int,
    per_host: int,
    size_bytes: int,
    release: Release,
    source: str,
    may: Allowed | None = None,
    traffic: Traffic | None = None,
) -> Ideals:
    """The levels of every algorithm that can run, the highest bound first, and the algorithm that
    NCCL takes.

    `traffic` is what an alltoallv moves between the ranks, which are numbered host by host; None
    for an even exchange.
    """
    wire, data = (
        replace(system.fabric(hosts, per_host, payload=payload), traffic=traffic)
        for payload in (False, True)
    )
    factor = float(row.bus_factor(hosts * per_host))
    planned = (
        []
        if system.rccl
        else choices(system.model(release, hosts, per_host), row.name, size_bytes, may)
    )
    levels = []
    payload = {bound.algorithm: bound for bound in bounds(row, data, system.features())}
    for bound in bounds(row, wire, system.features()):
        own = next((choice for choice in planned if choice.algorithm == bound.algorithm), None)
        expected = factor * size_bytes / own.parts.time_s if own and size_bytes else None
        limited = payload[bound.algorithm]
        levels.append(
            Level(
                bound.algorithm,
                bound.busbw,
                limited.busbw,
                limited.link,
                bound.why,
                expected,
                own.protocol if own else "",
            )
        )
    levels.sort(key=lambda level: -level.wire)
    chosen = planned[0].algorithm if planned else ""
    about = described(system, hosts, per_host, release, source)
    if system.part_unknown:
        about.notes.append(
            "the GPUs are joined unevenly: the bounds count all links of a GPU, and paths between"
            " two can have less"
        )
    if system.rccl:
        about.notes.append("busbw has no model of RCCL: the bounds are those of the links")
    if release.nvls_efficiency is None and chosen.startswith("NVLS"):
        about.notes.append(OWN_NVLS)
    return Ideals(
        collective=row.name,
        size_bytes=size_bytes,
        described=about,
        levels=levels,
        endpoint=endpoint(row, wire),
        chosen=chosen,
    )
