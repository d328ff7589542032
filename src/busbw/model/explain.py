"""Which algorithm a measured busbw fits, and how much of each link that algorithm uses.

The bounds exclude some algorithms, and NCCL's model chooses among the others.
"""

from dataclasses import dataclass
from math import log

from busbw.core.cells import Figure
from busbw.core.collectives import Collective
from busbw.model.bounds import ALGORITHMS, bounds
from busbw.model.estimate import Setting
from busbw.model.fabric import gb
from busbw.model.nccl.choice import Choice, choices
from busbw.model.nccl.constants import LATEST, NVLS, NVLS_TREE, TREE
from busbw.model.predict import describe
from busbw.model.types import Explanation, Judged, Load

NEAR = 0.20  # of the model: further away, a measurement fits no algorithm
LATENCY_BOUND = 1 << 20
LARGE_BYTES = 1 << 40  # bytes, beyond every correction by size
RING_TEST = "NCCL_ALGO=Ring measures the network (NVIDIA/nccl-tests issue 196)"
ONCE = (
    "on two hosts a tree sends each byte over the network once, so busbw may exceed the NICs'"
    " rate; " + RING_TEST
)
NOT_A_LINK = (
    "with NVLS the switch reduces, so busbw is no link's load (NVIDIA/nccl-tests issue 212)"
)


@dataclass(frozen=True, slots=True)
class Measured:
    """One figure of a result, on `hosts` hosts with `per_host` ranks each.

    `source` names the file.
    """

    row: Collective
    hosts: int
    per_host: int
    figure: Figure
    source: str


def explain(measured: Measured, setting: Setting, system_source: str) -> Explanation:
    """Judge every algorithm that the system has; the model is that of the latest constants,
    without calibration.
    """
    row, hosts, per_host, figure = measured.row, measured.hosts, measured.per_host, measured.figure
    size = figure.row.size_bytes
    judged = _judge(measured, setting)
    model = setting.system.model(setting.release, hosts, per_host)
    possible = choices(model, row.name, size, setting.may)
    chosen = possible[0].algorithm if possible else ""
    fits = _nearest(judged, chosen)
    algorithm = fits or chosen
    if not algorithm and judged:
        algorithm = judged[0].algorithm
    return Explanation(
        source=measured.source,
        collective=row.name,
        described=describe(setting.system, hosts, per_host, setting.release, system_source),
        size_bytes=size,
        placement=figure.placement,
        busbw=figure.busbw,
        algbw=figure.busbw / float(row.bus_factor(hosts * per_host)),
        judged=judged,
        fits=fits,
        chosen=chosen,
        loads=_loads(measured, setting, algorithm),
        notes=[*_channels(measured, setting, fits), *_notes(measured, judged, fits, chosen)],
    )


def _judge(measured: Measured, setting: Setting) -> list[Judged]:
    """Every algorithm with a bound, those that are not excluded first, the nearest first."""
    system, hosts, per_host = setting.system, measured.hosts, measured.per_host
    size, busbw = measured.figure.row.size_bytes, measured.figure.busbw
    model = system.model(LATEST, hosts, per_host)
    timed: dict[str, Choice] = {}
    for choice in choices(model, measured.row.name, size, setting.may):
        timed.setdefault(choice.algorithm, choice)
    factor = float(measured.row.bus_factor(hosts * per_host))
    judged = []
    for bound in bounds(measured.row, system.fabric(hosts, per_host), system.features()):
        expected = timed.get(bound.algorithm)
        planned = factor * size / expected.parts.time_s if expected else None
        judgement = Judged(
            bound.algorithm,
            bound.busbw,
            busbw > bound.busbw,
            planned,
            expected.protocol if expected else "",
            busbw / planned - 1 if planned else None,
        )
        judged.append(judgement)
    return sorted(judged, key=lambda judged: (judged.excluded, abs(_distance(judged))))


def _distance(judged: Judged) -> float:
    return 99.0 if judged.off is None or judged.off <= -1 else log(1 + judged.off)


def _nearest(judged: list[Judged], chosen: str) -> str:
    """NCCL's choice if the measurement is near its model, else the nearest of the others; empty
    if none is near.
    """
    near = [
        algorithm.algorithm
        for algorithm in judged
        if not algorithm.excluded and algorithm.off is not None and abs(algorithm.off) <= NEAR
    ]
    if chosen in near:
        return chosen
    return near[0] if near else ""


def _loads(measured: Measured, setting: Setting, algorithm: str) -> list[Load]:
    """What the algorithm moves over each kind of link, per GPU or per host, if the measured
    busbw is reached by it.
    """
    hosts, per_host, system = measured.hosts, measured.per_host, setting.system
    wire = system.fabric(hosts, per_host)
    data = system.fabric(hosts, per_host, payload=True)
    rates = {
        wire.gpu_link: (wire.gpu or 0.0, data.gpu or 0.0),
        wire.nic_link: (wire.nics, data.nics),
    }
    for row in ALGORITHMS:
        if row.name != algorithm or measured.row.name not in row.collectives:
            continue
        if not row.runs(wire, system.features()):
            continue
        factor = float(measured.row.bus_factor(hosts * per_host)) if row.times_factor else 1.0
        shares = {term.link: measured.figure.busbw / factor / term.rate for term in row.terms(wire)}
        return [
            Load(link, *rates[link], used=share * rates[link][0])
            for link, share in shares.items()
            if link in rates
        ]
    return []


def _channels(measured: Measured, setting: Setting, fits: str) -> list[str]:
    """The channels of the algorithm that fits, and their speed in NCCL's model without latency."""
    model = setting.system.model(LATEST, measured.hosts, measured.per_host)
    timed = choices(model, measured.row.name, LARGE_BYTES, setting.may)
    fitting = [choice for choice in timed if choice.algorithm == fits]
    graph = {TREE: model.tree, NVLS: model.nvls, NVLS_TREE: model.nvls}.get(fits, model.ring)
    if not fitting or graph is None:
        return []
    rate = LARGE_BYTES * float(measured.row.bus_factor(model.ranks)) / fitting[0].parts.transfer_s
    return [
        f"in NCCL's model {fits} has {graph.channels} channels of {gb(rate / graph.channels)} GB/s,"
        f" {gb(rate)} together"
    ]


def _notes(measured: Measured, judged: list[Judged], fits: str, chosen: str) -> list[str]:
    notes = []
    if measured.figure.row.size_bytes < LATENCY_BOUND:
        notes.append(
            "the largest busbw is at a small size, where latency decides: measure larger sizes,"
            " like -e 8G"
        )
    if fits in (NVLS_TREE, TREE) and measured.hosts == 2:
        notes.append(ONCE)
    if fits == NVLS:
        notes.append(NOT_A_LINK)
    if not fits:
        for algorithm in judged:
            if algorithm.algorithm == chosen and algorithm.off is not None:
                more = "faster" if algorithm.off > 0 else "slower"
                notes.append(
                    f"it is {abs(algorithm.off):.0%} {more} than the model of {chosen}, which NCCL"
                    " takes here"
                )
    if fits and chosen and fits != chosen:
        notes.append(
            f"NCCL's own choice would be {chosen}: was another one forced, or is {chosen} not"
            " available?"
        )
    return notes
