"""Reads what stands above the rows of busbw's own table: collective, machine, sweep and bound.

It is the inverse of `table.header`. What the text does not say stays unknown.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from busbw.core.dtypes import BY_NAME as DTYPES
from busbw.core.result import EngineLibrary, Ideal, RankDevice, World
from busbw.core.sizes import UNITS
from busbw.core.sweep import Sampling
from busbw.measure.formats import reading
from busbw.ui.number_formats import nccl_version_number

MAX_RANKS = 1 << 20  # more are not the ranks of a job
SIZE = rf"\d{{1,20}}(?:\.\d{{1,20}})? (?:{'|'.join(UNITS)})"
NUMBER = r"\d+(?:\.\d+)?(?:e[-+]?\d+)?"
_MACHINE = re.compile(r"(\d{1,9} x .+) on (\d{1,9}) hosts?(?:, |$)")
_DEVICES = re.compile(r"(?:^|, )(\d{1,9}) x (.+?)(?=, \d{1,9} x |$)")
_SWEEP = re.compile(
    rf"(?P<sizes>{SIZE}.*?)"
    r"(?:, (?P<dtype>\w+), (?:"
    rf"medians to (?P<precision>{NUMBER}) % with (?P<confidence>{NUMBER}) % confidence"
    rf"|(?P<fixed>\d{{1,9}}) iterations?, (?P<fixed_confidence>{NUMBER}) % intervals)"
    r"|, (?P<iters>\d{1,9}) iterations?)?; busbw = "
)
_SIZES = re.compile(
    rf"(?:(?P<min>{SIZE}) to )?(?P<max>{SIZE})"
    rf"(?:, factor (?P<factor>\d{{1,9}})|, step (?P<step>{SIZE}))?"
    rf"(?:, the smallest rounded down to {SIZE})?(?:, counts (?P<counts>.+))?$"
)
_IDEAL = re.compile(rf"ideal busbw ({NUMBER}) GB/s \((.+?)(?:, bound by (.+))?\)$")
_REDUCED = re.compile(rf"({SIZE}) does not fit in memory: the largest size is ({SIZE})$")


def size_bytes(text: str) -> int:
    """The bytes of a printed size: `1.5 GiB`; rounded as it is printed."""
    number, unit = text.split()
    return round(float(number) * UNITS[unit])


@dataclass
class Head:
    """What the lines above the rows say. `spec` has fields of SweepSpec."""

    collective: str = ""
    world: World = field(default_factory=lambda: World(devices=[], processes=0))
    hosts: int = 0
    library: EngineLibrary = field(default_factory=lambda: EngineLibrary(engine=""))
    loop: str = ""
    ideal: Ideal | None = None
    reduced_max_bytes: int | None = None
    spec: dict[str, Any] = field(default_factory=dict)


def read(lines: Sequence[str]) -> Head:
    """The head in these lines; other lines, such as messages before it, are skipped."""
    head = Head()
    for line in _joined(lines):
        title, _, facts = line.partition(", ")
        collective = reading.collective_of(title) if " " not in title else ""
        ideal, reduced = _IDEAL.match(line), _REDUCED.match(line)
        if collective:
            head = Head(collective=collective)
            _take_machine(head, facts)
        elif "; busbw = " in line:
            _take_sweep(head, line)
        elif ideal:
            head.ideal = Ideal(float(ideal[1]) * 1e9, ideal[2], ideal[3] or "", "")
        elif reduced:
            head.spec["max_bytes"] = size_bytes(reduced[1])
            head.reduced_max_bytes = size_bytes(reduced[2])
    return head


def indentation(lines: Sequence[str]) -> int:
    """By how many spaces a table below these lines was indented where it was pasted: the last line
    that names a collective is not by itself.
    """
    for line in reversed(lines):
        title = line.partition(", ")[0].strip()
        if title and " " not in title and reading.collective_of(title):
            return len(line) - len(line.lstrip())
    return 0


def without(indent: int, line: str) -> str:
    """The line without so many spaces before it."""
    return line if line[:indent].strip() else line[indent:]


def _joined(lines: Sequence[str]) -> list[str]:
    """The lines before they were wrapped: what follows a break is indented."""
    joined: list[str] = []
    for line in lines:
        if line.startswith("  ") and joined:
            joined[-1] += " " + line.strip()
        else:
            joined.append(line.strip())
    return joined


def _take_machine(head: Head, facts: str) -> None:
    """`8 x NVIDIA H200 on 1 host, nccl engine, NCCL 2.28.9, network Socket, loop native`."""
    machine = _MACHINE.match(facts)
    if machine:
        head.hosts = int(machine[2])
        head.world.devices = _devices(machine[1], head.hosts)
        facts = facts[machine.end() :]
    for fact in facts.split(", "):
        engine, nccl = (
            re.fullmatch(r"(\w+) engine", fact),
            re.fullmatch(r"NCCL (\d+\.\d+\.\d+)", fact),
        )
        if engine:
            head.library.engine = engine[1]
        elif nccl:
            head.library.nccl = nccl_version_number(nccl[1])
        elif fact.startswith("network "):
            head.library.network = fact.removeprefix("network ")
        elif fact.startswith("loop "):
            head.loop = fact.removeprefix("loop ")


def _devices(text: str, hosts: int) -> list[RankDevice]:
    """A device for each rank. Hosts have no names in the table: several are numbered, and the
    ranks divided among them in equal parts.
    """
    names: list[str] = []
    for count, name in _DEVICES.findall(text):
        if len(names) + int(count) > MAX_RANKS:
            return []
        names += [name] * int(count)
    devices = []
    for rank, name in enumerate(names):
        host = f"host {rank * hosts // len(names) + 1}" if hosts > 1 else ""
        devices.append(RankDevice(rank, 0, host, 0, "", name))
    return devices


def _take_sweep(head: Head, line: str) -> None:
    sweep = _SWEEP.match(line)
    sizes = _SIZES.match(sweep["sizes"]) if sweep else None
    if sweep is None or sizes is None:
        return
    largest = size_bytes(sizes["max"])
    spec = {"max_bytes": largest, "min_bytes": largest, "step_bytes": 0}
    if sizes["min"]:
        spec["min_bytes"] = size_bytes(sizes["min"])
    if sizes["factor"]:
        spec["step_factor"] = int(sizes["factor"])
    if sizes["step"]:
        spec["step_bytes"] = size_bytes(sizes["step"])
    head.spec |= spec
    if sizes["counts"]:
        head.spec["counts"] = sizes["counts"]
    if sweep["iters"]:
        head.spec["iters"] = int(sweep["iters"])
    dtype = DTYPES.get(sweep["dtype"] or "")
    if sweep["dtype"]:
        head.spec["datatype"] = dtype.name if dtype else sweep["dtype"]
    if sweep["precision"]:
        precision, confidence = _share(sweep["precision"]), _share(sweep["confidence"])
        head.spec["sampling"] = Sampling(precision=precision, confidence=confidence)
    elif sweep["fixed"]:
        confidence = _share(sweep["fixed_confidence"])
        head.spec["sampling"] = Sampling(
            precision=0.0, confidence=confidence, fixed=int(sweep["fixed"])
        )


def _share(percent: str) -> float:
    return float(percent) / 100
