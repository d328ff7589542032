"""Which algorithm a measured busbw fits, and how much of each link that algorithm uses.

The bounds exclude some algorithms, and NCCL's model chooses among the others.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import log

from busbw.core.cells import Figure
from busbw.core.collectives import Collective
from busbw.core.ran import NcclKernel
from busbw.core.result import Ideal
from busbw.core.sizes import counted
from busbw.model.bounds import ALGORITHMS, bounds
from busbw.model.causes import fitting
from busbw.model.estimate import EstimateInputs, by_links
from busbw.model.fabric import gb
from busbw.model.forecast import MeasuredCurves, forecast, job_of
from busbw.model.nccl.choice import choices
from busbw.model.nccl.constants import MODELLED, NVLS, NVLS_TREE, RING, SIMPLE, TREE, fitted_release
from busbw.model.predict import describe
from busbw.model.reference.expected import modelled_s
from busbw.model.types import Explanation, Forecast, JudgedAlgorithm, LinkUse

ABOUT = 0.03  # in the logarithm: how much farther NCCL's choice may be than the nearest
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
IN_NETWORK = (
    "only reduction in the network's switches (SHARP) allows this: NCCL_COLLNET_ENABLE=1 and its"
    " plugin were in use, or the NICs are faster than described"
)


@dataclass(frozen=True, slots=True)
class ExplainedFigure:
    """One figure of a result, on `hosts` hosts with `per_host` ranks each.

    `source` names the file. `stated_causes` are what it states that slows NCCL down.
    """

    row: Collective
    hosts: int
    per_host: int
    figure: Figure
    source: str
    stated_causes: list[str] = field(default_factory=list)


def explain(
    measured: ExplainedFigure,
    setting: EstimateInputs,
    system_source: str,
    evidence: MeasuredCurves | None = None,
) -> Explanation:
    """Judge every algorithm that the system has, and compare with what is expected of it."""
    row, hosts, per_host, figure = measured.row, measured.hosts, measured.per_host, measured.figure
    size = figure.row.size_bytes
    judged = _judge(measured, setting)
    chosen = by_links(setting, row.name, hosts, per_host, size)
    choice = chosen.algorithm if chosen else ""
    ran = _ran(figure, judged)
    fits = ran.algorithm if ran else _nearest(judged, choice)
    about_as_near = [] if ran else _about_as_near(judged, fits)
    expected = forecast(setting, row, hosts, per_host, size, evidence)
    verdict = _verdict(figure.busbw, expected)
    causes: list[str] = []
    if verdict == "slower":
        causes = measured.stated_causes or fitting(
            setting, row, (hosts, per_host), size, figure.busbw, evidence
        )
    return Explanation(
        source=measured.source,
        collective=row.name,
        described=describe(setting.system, hosts, per_host, setting.release, system_source),
        size_bytes=size,
        placement=figure.placement,
        busbw=figure.busbw,
        algbw=figure.busbw / float(row.bus_factor(hosts * per_host)),
        judged=judged,
        verdict=verdict,
        causes=causes,
        forecast=expected,
        ran=str(ran or ""),
        fits=fits,
        about_as_near=about_as_near,
        chosen=choice,
        loads=_loads(measured, setting, fits or choice or (judged[0].algorithm if judged else "")),
        notes=[*_channels(measured, setting, fits), *_notes(measured, judged, fits, choice)],
    )


def _ran(figure: Figure, judged: Sequence[JudgedAlgorithm]) -> NcclKernel | None:
    """What NCCL ran, as the result states it; None if it does not.

    Also None if the measurement is above that algorithm's bound: the system cannot be the described
    one then, and what ran says nothing about it.
    """
    ran = figure.ran
    possible = [candidate.algorithm for candidate in judged if not candidate.excluded]
    return ran if ran and ran.algorithm in possible else None


def _verdict(busbw: float, expected: Forecast | None) -> str:
    if expected is None or expected.low <= busbw <= expected.high:
        return "expected"
    return "slower" if busbw < expected.low else "faster"


def _judge(measured: ExplainedFigure, setting: EstimateInputs) -> list[JudgedAlgorithm]:
    """Every algorithm with a bound, those that are not excluded first, the nearest first. Over
    several hosts that includes those that need SHARP, of which there is no model.
    """
    hosts, per_host, features = measured.hosts, measured.per_host, setting.system.features()
    fabric = setting.fabric(hosts, per_host, measured.figure.row.size_bytes)
    busbw = measured.figure.busbw
    judged = []
    for bound in bounds(measured.row, fabric, features):
        protocol, planned, at_nics = _planned(measured, setting, bound)
        off = _off(busbw, planned, at_nics) if planned and at_nics else None
        judged.append(
            JudgedAlgorithm(
                bound.algorithm,
                bound.busbw,
                busbw > bound.busbw,
                planned,
                protocol,
                off,
                planned_to=at_nics if at_nics != planned else None,
            )
        )
    plain = {bound.algorithm for bound in judged}
    judged += [
        JudgedAlgorithm(bound.algorithm, bound.busbw, busbw > bound.busbw, in_network=True)
        for bound in bounds(measured.row, fabric, replace(features, collnet=True))
        if bound.algorithm not in plain
    ]
    return sorted(
        judged,
        key=lambda candidate: (candidate.excluded, candidate.in_network, abs(_distance(candidate))),
    )


def _planned(
    measured: ExplainedFigure, setting: EstimateInputs, bound: Ideal
) -> tuple[str, float | None, float | None]:
    """The protocol and busbw that the model expects of an algorithm, and what it expects of a ring
    that fills the NICs; no busbw without a model.

    NCCL plans a ring with a speed from a table, the next one below what the NICs carry. With Simple
    a real one runs anywhere between both: at 365 and 380 GB/s where NCCL plans with 360 and the
    NICs carry 400.
    """
    algorithm = bound.algorithm
    only = replace(
        setting, may=replace(setting.may, algorithms=(algorithm,)), release=fitted_release()
    )
    size, shape = measured.figure.row.size_bytes, (measured.hosts, measured.per_host)
    choice = by_links(only, measured.row.name, *shape, size) if algorithm in MODELLED else None
    if choice is None or choice.algorithm != algorithm:
        return "", None, None
    moved = float(measured.row.bus_factor(measured.hosts * measured.per_host)) * size
    job = job_of(setting, measured.row.name, *shape)
    planned = moved / modelled_s(job, choice)
    if (algorithm, choice.protocol) != (RING, SIMPLE) or measured.hosts == 1:
        return choice.protocol, planned, planned
    filled_s = min(choice.parts.transfer_s, moved / bound.busbw)
    filled = replace(choice, parts=replace(choice.parts, transfer_s=filled_s))
    return choice.protocol, planned, moved / modelled_s(job, filled)


def _off(busbw: float, planned: float, at_nics: float) -> float:
    """How far a busbw is from what is between both, relative to the nearer one; 0 inside."""
    nearer = min(max(busbw, planned), at_nics)
    return busbw / nearer - 1


def _distance(judged: JudgedAlgorithm) -> float:
    return 99.0 if judged.off is None or judged.off <= -1 else log(1 + judged.off)


def _nearest(judged: list[JudgedAlgorithm], chosen: str) -> str:
    """The possible algorithm whose model is nearest; NCCL's choice if it is about as near. Where
    only SHARP allows the measurement, that; empty if nothing does.
    """
    possible = [candidate for candidate in judged if not candidate.excluded]
    modelled = [candidate for candidate in possible if candidate.off is not None]
    if not modelled:
        return possible[0].algorithm if possible else ""
    nearest = min(modelled, key=lambda candidate: abs(_distance(candidate))).algorithm
    return chosen if chosen in _about_as_near(modelled, nearest) else nearest


def _about_as_near(judged: Sequence[JudgedAlgorithm], nearest: str) -> list[str]:
    """The algorithms besides the nearest whose models fit nearly as well."""
    return [candidate.algorithm for candidate in judged if _is_near(candidate, judged, nearest)]


def _is_near(candidate: JudgedAlgorithm, judged: Sequence[JudgedAlgorithm], nearest: str) -> bool:
    """Whether an algorithm's model is about as near to the measurement as the nearest one's."""
    if candidate.excluded or candidate.off is None or candidate.algorithm == nearest:
        return False
    best = next((abs(_distance(other)) for other in judged if other.algorithm == nearest), 0.0)
    return abs(abs(_distance(candidate)) - best) <= ABOUT


def _loads(measured: ExplainedFigure, setting: EstimateInputs, algorithm: str) -> list[LinkUse]:
    """What the algorithm moves over each kind of link at the measured busbw, per GPU or host."""
    hosts, per_host, features = measured.hosts, measured.per_host, setting.system.features()
    size = measured.figure.row.size_bytes
    wire = setting.fabric(hosts, per_host, size)
    data = setting.fabric(hosts, per_host, size, payload=True)
    rates = {
        wire.gpu_link: (wire.gpu or 0.0, data.gpu or 0.0),
        wire.nic_link: (wire.nics, data.nics),
    }
    for row in ALGORITHMS:
        if row.name != algorithm or measured.row.name not in row.collectives:
            continue
        if not row.runs(wire, features):
            continue
        factor = float(measured.row.bus_factor(hosts * per_host)) if row.times_factor else 1.0
        shares = {term.link: measured.figure.busbw / factor / term.rate for term in row.terms(wire)}
        return [
            LinkUse(link, *rates[link], used=share * rates[link][0])
            for link, share in shares.items()
            if link in rates
        ]
    return []


def _channels(measured: ExplainedFigure, setting: EstimateInputs, fits: str) -> list[str]:
    """The channels of the algorithm that fits, and their speed in NCCL's model without latency."""
    model = setting.system.model(fitted_release(), measured.hosts, measured.per_host)
    timed = choices(model, measured.row.name, LARGE_BYTES, setting.allowed(measured.row.name))
    fitting = [choice for choice in timed if choice.algorithm == fits]
    graph = {TREE: model.tree, NVLS: model.nvls, NVLS_TREE: model.nvls}.get(fits, model.ring)
    if not fitting or graph is None:
        return []
    rate = LARGE_BYTES * float(measured.row.bus_factor(model.ranks)) / fitting[0].parts.transfer_s
    together = f", {gb(rate)} together" if graph.channels > 1 else ""
    return [
        f"in NCCL's model {fits} has {counted(graph.channels, 'channel')} of"
        f" {gb(rate / graph.channels)} GB/s{together}"
    ]


def _notes(
    measured: ExplainedFigure, judged: list[JudgedAlgorithm], fits: str, chosen: str
) -> list[str]:
    notes = []
    if measured.figure.row.size_bytes < LATENCY_BOUND:
        notes.append(
            "the largest busbw is at a small size, where latency decides: measure larger sizes,"
            " like -e 8G"
        )
    if fits in (NVLS_TREE, TREE) and measured.hosts == 2:
        notes.append(ONCE)
    if fits == NVLS and measured.hosts == 1:
        notes.append(NOT_A_LINK)
    if any(candidate.in_network and candidate.algorithm == fits for candidate in judged):
        notes.append(IN_NETWORK)
    if fits and chosen and fits != chosen:
        notes.append(
            f"NCCL's own choice would be {chosen}: was another one forced, or is {chosen} not"
            " available?"
        )
    return notes
