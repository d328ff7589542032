"""Why a busbw is what it is, for people."""

from busbw.core.sizes import format_size
from busbw.model import system_text
from busbw.model.types import Explanation, Judged, Load
from busbw.ui.columns import Column, aligned, wrapped
from busbw.ui.number_formats import bandwidth_text, known

DROP_ORDER = ("model",)
LOAD_DROP_ORDER = ("data",)


def _off(judged: Judged) -> str:
    return "-" if judged.off is None else f"{100 * judged.off:+.1f}"


def _verdict(answer: Explanation, judged: Judged) -> str:
    if judged.excluded:
        return f"not it: {100 * answer.busbw / judged.at_most:.0f} % of its bound"
    if judged.algorithm == answer.fits:
        return "fits"
    return "possible" if judged.planned is None else "too far from its model"


def text(answer: Explanation, width: int | None = None) -> str:
    """The verdict, every algorithm, and the load of every kind of link."""
    columns = [
        Column(title="algorithm", value=lambda judged: judged.algorithm, left=True),
        Column(title="at most", value=lambda judged: bandwidth_text(judged.at_most)),
        Column(title="model", value=lambda judged: known(judged.planned, bandwidth_text)),
        Column(title="off", unit="%", value=_off),
        Column(title="verdict", value=lambda judged: _verdict(answer, judged), left=True),
    ]
    where = (
        f"{format_size(answer.size_bytes)}{' in place' if answer.placement == 'in place' else ''}"
    )
    head = f"{answer.source}: {system_text.title(answer.collective, answer.described)}\n"
    head += (
        f"{bandwidth_text(answer.busbw)} GB/s of busbw at {where}, algbw"
        f" {bandwidth_text(answer.algbw)}\n\n"
        f"{summary(answer)}\n"
    )
    meaning = (
        "GB/s; at most = bound at the rates of the links; off = measured, relative to NCCL's"
        " model\n"
    )
    table = aligned(columns, answer.judged, width, DROP_ORDER)
    return f"{wrapped(head, width)}\n{table}{wrapped(meaning, width)}\n{_loads(answer, width)}"


def summary(answer: Explanation) -> str:
    """`not Ring: at most 400.00; not Tree: at most 421.88; fits NVLSTree: its model says
    461.17`.
    """
    said = [
        f"not {one.algorithm}: at most {bandwidth_text(one.at_most)}"
        for one in answer.judged
        if one.excluded
    ]
    fitting = next((one for one in answer.judged if one.algorithm == answer.fits), None)
    if fitting is not None and fitting.planned is not None:
        said.append(f"fits {fitting.algorithm}: its model says {bandwidth_text(fitting.planned)}")
    return "; ".join(said or ["no algorithm is excluded"]) + (
        "" if answer.fits else "; fits no algorithm's model"
    )


def _loads(answer: Explanation, width: int | None) -> str:
    columns = [
        Column(title="link", value=lambda load: load.link, left=True),
        Column(title="rate", unit="GB/s", value=lambda load: bandwidth_text(load.rate)),
        Column(title="data", unit="GB/s", value=lambda load: bandwidth_text(load.payload)),
        Column(title="used", unit="GB/s", value=lambda load: bandwidth_text(load.used)),
        Column(title="used", unit="%", value=lambda load: f"{100 * load.used / load.rate:.0f}"),
    ]
    text = (
        f"What {answer.fits or answer.chosen} moves over the links at this busbw, each way:\n"
        if answer.loads
        else ""
    )
    text += aligned(columns, answer.loads, width, LOAD_DROP_ORDER) if answer.loads else ""
    foot = "".join(f"{_rest(load)}\n" for load in answer.loads)
    foot += system_text.notes(answer.described, answer.notes)
    return text + wrapped(foot, width)


def _rest(load: Load) -> str:
    """Where the rest of a link's rate is."""
    headers, idle = load.rate - load.payload, load.payload - load.used
    name = load.link.partition(",")[0]
    if idle < 0:
        return (
            f"{name}: {bandwidth_text(load.used)} GB/s is more than what NCCL's constants leave for"
            " data"
        )
    return (
        f"{name}: {bandwidth_text(headers)} GB/s are headers and checksums, {bandwidth_text(idle)}"
        " are not used"
    )
