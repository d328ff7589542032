"""Error counts of links, and how they grew between readings of a machine."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import msgspec

from busbw.check.machine import Machine, understood
from busbw.check.nic.links import cabled, counts
from busbw.check.pcie.errors import aer_counts
from busbw.check.rates import BOOT_ID_FILE, HOSTNAME, TIME_CALL, Count, risen
from busbw.check.trend.types import Growth
from busbw.core.errors import UsageError
from busbw.host.nvml_health import read_health
from busbw.host.snapshot import recorded

NVLINK, PORT, PCIE = "NVLink", "port", "PCIe device"
FILES = tuple(
    f"counters/{name}"
    for name in (
        "symbol_error",
        "link_error_recovery",
        "link_downed",
        "port_rcv_errors",
        "local_link_integrity_errors",
        "excessive_buffer_overrun_errors",
    )
)
STATISTICS = "rx_crc_errors_phy|rx_symbol_err_phy|rx_pcs_symbol_err_phy|link_down_events_phy"
Key = tuple[str, str, str]  # kind, link, counter


class SnapshotCounts(msgspec.Struct, frozen=True):
    """The error counts of one snapshot."""

    file: str
    host: str
    at: datetime
    boot: str
    counts: dict[Key, int]


def error_counts(machine: Machine) -> dict[Key, int]:
    """Error counts of all NVLinks, ports and PCIe devices; those that cannot be read are absent."""
    errors: dict[Key, int] = {}
    for read in (_nvlinks, _ports, _slots):
        errors.update(understood(read, machine))
    return errors


def _nvlinks(machine: Machine) -> Iterator[tuple[Key, int]]:
    for gpu in read_health(machine).gpus:
        for link in gpu.active:
            yield from (
                ((NVLINK, f"{gpu.label} link {link.number}", name), count)
                for name, count in link.errors.items()
            )
        if gpu.pcie_replays is not None:
            yield (PCIE, gpu.label, "replays"), gpu.pcie_replays


def _ports(machine: Machine) -> Iterator[tuple[Key, int]]:
    for port in cabled(machine):
        counters = counts(machine, port, FILES, STATISTICS)
        for count in counters if isinstance(counters, list) else ():
            yield (PORT, f"{port.name} {count.netdev}".rstrip(), count.name), count.value


def _slots(machine: Machine) -> Iterator[tuple[Key, int]]:
    for kind in ("correctable", "nonfatal", "fatal"):
        for device in aer_counts(machine, kind).read:
            yield (PCIE, device.bdf, f"AER {kind}"), device.total


def read_counts(file: str) -> SnapshotCounts:
    """The counts of a snapshot; UsageError if it has no time."""
    machine = Machine(recorded(Path(file)))
    try:
        at = datetime.fromisoformat(machine.call(TIME_CALL, str).text or "")
    except ValueError as error:
        raise UsageError(
            f"{file}: the snapshot has no time", "busbw check --save FILE writes one with the time"
        ) from error
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    host, boot = machine.text(HOSTNAME) or file, machine.text(BOOT_ID_FILE) or ""
    return SnapshotCounts(file, host, at, boot, error_counts(machine))


def hours_between(snapshots: Sequence[SnapshotCounts]) -> float:
    """From the first to the last."""
    return (snapshots[-1].at - snapshots[0].at).total_seconds() / 3600


def growths(host: str, snapshots: Sequence[SnapshotCounts]) -> Iterator[Growth]:
    """The growth of every counter that is in all snapshots of a host."""
    everywhere = set.intersection(*(set(snapshot.counts) for snapshot in snapshots))
    for key in sorted(everywhere):
        steps = [
            _growth(key[2], before.counts[key], after.counts[key], booted=before.boot != after.boot)
            for before, after in pairwise(snapshots)
        ]
        yield Growth(
            host=host,
            kind=key[0],
            link=key[1],
            counter=key[2],
            by=sum(by for by, _ in steps),
            hours=hours_between(snapshots),
            grown=sum(by > 0 for by, _ in steps),
            periods=len(steps),
            at_least=any(more for _, more in steps),
        )


def growths_since(earlier: Machine, now: Machine, hours: float) -> Iterator[Growth]:
    """The growth of every counter of two readings of a machine since its last boot."""
    before, after = error_counts(earlier), error_counts(now)
    host = now.text(HOSTNAME) or ""
    for key in sorted(before.keys() & after.keys()):
        by, more = _growth(key[2], before[key], after[key], booted=False)
        yield Growth(
            host=host,
            kind=key[0],
            link=key[1],
            counter=key[2],
            by=by,
            hours=hours,
            grown=int(by > 0),
            at_least=more,
        )


def link_name(growth: Growth) -> str:
    """The link without the interface that has the counter."""
    return growth.link.split()[0] if growth.kind == PORT else growth.link


def _growth(name: str, was: int, now: int, *, booted: bool) -> tuple[int, bool]:
    """How much a counter grew, and whether it may be more: after a reset all of its value is new,
    and a saturated one misses what comes later.
    """
    if booted:
        return now, True
    by = risen(name, was, now)
    if by is None:
        return 0, True
    was_reset = now < was and by == now
    return by, was_reset or Count(name, now, "").saturated
