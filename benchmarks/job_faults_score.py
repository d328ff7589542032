"""What `job_faults.py` counts."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from job_faults_kinds import KINDS, Fault

COLUMNS = ("runs", "named", "in time", "kind", "wrong", "median", "most")
FAULTS, CLEAN = "faults.jsonl", "clean.jsonl"
PASS, UNKNOWN, BAD = "pass", "unknown", ("warn", "fail")


@dataclass
class Verdicts:
    """The intervals that the watch printed, with the moments when they were read."""

    intervals: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    last: str = ""
    _warned: str = ""

    def take(self, at_s: float, interval: dict[str, Any]) -> None:
        """One more."""
        self.intervals.append((at_s, interval))
        self.last = interval["verdict"]

    def forget(self) -> None:
        """Begin anew."""
        self.intervals.clear()

    def clean(self, seconds: float) -> dict[str, Any]:
        """The alarms of the last seconds: each first interval of a verdict; they are forgotten."""
        alarms, named = [], 0
        for _, interval in self.intervals:
            warned = interval["message"] if interval["verdict"] in BAD else ""
            kind = interval.get("kind", "") if warned else ""
            if warned and kind != self._warned:
                alarms.append(f"{kind}: {warned}")
                named += bool(interval.get("suspects"))
            self._warned = kind
        unknown = sum(interval["verdict"] == UNKNOWN for _, interval in self.intervals)
        looks = len(self.intervals)
        self.forget()
        return {
            "seconds": seconds,
            "looks": looks,
            "unknown": unknown,
            "alarms": alarms,
            "named": named,
        }


@dataclass
class Outcome:
    """What came of a fault."""

    number: int
    name: str
    rank: int
    right_s: float | None = None  # until the rank or link was named
    kind: str = ""  # that was said then, or soon after
    cause: str = ""
    kind_right: bool = False
    wrong: list[str] = field(default_factory=list)  # names of others
    message: str = ""
    step_ms: float = 0.0
    seed: int = 0  # that drew it, with its number

    def __str__(self) -> str:
        when = "not named" if self.right_s is None else f"{self.right_s:5.1f} s"
        kind = f"{self.kind} {self.cause}{'' if self.kind_right else ' (wrong kind)'}"
        wrong = f"; WRONG: {self.wrong}" if self.wrong else ""
        return f"{self.number:4} {self.name:24} rank {self.rank}  {when} {kind}{wrong}"

    @classmethod
    def read(cls, folder: Path) -> list["Outcome"]:
        """Those that a folder and the folders in it have."""
        return [cls(**line) for file in sorted(folder.rglob(FAULTS)) for line in _lines(file)]


def score(
    fault: Fault, verdicts: Verdicts, began_s: float, hosts: Sequence[tuple[str, ...]]
) -> Outcome:
    """What the watch said of a fault so far; `hosts` are the names of each rank's host."""
    outcome = Outcome(fault.number, fault.kind.name, fault.rank)
    for at_s, interval in verdicts.intervals:
        if at_s < began_s or interval["verdict"] == PASS:
            continue
        kind, suspects = interval.get("kind", ""), set(interval.get("suspects", ()))
        text = f"{interval['message']} {interval.get('why', '')}"
        right = _is_right(fault, kind, suspects, hosts, text)
        if suspects and not right:
            outcome.wrong.append(interval["message"])
        if right and outcome.right_s is None:
            outcome.right_s = round(at_s - began_s, 2)
        if right and not outcome.kind_right:
            outcome.kind, outcome.message = kind, interval["message"]
            outcome.cause = interval.get("cause", "")
            is_cause = not fault.kind.causes or outcome.cause in fault.kind.causes
            outcome.kind_right = kind in fault.kind.kinds and is_cause
    outcome.wrong = sorted(set(outcome.wrong))
    return outcome


def _is_right(
    fault: Fault, kind: str, suspects: set[int], hosts: Sequence[tuple[str, ...]], text: str
) -> bool:
    """Whether a verdict names the rank that was hit, or its host or any of its ranks, or none."""
    if fault.kind.suspect == "none":
        return not suspects and kind in fault.kind.kinds
    if fault.kind.suspect == "rank":
        return suspects == {fault.rank}
    of_host = {rank for rank, host in enumerate(hosts) if host == hosts[fault.rank]}
    is_named = any(f" {name} " in f" {text} " for name in hosts[fault.rank])
    return suspects <= of_host and (bool(suspects) or (kind in fault.kind.kinds and is_named))


def append(file: Path, line: Outcome | dict[str, Any]) -> None:
    """Add a line of JSON."""
    content = line if isinstance(line, dict) else asdict(line)
    with file.open("a", encoding="utf-8") as out:
        out.write(json.dumps(content) + "\n")


def _lines(file: Path) -> list[dict[str, Any]]:
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def table(folder: Path) -> str:
    """Counts by kind, and of clean hours."""
    outcomes = Outcome.read(folder)
    names = "".join(f"{name:>8}" for name in COLUMNS)
    head = f"{'fault':24}{names} s"
    lines = [head] if outcomes else []
    for name in [*(kind.name for kind in KINDS), "all"]:
        chosen = [one for one in outcomes if name in (one.name, "all")]
        if chosen:
            lines.append(_row(name, chosen))
    clean = [line for file in sorted(folder.rglob(CLEAN)) for line in _lines(file)]
    if clean:
        hours = sum(one["seconds"] for one in clean) / 3600
        alarms = [alarm for one in clean for alarm in one["alarms"]]
        named = sum(one["named"] for one in clean)
        unknown = sum(one["unknown"] for one in clean) / sum(one["looks"] for one in clean)
        lines.append(
            f"clean: {hours:.2f} h, {len(alarms)} alarms, {named} of them with a rank;"
            f" {100 * unknown:.1f} % of the looks were unknown"
        )
        lines += [f"  {alarm}" for alarm in alarms]
    return "\n".join(lines)


def _row(name: str, outcomes: list[Outcome]) -> str:
    seconds = [one.right_s for one in outcomes if one.right_s is not None]
    kinds = sum(one.kind_right for one in outcomes)
    wrong = sum(bool(one.wrong) for one in outcomes)
    limits_s = {kind.name: kind.in_time_s for kind in KINDS}
    in_time = sum(one.right_s is not None and one.right_s <= limits_s[one.name] for one in outcomes)
    counts = "".join(f"{count:8}" for count in (len(outcomes), len(seconds), in_time, kinds, wrong))
    times = f"{median(seconds):8.1f}{max(seconds):8.1f}" if seconds else f"{'-':>8}{'-':>8}"
    return f"{name:24}{counts}{times}"
