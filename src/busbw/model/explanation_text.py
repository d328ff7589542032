"""Why a busbw is what it is, for people.

The system of an answer in words, and answers as JSON.
"""

import msgspec

from busbw.core import json_codec
from busbw.core.collectives import BY_NAME
from busbw.core.sizes import counted, format_size
from busbw.model.types import Described, Explanation, Judged, Load
from busbw.ui.number_formats import Column, aligned, bandwidth_text, known, wrapped


def ranks_text(about: Described) -> str:
    """`2 hosts x 8 H100`."""
    return f"{counted(about.hosts, 'host')} x {about.per_host} {about.gpu}"


def title(collective: str, about: Described) -> str:
    """`AllReduce on 2 hosts x 8 H100 (h100x8)`."""
    name = f" ({about.system})" if about.system else ""
    return f"{BY_NAME[collective].title} on {ranks_text(about)}{name}"


def links(about: Described) -> list[str]:
    """A line for each kind of link that the ranks use: what it is, its rate, and what it carries
    of data.
    """
    lines = []
    if about.link:
        lines.append(f"GPU   {about.link_text}: {_rates(about.link, about.link_payload)}")
    if about.nics:
        lines.append(
            f"NICs  {about.nics_text} of each host: {_rates(about.nics, about.nics_payload)}"
        )
    return lines


def _rates(rate: float, payload: float) -> str:
    return f"{bandwidth_text(rate)} GB/s, {bandwidth_text(payload)} of data"


def notes(about: Described, said: list[str]) -> str:
    """A line for each note of the system and of the answer."""
    return "".join(f"note: {note}\n" for note in [*about.notes, *said])


def json(answer: msgspec.Struct) -> str:
    """The whole answer, indented, with a newline at its end."""
    return msgspec.json.format(json_codec.encode(answer), indent=2).decode() + "\n"


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
    head = f"{answer.source}: {title(answer.collective, answer.described)}\n"
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
    foot += notes(answer.described, answer.notes)
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
