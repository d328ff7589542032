"""The explanation of a busbw as text, and parts that all answers of the model share: the system in
words, notes, and JSON.
"""

from busbw.core.collectives import BY_NAME
from busbw.core.sizes import counted, format_size
from busbw.model.types import DescribedHardware, Explanation, JudgedAlgorithm, LinkUse
from busbw.ui.columns import Column, aligned, wrapped
from busbw.ui.number_formats import bandwidth_text, text_or_unknown

DROP_ORDER = ("model",)
LOAD_DROP_ORDER = ("data",)
MEANING = "GB/s; at most = bound at the rates of the links; off = measured, relative to the model\n"
# The values take a LinkUse.
LOAD_COLUMNS: tuple[Column, ...] = (
    Column(title="link", value=lambda load: load.link, left=True),
    Column(title="rate", unit="GB/s", value=lambda load: bandwidth_text(load.rate)),
    Column(title="data", unit="GB/s", value=lambda load: bandwidth_text(load.payload)),
    Column(title="used", unit="GB/s", value=lambda load: bandwidth_text(load.used)),
    Column(title="used", unit="%", value=lambda load: f"{100 * load.used / load.rate:.0f}"),
)
RUNS_NAMED = 3
VERDICTS = {
    "slower": "slower than expected",
    "expected": "as expected",
    "faster": "faster than expected",
}


def ranks_text(about: DescribedHardware) -> str:
    """`2 hosts x 8 H100`."""
    return f"{counted(about.hosts, 'host')} x {about.per_host} {about.gpu}"


def title(collective: str, about: DescribedHardware) -> str:
    """`AllReduce on 2 hosts x 8 H100 (h100x8)`."""
    name = f" ({about.system})" if about.system else ""
    return f"{BY_NAME[collective].title} on {ranks_text(about)}{name}"


def links(about: DescribedHardware) -> list[str]:
    """A line for each kind of link in use: its description, its rate, and its rate of data."""
    lines = []
    if about.link:
        lines.append(f"GPU   {about.link_text}: {_rates(about.link, about.link_payload)}")
    if about.nics:
        rates = _rates(about.nics, about.nics_payload)
        lines.append(f"NICs  {about.nics_text} of each host: {rates}")
    return lines


def _rates(rate: float, payload: float) -> str:
    return f"{bandwidth_text(rate)} GB/s, {bandwidth_text(payload)} of data"


def notes(about: DescribedHardware, more: list[str]) -> str:
    """A line for each note of the system and of the answer."""
    return "".join(f"note: {note}\n" for note in [*about.notes, *more])


def _model(judged: JudgedAlgorithm) -> str:
    """`440.05`, or `349.11 to 386.60` for a ring between NCCL's plan and the rate of the NICs."""
    planned = text_or_unknown(judged.planned, bandwidth_text)
    if judged.planned_to is None:
        return planned
    return f"{planned} to {bandwidth_text(judged.planned_to)}"


def _off(judged: JudgedAlgorithm) -> str:
    return "-" if judged.off is None else f"{100 * judged.off:+.1f}"


def _verdict(answer: Explanation, judged: JudgedAlgorithm) -> str:
    if judged.excluded:
        return f"not it: {100 * answer.busbw / judged.at_most:.0f} % of its bound"
    if judged.algorithm == answer.fits:
        return "ran" if answer.ran else "nearest"
    return "possible with SHARP" if judged.in_network else "possible"


def compared(answer: Explanation) -> str:
    """`as expected: 440.05 GB/s of 355.56 to 589.23 (same system: cw_h100)`."""
    expected = answer.forecast
    if expected is None:
        return ""
    span = f"{bandwidth_text(expected.low)} to {bandwidth_text(expected.high)}"
    basis = expected.basis
    if expected.runs:
        basis += f": {', '.join(expected.runs[:RUNS_NAMED])}"
        left_out = len(expected.runs) - RUNS_NAMED
        basis += f" and {left_out} more" if left_out > 0 else ""
    else:
        basis = "NCCL's model, fitted to published runs"
    verdict = VERDICTS[answer.verdict]
    text = f"{verdict}: {bandwidth_text(expected.busbw)} GB/s in a range of {span} ({basis})"
    return "\n".join([text, *(f"possible cause: {cause}" for cause in answer.causes)])


def text(answer: Explanation, width: int | None = None) -> str:
    """The verdict, every algorithm, and the load of every kind of link."""
    table = aligned(columns(answer), answer.judged, width, DROP_ORDER) + wrapped(MEANING, width)
    return f"{wrapped(head(answer), width)}\n{table}\n{_loads(answer, width)}"


def columns(answer: Explanation) -> list[Column]:
    """The bound and the model of each algorithm. Their values take a JudgedAlgorithm."""
    return [
        Column(title="algorithm", value=lambda judged: judged.algorithm, left=True),
        Column(title="at most", value=lambda judged: bandwidth_text(judged.at_most)),
        Column(title="model", value=_model),
        Column(title="off", unit="%", value=_off),
        Column(title="verdict", value=lambda judged: _verdict(answer, judged), left=True),
    ]


def head(answer: Explanation) -> str:
    """What was measured, the algorithms that fit it, and how it compares with what is expected."""
    where = format_size(answer.size_bytes)
    if answer.placement == "in place":
        where += " in place"
    busbw, algbw = bandwidth_text(answer.busbw), bandwidth_text(answer.algbw)
    return (
        f"{answer.source}: {title(answer.collective, answer.described)}\n"
        f"{busbw} GB/s of busbw at {where}, algbw {algbw}\n\n"
        f"{summary(answer)}\n{compared(answer)}\n"
    )


def summary(answer: Explanation) -> str:
    """`not Ring: at most 400.00; nearest to NVLSTree, whose model says 440.05`."""
    parts = [
        f"not {judged.algorithm}: at most {bandwidth_text(judged.at_most)}"
        for judged in answer.judged
        if judged.excluded
    ]
    for judged in answer.judged:
        if judged.algorithm == answer.fits and answer.ran:
            parts.append(f"NCCL ran {answer.ran}")
        elif judged.algorithm == answer.fits and judged.planned is not None:
            parts.append(f"nearest to {judged.algorithm}, whose model says {_model(judged)}")
        elif judged.algorithm in answer.about_as_near:
            parts.append(f"{judged.algorithm} with {_model(judged)} is about as near")
        elif judged.algorithm == answer.fits:
            parts.append(f"{judged.algorithm} allows it")
    if not answer.fits:
        parts.append("above the bounds of all algorithms")
    return "; ".join(parts)


def _loads(answer: Explanation, width: int | None) -> str:
    foot = wrapped(load_foot(answer), width)
    if not answer.loads:
        return foot
    table = aligned(LOAD_COLUMNS, answer.loads, width, LOAD_DROP_ORDER)
    return f"{load_title(answer)}:\n{table}{foot}"


def load_title(answer: Explanation) -> str:
    """`What Ring moves over the links at this busbw, each way`."""
    return f"What {answer.fits or answer.chosen} moves over the links at this busbw, each way"


def load_foot(answer: Explanation) -> str:
    """How the rest of each link's rate is spent, and notes."""
    return "".join(f"{_rest(load)}\n" for load in answer.loads) + notes(
        answer.described, answer.notes
    )


def _rest(load: LinkUse) -> str:
    """How the rest of a link's rate is spent."""
    headers, idle = load.rate - load.payload, load.payload - load.used
    name = load.link.partition(",")[0]
    if idle < 0:
        used = bandwidth_text(load.used)
        return f"{name}: {used} GB/s is more than what NCCL's constants leave for data"
    return (
        f"{name}: {bandwidth_text(headers)} GB/s are headers and checksums,"
        f" {bandwidth_text(idle)} are not used"
    )
