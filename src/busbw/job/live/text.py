"""A watched job in lines: one for each interval, and the evidence when the verdict changes."""

from collections.abc import Hashable

import msgspec

from busbw.job.live.types import JobInterval
from busbw.ui.columns import wrapped
from busbw.ui.number_formats import percent_text, time_text


def line(interval: JobInterval) -> bytes:
    """One object of JSON Lines."""
    return msgspec.json.encode(interval) + b"\n"


def key(interval: JobInterval) -> Hashable:
    """What intervals have in common whose evidence is printed once."""
    return interval.verdict, interval.kind, tuple(interval.suspects)


def text(interval: JobInterval, width: int | None, *, evidence: bool) -> str:
    """The time, the steps and the verdict; with `evidence` what was seen, and what to do next."""
    steps = "no step yet"
    if interval.step_s is not None:
        steps = f"step {time_text(interval.step_s)}"
        if interval.usual_s is not None:
            steps += f", usually {time_text(interval.usual_s)}"
        if interval.waiting is not None:
            steps += f", {percent_text(interval.waiting, 1.0)} % waiting"
    clock = interval.at.partition("T")[2][:8]
    lines = [f"{clock}  {steps}  {interval.verdict.name} {interval.message}"]
    if evidence:
        lines += [f"        seen: {seen}" for seen in interval.evidence]
        if interval.next:
            lines.append(f"        next: {interval.next}")
    return wrapped("".join(f"{one}\n" for one in lines), width)
