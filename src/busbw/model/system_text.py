"""The system of an answer in words, and answers as JSON."""

import msgspec

from busbw.core import json_codec
from busbw.core.collectives import BY_NAME
from busbw.core.sizes import counted
from busbw.model.types import Described
from busbw.ui.number_formats import bandwidth_text


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
