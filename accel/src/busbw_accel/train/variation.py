"""Finds figures of a training that vary too much from round to round, or contradict each other."""

from dataclasses import dataclass
from statistics import median

from busbw.stats import rounds
from busbw.stats.rounds import Bound, Interval, RoundValues, broken_bounds
from busbw_accel.train.types import ALONE, TrainingRuns


@dataclass(frozen=True, slots=True)
class MethodRounds:
    """The figures of a method, with a value for each round.

    A round has the method and each rank alone. `shares` are of the rate alone; the others are
    seconds of a step. `codec_s` and `network_s` are empty if the method has no step over a perfect
    network.
    """

    shares: list[float]
    alone_s: list[float]
    step_s: list[float]
    exposed_s: list[float]
    codec_s: list[float]
    network_s: list[float]


def parts(training: TrainingRuns, method: str) -> MethodRounds:
    """The figures of each round in which both the method and the rank alone were measured."""
    alone = {run.round: run for run in training.of(training.baseline) if run.steps_s}
    pairs = [
        (alone[run.round], run) for run in training.of(method) if run.steps_s and run.round in alone
    ]
    steps = [(median(base.steps_s), median(run.steps_s)) for base, run in pairs]
    stills = [
        (median(base.silent_s), median(run.silent_s))
        for base, run in pairs
        if base.silent_s and run.silent_s
    ]
    complete = len(stills) == len(steps)
    network: list[float] = []
    if complete:
        pairs_of_steps = zip(steps, stills, strict=True)
        network = [step - silent for (_, step), (_, silent) in pairs_of_steps]
    return MethodRounds(
        shares=[run.rate / base.rate for base, run in pairs],
        alone_s=[base for base, _ in steps],
        step_s=[step for _, step in steps],
        exposed_s=[step - base for base, step in steps],
        codec_s=[silent - still for still, silent in stills] if complete else [],
        network_s=network,
    )


def share_interval(training: TrainingRuns, method: str) -> Interval | None:
    return rounds.ratio_interval(parts(training, method).shares)


def unclear(training: TrainingRuns) -> list[str]:
    """The methods whose share of alone is too uncertain to compare."""
    names = [] if training.spec.states else dict.fromkeys(run.method for run in training.runs)
    return [
        name
        for name in names
        if name != ALONE and rounds.is_too_wide(share_interval(training, name))
    ]


def contradictions(training: TrainingRuns) -> list[Bound]:
    """The impossible figures of a training.

    For example, a step alone is longer than a step under DDP, or a part is negative or larger than
    its whole.
    """
    if training.spec.states:
        return []
    bounds = _alone(training)
    for method in dict.fromkeys(run.method for run in training.runs):
        if method != ALONE:
            bounds += _bounds(method, parts(training, method))
    contradictions = broken_bounds(bounds)
    longer = {bound.name for bound in contradictions if not bound.figure.share and not bound.step_s}
    # A share above 1 says the same as a step that is shorter than one alone.
    return [bound for bound in contradictions if not bound.figure.share or bound.name not in longer]


def _alone(training: TrainingRuns) -> list[Bound]:
    stills = [
        (median(run.steps_s), median(run.silent_s))
        for run in training.of(ALONE)
        if run.steps_s and run.silent_s
    ]
    if not stills:
        return []
    alone, still = zip(*stills, strict=True)
    return [
        Bound(RoundValues("a step alone", alone), RoundValues("a step on a perfect network", still))
    ]


def _bounds(method: str, figures: MethodRounds) -> list[Bound]:
    if not figures.step_s:
        return []
    bounds = [
        Bound(
            RoundValues("a step alone", figures.alone_s),
            RoundValues(f"a step with {method}", figures.step_s),
            name=method,
        ),
        Bound(
            RoundValues(f"{method} of alone", figures.shares, share=True),
            RoundValues("all", [1.0] * len(figures.shares), share=True),
            name=method,
        ),
    ]
    if figures.codec_s:
        exposed = RoundValues(f"what {method} exposes", figures.exposed_s)
        none = RoundValues("nothing", [0.0] * len(figures.step_s))
        codec = RoundValues(f"the codec of {method}", figures.codec_s)
        network = RoundValues(f"the network of {method}", figures.network_s)
        bounds += [
            Bound(codec, exposed, figures.step_s, method),
            Bound(none, codec, figures.step_s, method),
            Bound(none, network, figures.step_s, method),
        ]
    return bounds
