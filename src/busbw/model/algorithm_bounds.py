"""The bounds of a collective on a described system, by algorithm, at four levels; `bounds` has them
for the links of a run.

L0 is the rate of the links. L1 is what they carry of data, without headers and checksums. L2 is an
algorithm's bound over L1. L3 is the busbw that NCCL's model of a release expects for one size.
"""

from busbw.core.collectives import Collective
from busbw.core.result import Ideal
from busbw.model.bounds import bounds, endpoint
from busbw.model.estimate import EstimateInputs
from busbw.model.nccl.choice import ExpectedChoice
from busbw.model.types import AlgorithmLevels, Bounds


def algorithm_bounds(
    setting: EstimateInputs, row: Collective, hosts: int, per_host: int, size_bytes: int
) -> Bounds:
    """Bounds of each algorithm that can run, highest first, and the one that NCCL takes."""
    system = setting.system
    wire = setting.fabric(hosts, per_host, size_bytes)
    data = setting.fabric(hosts, per_host, size_bytes, payload=True)
    possible: list[ExpectedChoice] = []
    if not system.rccl:
        possible = setting.choices(row.name, hosts, per_host, size_bytes)
    fastest: dict[str, ExpectedChoice] = {}  # by algorithm
    for choice in possible:
        fastest.setdefault(choice.algorithm, choice)
    payload = {bound.algorithm: bound for bound in bounds(row, data, system.features())}
    busbw_bytes = float(row.bus_factor(hosts * per_host)) * size_bytes
    levels = [
        _level(bound, payload[bound.algorithm], fastest.get(bound.algorithm), busbw_bytes)
        for bound in bounds(row, wire, system.features())
    ]
    levels.sort(key=lambda level: -level.wire)
    return Bounds(
        hosts=hosts,
        size_bytes=size_bytes,
        levels=levels,
        endpoint=endpoint(row, wire),
        chosen=possible[0].algorithm if possible else "",
    )


def _level(
    wire: Ideal, payload: Ideal, expected: ExpectedChoice | None, busbw_bytes: float
) -> AlgorithmLevels:
    """The level of one algorithm: its two bounds, and the busbw of `busbw_bytes` in the expected
    time, if NCCL has a model of it.
    """
    planned = None
    protocol = ""
    if expected:
        protocol = expected.protocol
        planned = busbw_bytes / expected.parts.time_s if busbw_bytes else None
    return AlgorithmLevels(
        wire.algorithm, wire.busbw, payload.busbw, payload.link, wire.why, planned, protocol
    )
