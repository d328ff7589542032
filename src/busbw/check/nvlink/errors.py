"""NVLink errors: links that had to recover, and links with far more errors than others."""

from collections.abc import Iterator
from statistics import median

from busbw.check.base import Check, not_offered, passed, warned
from busbw.check.machine import Machine
from busbw.check.nvlink.linked import linked
from busbw.check.rates import LOADED, interval_s
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.sizes import counted
from busbw.core.units import span
from busbw.host.gpu_health import GpuHealth
from busbw.host.nvml_health import read_health

RECOVERIES = ("recovery", "recovery_failed")
WORDS = {
    "recovery": "recoveries",
    "recovery_failed": "failed recoveries",
    "replay": "replays",
    "crc_flit": "CRC errors of flits",
    "crc_data": "CRC errors of data",
    "ecc_data": "ECC errors of data",
    "effective": "errors after correction",
}
Errors = dict[tuple[int, int], dict[str, int]]  # by GPU and link
NAMED = 3  # errors in a message
FEW = 10  # fewer errors mean nothing; also the multiple of the median above which a link is an outlier

ROW = CheckRow(
    id="BW032",
    name="nvlink-errors",
    layer=Layer.NVLINK,
    title="errors of NVLinks",
    right=f"no recoveries, and no link with {FEW} or more errors and over {FEW} times the median of all links, between two readings "
    "(--watch-for, --since) or since the driver was loaded",
    why="A link fixes errors by retransmitting, which at first only costs time. Recoveries announce a failure: one link had 505 of them "
    "five days before it failed.",
    fix="busbw check --only nvlink-errors --watch-for 60 shows whether they grow; if so, drain the host and reset GPU {gpu}; if they "
    "come back, reseat or replace it",
    stays="a reset clears the counts; a damaged link accumulates them again",
    reads=("nvmlDeviceGetNvLinkErrorCounter", "NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS", "NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS"),
    sources=("nvml.h, nvmlNvLinkErrorCounter_t", "DCGM field identifiers, NVLink counters"),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each GPU, its links compared with all links of the machine: how their counts rose, or with one reading all of them."""
    seconds = interval_s(machine)
    before = _before(machine) if seconds else {}
    errors = {(gpu.index, link.number): link.errors for gpu in read_health(machine).gpus for link in gpu.active}
    rises = {place: _rises(was, errors[place]) for place, was in before.items() if place in errors}
    over = rises if rises and len(rises) == len(errors) else errors
    since = f"in {span(seconds)}" if seconds and over is rises else LOADED
    names = {name for counts in over.values() for name in counts}
    usual = {name: median(counts.get(name, 0) for counts in over.values()) for name in names}
    return linked(machine, lambda gpu: _judge(gpu, over, usual, since))


def _before(machine: Machine) -> Errors:
    gpus = read_health(machine.earlier).gpus if machine.earlier else ()
    return {(gpu.index, link.number): link.errors for gpu in gpus for link in gpu.active}


def _rises(before: dict[str, int], now: dict[str, int]) -> dict[str, int]:
    """After a reset of the GPU all its errors are new."""
    return {name: count - before[name] if count >= before[name] else count for name, count in now.items() if name in before}


def _judge(gpu: GpuHealth, over: Errors, usual: dict[str, float], since: str) -> Found:
    own = {link.number: over[gpu.index, link.number] for link in gpu.active}
    silent = [number for number, errors in own.items() if not errors]
    bad = [
        (number, name, count)
        for number, errors in own.items()
        for name, count in errors.items()
        if (count and name in RECOVERIES) or (count >= FEW and count > FEW * usual[name])
    ]
    if silent and not bad:
        return not_offered(gpu.label, f"the GPU or driver has no error counters for {counted(len(silent), 'active link')}")
    every = sum(sum(errors.values()) for errors in own.values())
    if not bad:
        return passed(gpu.label, f"no recovery and no outlier; {every} errors on {len(gpu.active)} links {since}")
    evidence = [
        Evidence(f"NVLink counter {name}, {gpu.label}, link {number}", str(count), "0" if name in RECOVERIES else f"about {usual[name]:g}")
        for number, name, count in bad
    ]
    named = ", ".join(f"link {number} has {count} {WORDS[name]}" for number, name, count in bad[:NAMED])
    more = f" and {len(bad) - NAMED} more" if len(bad) > NAMED else ""
    return warned(gpu.label, f"{named}{more} {since}", *evidence, fix=filled(ROW.fix, gpu=gpu.index), weight=every)


CHECK = Check(ROW, look)
