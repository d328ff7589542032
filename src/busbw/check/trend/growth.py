"""Error counts of links, how they grew between snapshots, and the report on all hosts."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import msgspec

from busbw.check.machine import Machine, understood
from busbw.check.nic.links import cabled, counts
from busbw.check.pcie.errors import aer_counts
from busbw.check.rates import BOOT_ID_FILE, TIME_CALL
from busbw.check.registry import HOSTNAME
from busbw.check.trend.outliers import find_outliers
from busbw.check.trend.types import Growth, TrendReport
from busbw.core.counters import Counter as Row
from busbw.core.counters import CounterKind, Owner
from busbw.core.errors import UsageError
from busbw.core.telemetry import increase
from busbw.core.watch_counters import watched_by_name
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
    return SnapshotCounts(
        machine.text(HOSTNAME) or file, at, machine.text(BOOT_ID_FILE) or "", error_counts(machine)
    )


def trend(files: Sequence[str]) -> TrendReport:
    """The report on all snapshots. UsageError if no host has two of different times."""
    by_host: dict[str, list[SnapshotCounts]] = defaultdict(list)
    for file in files:
        snapshot = read_counts(file)
        by_host[snapshot.host].append(snapshot)
    reasons: dict[str, str] = {}
    compared: dict[str, list[SnapshotCounts]] = {}
    for host, snapshots in by_host.items():
        if len({snapshot.at for snapshot in snapshots}) < 2:
            reasons[host] = "only one snapshot"
        else:
            compared[host] = sorted(snapshots, key=lambda snapshot: snapshot.at)
    if not compared:
        raise UsageError(
            f"no host has two snapshots of different times among {len(files)} files",
            "busbw check --save FILE, again later",
        )
    growths: list[Growth] = []
    for host, snapshots in sorted(compared.items()):
        growths += _growths_of_host(host, snapshots)
    without = compared.keys() - {growth.host for growth in growths}
    reasons |= dict.fromkeys(without, "no error counter of a link is in all its snapshots")
    kinds: dict[tuple[str, str], list[Growth]] = defaultdict(list)
    for growth in growths:
        kinds[growth.kind, growth.counter].append(growth)
    odd = [link for alike in kinds.values() for link in find_outliers(alike)]
    links = {(growth.kind, growth.host, growth.link) for growth in growths}
    return TrendReport(
        hosts=sorted(compared),
        hours=max((_hours(snapshots) for snapshots in compared.values()), default=0.0),
        links=dict(Counter(kind for kind, _, _ in links)),
        odd=sorted(odd, key=lambda link: link.chance),
        grown=sorted((growth for growth in growths if growth.by), key=lambda growth: -growth.by),
        reasons=dict(sorted(reasons.items())),
    )


def _hours(snapshots: Sequence[SnapshotCounts]) -> float:
    return (snapshots[-1].at - snapshots[0].at).total_seconds() / 3600


def _growths_of_host(host: str, snapshots: Sequence[SnapshotCounts]) -> Iterator[Growth]:
    """The growth of every counter that is in all snapshots."""
    everywhere = set.intersection(*(set(snapshot.counts) for snapshot in snapshots))
    for key in sorted(everywhere):
        steps = [
            _growth_between(key[2], before, after, key) for before, after in pairwise(snapshots)
        ]
        yield Growth(
            host=host,
            kind=key[0],
            link=key[1],
            counter=key[2],
            by=sum(by for by, _ in steps),
            hours=_hours(snapshots),
            grown=sum(by > 0 for by, _ in steps),
            periods=len(steps),
            at_least=any(more for _, more in steps),
        )


def _growth_between(
    name: str, before: SnapshotCounts, after: SnapshotCounts, key: Key
) -> tuple[int, bool]:
    """How much a counter grew, and whether it may be more.

    After a reset all of its value is new.
    """
    row = watched_by_name().get(name) or Row(name, Owner.GPU, "", CounterKind.LOSS, "")
    was, now = before.counts[key], after.counts[key]
    if before.boot != after.boot:
        return now, True
    by = increase(row, was, now)
    if by is None:
        return (now if now < was else 0), True
    return by, row.saturates and now == (1 << row.bits) - 1
