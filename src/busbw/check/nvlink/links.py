"""NVLinks that are down, run too slowly, or have errors."""

from collections.abc import Iterator
from statistics import median

from busbw.check.base import check, failed, not_offered, passed, skipped, unknown, warned
from busbw.check.gpu.per_gpu import no_gpus, unreadable
from busbw.check.machine import Machine
from busbw.check.nvlink.fabric import bridged, each_linked_gpu, expected_links, nominal_rate
from busbw.check.rates import SINCE_DRIVER_LOADED, interval_s
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer
from busbw.core.sizes import counted, span
from busbw.host.gpu_health import GpuHealth
from busbw.host.nvml_health import read_health

LINKS = CheckRow(
    id="BW030",
    name="nvlink-links",
    layer=Layer.NVLINK,
    title="active NVLinks of each GPU",
    right=(
        "all links of the model: V100 6, A100 12, H100, H200, H20, B200 and GB200 18, A800 and H800"
        " 8; bridged cards are not judged"
    ),
    why=(
        "A GPU with a link down sends more slowly, and all others wait for it in a collective. "
        "With all links down NCCL uses PCIe or the network."
    ),
    fix=(
        "dmesg | grep -E 'Xid|SXid'; journalctl -u nvidia-fabricmanager; drain the host and "
        "reset GPU {gpu}; if the link stays down, reseat or replace the GPU"
    ),
    stays="a reset helps if the fault was transient",
    reads=("nvmlDeviceGetNvLinkState",),
    sources=(
        "data sheets of the GPUs: the table in busbw's model of hardware",
        "NVIDIA Health Validation, checks",
        "Azure node health checks, check_nvlink_status",
    ),
)
RECOVERIES = ("recovery", "recovery_failed")
ERROR_WORDS = {
    "recovery": "recoveries",
    "recovery_failed": "failed recoveries",
    "replay": "replays",
    "crc_flit": "CRC errors of flits",
    "crc_data": "CRC errors of data",
    "ecc_data": "ECC errors of data",
    "effective": "errors after correction",
}
MAX_NAMED_ERRORS = 3  # errors in a message
# Fewer errors mean nothing. It is also the multiple of the median above which a link is an outlier.
MIN_OUTLIER = 10


@check(LINKS)
def check_links(machine: Machine) -> Iterator[Finding]:
    gpus = read_health(machine)
    missing = no_gpus(machine, gpus)
    if missing:
        yield missing
    for gpu in gpus.gpus:
        if gpu.error or gpu.links is None:
            yield unreadable(gpu, "links", "its links")
        else:
            yield _judge_links(gpu, single=len(gpus.gpus) == 1, virtual=bool(machine.hypervisor))


def _judge_links(gpu: GpuHealth, *, single: bool, virtual: bool) -> Finding:
    row = expected_links(gpu)
    active = len(gpu.active)
    down = ", ".join(str(link.number) for link in gpu.links or () if not link.active)
    if not active and (row is None or single):
        why = "no NVLink"
        if row is not None:
            why = "no active NVLink, which is normal for a single GPU of a board"
        return skipped(f"{gpu.name}: {why}", gpu.label)
    state = f"{active} active" + (f", inactive: {down}" if down else "")
    evidence = Evidence(
        f"nvmlDeviceGetNvLinkState, {gpu.label}",
        state,
        f"{row.links} active: {row.source}" if row else "",
    )
    if active >= row.links if row else not down:
        return passed(gpu.label, f"all {counted(active, 'NVLink')} are active", evidence)
    if row is None and bridged(gpu):
        return skipped(
            f"{gpu.name}: {counted(active, 'NVLink')} active; the number depends on its bridges",
            gpu.label,
        )
    if row is None:
        message = (
            f"{counted(active, 'NVLink')} active; busbw does not know how many a {gpu.name} should"
            " have"
        )
        return unknown(gpu.label, message, evidence)
    if virtual and not gpu.switched:
        message = (
            f"{active} of {row.links} NVLinks are active; others may lead to GPUs outside this"
            " virtual machine"
        )
        return not_offered(gpu.label, message, evidence)
    if gpu.mig:
        return skipped(
            f"{active} of {row.links} NVLinks are active: MIG is on, which switches them off on"
            " A100",
            gpu.label,
        )
    fix = filled(LINKS.fix, gpu=gpu.index)
    if not active:
        return failed(gpu.label, f"none of its {row.links} NVLinks is active", evidence, fix=fix)
    return failed(gpu.label, f"{active} of {row.links} NVLinks are active", evidence, fix=fix)


SPEED = CheckRow(
    id="BW031",
    name="nvlink-speed",
    layer=Layer.NVLINK,
    title="speed of the active NVLinks",
    right=(
        "the rate of the model: 25 GB/s in one direction on A100 and Hopper, 50 GB/s on Blackwell;"
        " the same on all links"
    ),
    why=(
        "Rings and trees load all links equally, so a collective runs at the speed of the slowest"
        " one."
    ),
    fix=(
        "nvidia-smi nvlink -s -i {gpu}; drain the host and reset GPU {gpu}; if the link stays slow,"
        " replace the GPU"
    ),
    stays="a reset helps if the fault was transient",
    reads=(
        "NVML_FI_DEV_NVLINK_GET_SPEED",
        "NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON",
        "nvmlDeviceGetNvLinkVersion",
    ),
    sources=(
        "data sheets of the GPUs: the table in busbw's model of hardware",
        "NVIDIA Health Validation, checks",
    ),
)


@check(SPEED)
def check_speed(machine: Machine) -> Iterator[Finding]:
    """A finding for each GPU, on its slowest link."""
    return each_linked_gpu(machine, _judge_speed)


def _judge_speed(gpu: GpuHealth) -> Finding:
    rates = {link.number: nominal_rate(gpu, link) for link in gpu.active}
    known = {number: speed for number, speed in rates.items() if speed}
    if len(known) < len(rates):
        return not_offered(
            gpu.label,
            f"NVML does not report the speed of {counted(len(rates) - len(known), 'active link')}",
        )
    row = expected_links(gpu)
    right = row.link_rate if row else max(known.values())
    slow = {number: speed for number, speed in known.items() if speed < right}
    where = f"NVML_FI_DEV_NVLINK_GET_SPEED, {gpu.label}"
    if not slow:
        text = f"{counted(len(known), 'link')} at {right / 1e9:g} GB/s"
        return passed(gpu.label, text, Evidence(where, text))
    speeds = ", ".join(f"link {number}: {speed / 1e9:g} GB/s" for number, speed in slow.items())
    message = f"{counted(len(slow), 'link')} slower than {right / 1e9:g} GB/s: {speeds}"
    return warned(
        gpu.label,
        message,
        Evidence(where, speeds, f"{right / 1e9:g} GB/s"),
        fix=filled(SPEED.fix, gpu=gpu.index),
    )


Errors = dict[tuple[int, int], dict[str, int]]  # by GPU and link

ERRORS = CheckRow(
    id="BW032",
    name="nvlink-errors",
    layer=Layer.NVLINK,
    title="errors of NVLinks",
    right=(
        f"no recoveries, and no link with {MIN_OUTLIER} or more errors and over {MIN_OUTLIER} times"
        " the median of all links, between two readings "
        "(--watch-for, --since) or since the driver was loaded; no link unlike the others between"
        " two readings"
    ),
    why=(
        "A link fixes errors by retransmitting, which at first only costs time. Recoveries "
        "announce a failure: one link had 505 of them five days before it failed."
    ),
    fix=(
        "busbw check --only nvlink-errors --watch-for 60 shows whether they grow; if so, drain "
        "the host and reset GPU {gpu}; if they come back, reseat or replace it"
    ),
    stays="a reset clears the counts; a damaged link accumulates them again",
    reads=(
        "nvmlDeviceGetNvLinkErrorCounter",
        "NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS",
        "NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS",
    ),
    sources=("nvml.h, nvmlNvLinkErrorCounter_t", "DCGM field identifiers, NVLink counters"),
)


@check(ERRORS)
def check_errors(machine: Machine) -> Iterator[Finding]:
    """Each GPU, its links compared with all links of the machine.

    The errors are those since the earlier reading, or with one reading all of them.
    """
    seconds = interval_s(machine)
    before = _errors_by_link(machine.earlier) if seconds and machine.earlier else {}
    errors = _errors_by_link(machine)
    rises = {place: _rises(was, errors[place]) for place, was in before.items() if place in errors}
    over = rises if rises and len(rises) == len(errors) else errors
    since = f"in {span(seconds)}" if seconds and over is rises else SINCE_DRIVER_LOADED
    names = {name for counts in over.values() for name in counts}
    usual = {}
    for name in names:
        usual[name] = median(counts.get(name, 0) for counts in over.values())
    return each_linked_gpu(machine, lambda gpu: _judge_errors(gpu, over, usual, since))


def _errors_by_link(machine: Machine) -> Errors:
    gpus = read_health(machine).gpus
    return {(gpu.index, link.number): link.errors for gpu in gpus for link in gpu.active}


def _rises(before: dict[str, int], now: dict[str, int]) -> dict[str, int]:
    """How much each counter rose. After a reset of the GPU all its errors are new."""
    return {
        name: count - before[name] if count >= before[name] else count
        for name, count in now.items()
        if name in before
    }


def _judge_errors(gpu: GpuHealth, over: Errors, usual: dict[str, float], since: str) -> Finding:
    by_link = {link.number: over[gpu.index, link.number] for link in gpu.active}
    without_counters = [number for number, errors in by_link.items() if not errors]
    faults = []
    for number, errors in by_link.items():
        for name, count in errors.items():
            outlier = count >= MIN_OUTLIER and count > MIN_OUTLIER * usual[name]
            if outlier or (count and name in RECOVERIES):
                faults.append((number, name, count))
    if without_counters and not faults:
        links = counted(len(without_counters), "active link")
        return not_offered(gpu.label, f"the GPU or driver has no error counters for {links}")
    total = sum(sum(errors.values()) for errors in by_link.values())
    if not faults:
        errors_text = f"{total} errors on {len(gpu.active)} links {since}"
        return passed(gpu.label, f"no recovery and no outlier; {errors_text}")
    evidence = []
    for number, name, count in faults:
        expected = "0" if name in RECOVERIES else f"about {usual[name]:g}"
        where = f"NVLink counter {name}, {gpu.label}, link {number}"
        evidence.append(Evidence(where, str(count), expected))
    named = ", ".join(
        f"link {number} has {count} {ERROR_WORDS[name]}"
        for number, name, count in faults[:MAX_NAMED_ERRORS]
    )
    more = f" and {len(faults) - MAX_NAMED_ERRORS} more" if len(faults) > MAX_NAMED_ERRORS else ""
    return warned(
        gpu.label,
        f"{named}{more} {since}",
        *evidence,
        fix=filled(ERRORS.fix, gpu=gpu.index),
        weight=total,
    )
