"""NVLink errors: links that had to recover, and links with far more errors than others."""

from collections.abc import Iterator
from statistics import median

from busbw.check.base import Check, passed, unknown, warned
from busbw.check.machine import Machine
from busbw.check.nvlink.linked import linked
from busbw.core.checking import CheckRow, Evidence, Found, Layer
from busbw.core.shell_words import filled
from busbw.core.sizes import counted
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
NAMED = 3  # errors in a message
FEW = 10  # fewer errors mean nothing; also the multiple of the median above which a link is an outlier

ROW = CheckRow(
    id="BW032",
    name="nvlink-errors",
    layer=Layer.NVLINK,
    title="errors of NVLinks since the driver was loaded",
    right=f"no recoveries, and no link with {FEW} or more errors and over {FEW} times the median of all links",
    why="A link fixes errors by retransmitting, which at first only costs time. Recoveries announce a failure: one link had 505 of them "
    "five days before it failed.",
    fix="busbw watch shows whether they grow; if so, drain the host and reset GPU {gpu}; if they come back, reseat or replace it",
    stays="a reset clears the counts; a damaged link accumulates them again",
    reads=("nvmlDeviceGetNvLinkErrorCounter", "NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS", "NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS"),
    sources=("nvml.h, nvmlNvLinkErrorCounter_t", "DCGM field identifiers, NVLink counters"),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each GPU, its links compared with all links of the machine."""
    links = [link for gpu in read_health(machine).gpus for link in gpu.active]
    names = {name for link in links for name in link.errors}
    usual = {name: median(link.errors.get(name, 0) for link in links) for name in names}
    return linked(machine, lambda gpu: _judge(gpu, usual))


def _judge(gpu: GpuHealth, usual: dict[str, float]) -> Found:
    silent = [link for link in gpu.active if not link.errors]
    bad = [
        (link.number, name, count)
        for link in gpu.active
        for name, count in link.errors.items()
        if (count and name in RECOVERIES) or (count >= FEW and count > FEW * usual[name])
    ]
    if silent and not bad:
        return unknown(gpu.label, f"the GPU or driver has no error counters for {counted(len(silent), 'active link')}")
    if not bad:
        total = sum(sum(link.errors.values()) for link in gpu.active)
        return passed(gpu.label, f"no recovery and no outlier; {total} errors on {len(gpu.active)} links since the driver was loaded")
    evidence = [
        Evidence(f"NVLink counter {name}, {gpu.label}, link {number}", str(count), "0" if name in RECOVERIES else f"about {usual[name]:g}")
        for number, name, count in bad
    ]
    named = ", ".join(f"link {number} has {count} {WORDS[name]}" for number, name, count in bad[:NAMED])
    more = f" and {len(bad) - NAMED} more" if len(bad) > NAMED else ""
    return warned(gpu.label, f"{named}{more} since the driver was loaded", *evidence, fix=filled(ROW.fix, gpu=gpu.index))


CHECK = Check(ROW, look)
