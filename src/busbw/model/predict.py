"""Predicts the time of every size on every number of hosts, with how far it may be off."""

from collections.abc import Sequence
from dataclasses import replace

from busbw.core.collectives import Collective
from busbw.core.errors import UsageError
from busbw.core.sizes import counted, format_size
from busbw.model.algorithm_bounds import algorithm_bounds
from busbw.model.bounds import P2P, bounds
from busbw.model.estimate import EstimateInputs, channels_of_send
from busbw.model.fabric import gb
from busbw.model.forecast import MeasuredCurves, crossing, forecast, published
from busbw.model.nccl.choice import ALL_ALLOWED
from busbw.model.nccl.constants import Release
from busbw.model.nccl.nvls_types import reduces
from busbw.model.nccl.p2p import CHANNEL_RATE, PAIRS
from busbw.model.own_nics import OwnNics
from busbw.model.reference.bands import CHECKED_RANKS
from busbw.model.reference.expected import ExpectedBasis
from busbw.model.spine_notes import spine_notes
from busbw.model.systems import System
from busbw.model.types import Crossing, DescribedHardware, Forecast, Prediction
from busbw.ui.number_formats import time_text

OWN_NVLS = (
    "before 2.28, NCCL expects more of NVLSTree than it reaches: 4 to 11 % on 2 x 8 H100 and H20"
    " from 1 GiB on"
)


def describe(
    system: System, hosts: int, per_host: int, release: Release, source: str
) -> DescribedHardware:
    """The system in an answer."""
    wire = system.fabric(hosts, per_host)
    data = system.fabric(hosts, per_host, payload=True)
    nics = ""
    if wire.nics and wire.rail:
        nics = f"{system.nics_of(per_host)} x {gb(wire.rail)} GB/s"
    return DescribedHardware(
        source,
        system.name,
        system.gpu,
        hosts,
        per_host,
        wire.gpu or 0.0,
        data.gpu or 0.0,
        wire.gpu_link,
        wire.nics,
        data.nics,
        nics,
        release.name,
        [*system.notes_on(hosts), *([release.note] if release.note else [])],
    )


def without_rails(system: System, lost: int) -> System:
    """The system with `lost` NICs less on every host; UsageError if none is left."""
    if lost and lost >= system.nics:
        raise UsageError(
            f"--rails-lost {lost}: a host has {system.nics} NICs", "lose fewer than it has"
        )
    return replace(system, nics=system.nics - lost)


def predict(
    setting: EstimateInputs,
    row: Collective,
    hosts: Sequence[int],
    per_host: int,
    sizes: Sequence[int],
    source: str,
    evidence: MeasuredCurves | None = None,
    rails_lost: int = 0,
) -> Prediction:
    """The expected time of every size on every number of hosts, and the bounds of the largest size
    on the largest of these numbers.

    There are only bounds where busbw has no model of times. UsageError where nothing can run, as
    with one rank, or with no NIC between hosts.
    """
    evidence = evidence or published()
    setting = replace(setting, system=without_rails(setting.system, rails_lost))
    largest = max(hosts)
    check(setting.system, largest, per_host)
    if largest * per_host < 2:
        raise UsageError(
            f"{row.name} on {largest} x {per_host} ranks: no data crosses a link",
            "give at least two ranks, like --nodes 2 or --gpus 8",
        )
    rows: list[Forecast] = []
    crossings: list[Crossing] = []
    if not setting.system.rccl:
        forecasts = [
            forecast(setting, row, count, per_host, size, evidence)
            for count in hosts
            for size in sizes
        ]
        rows = [expected for expected in forecasts if expected is not None]
        _check_rows(rows, row, setting, hosts, per_host)
        several = [count for count in hosts if count * per_host > 1]
        several = [count for count in several if not setting.has_own_matrix(count)]
        crossings = [crossing(setting, row, count, per_host, evidence) for count in several]
    possible = algorithm_bounds(setting, row, largest, per_host, max(sizes))
    described = describe(setting.system, largest, per_host, setting.release, source)
    described.notes.extend(_system_notes(setting.system, setting.release, possible.chosen))
    return Prediction(
        collective=row.name,
        described=described,
        rows=rows,
        crossings=crossings,
        bounds=possible,
        calibrated_by=[curve.run for curve in evidence.calibration],
        oversubscription=setting.spine.oversubscription,
        hosts_per_leaf=setting.spine.hosts_per_leaf,
        uplinks=setting.spine.uplinks,
        rails_lost=rails_lost,
        notes=_notes(row, rows, setting, evidence),
    )


def check(system: System, hosts: int, per_host: int) -> None:
    """UsageError if the system has no NICs for several hosts, or fewer than `per_host` GPUs, or if
    its GPUs are joined unevenly and only some take part.
    """
    if hosts > 1 and not system.nics:
        raise UsageError(
            f"{system.name or system.gpu} on {hosts} hosts:"
            f" {system.nics_unknown or 'its NICs are unknown'}",
            "give those that the job uses, like --nics 8x400G",
        )
    if system.part_unknown and 1 < per_host < system.gpus:
        raise UsageError(
            f"--gpus {per_host}: the GPUs of {system.name} are joined unevenly, so their links to"
            " each other differ",
            f"--gpus {system.gpus}",
        )
    if per_host > system.gpus:
        raise UsageError(
            f"--gpus {per_host}: a host of {system.name or system.gpu} has {system.gpus} GPUs",
            f"--gpus {system.gpus}",
        )


def _check_rows(
    rows: Sequence[Forecast],
    row: Collective,
    setting: EstimateInputs,
    hosts: Sequence[int],
    per_host: int,
) -> None:
    """UsageError for a number of hosts on which nothing can run."""
    for count in hosts:
        if count * per_host < 2 or any(expected.hosts == count for expected in rows):
            continue
        where = f"{row.name} on {counted(count, 'host')} x {per_host} ranks"
        if setting.may != ALL_ALLOWED:
            raise UsageError(
                f"{where}: NCCL has no algorithm and protocol that --algo and --proto allow",
                "leave out --algo and --proto",
            )
        if row.ranks_power_of_two:
            raise UsageError(
                f"{where}: the number of ranks is not a power of two",
                "give --nodes and --gpus whose product is one",
            )
        raise UsageError(f"{where}: busbw knows no algorithm of NCCL that runs it")


def _system_notes(system: System, release: Release, chosen: str) -> list[str]:
    notes = []
    if system.part_unknown:
        notes.append(
            "the GPUs are joined unevenly: the bounds count all links of a GPU, and paths between"
            " two can have less"
        )
    if system.rccl:
        notes.append("busbw has no model of RCCL: the bounds are those of the links")
    if system.collnet and not system.nvls:
        notes.append(
            "busbw has no times of CollNet without NVLS: the rows are of other algorithms, and the"
            " bounds are those of CollNet"
        )
    if release.nvls_efficiency is None and chosen.startswith("NVLS"):
        notes.append(OWN_NVLS)
    return notes


def _notes(
    row: Collective, rows: Sequence[Forecast], setting: EstimateInputs, evidence: MeasuredCurves
) -> list[str]:
    notes = []
    if any(expected.extrapolated for expected in rows):
        notes.append(
            f"extrapolated: no public figure is of more than {CHECKED_RANKS} ranks, so the range"
            " grows with their number; assumes a non-blocking network along rails, without"
            " congestion, lost links or late ranks"
        )
    if any(
        expected.algorithm == P2P and expected.basis == ExpectedBasis.MODEL for expected in rows
    ):
        notes.append(
            "NCCL builds this of sends and receives, and has no model of it: the rate is its"
            " point-to-point bound"
        )
        notes += _notes_on_sends(row, rows, setting)
    if not reduces(row.name, setting.dtype, setting.op) and setting.system.nvls:
        notes.append(f"NVLS does not reduce {setting.dtype}: NCCL takes another algorithm")
    notes += spine_notes(setting, [(row.name, expected) for expected in rows])
    if evidence.calibration:
        notes.append(_calibration_note(rows, evidence))
    return notes


def _calibration_note(rows: Sequence[Forecast], evidence: MeasuredCurves) -> str:
    """Which rows are the calibrations' own times, and how the others were corrected."""
    calibrated = sum(row.basis == ExpectedBasis.CALIBRATION for row in rows)
    measured = sorted({curve.hosts for curve in evidence.calibration})
    hosts = f"{', '.join(map(str, measured))} {'host' if measured == [1] else 'hosts'}"
    if calibrated == len(rows):
        return f"calibrated on {hosts}: all rows are measured sizes"
    return (
        f"calibrated on {hosts}: {calibrated} of {len(rows)} rows are measured sizes, the others"
        " have the correction that was found there"
    )


def _notes_on_sends(
    row: Collective, rows: Sequence[Forecast], setting: EstimateInputs
) -> list[str]:
    """What limits sends between hosts on the largest job: their channels, or a GPU's own NICs."""
    largest = max(rows, key=lambda expected: (expected.hosts, expected.size_bytes))
    per_host = largest.ranks // largest.hosts
    if row.uneven:
        return _own_nics_note(row, setting, largest.hosts, per_host, largest.size_bytes)
    if row.name != PAIRS or largest.hosts == 1:
        return []
    channels = counted(channels_of_send(setting, largest.hosts, per_host), "channel")
    return [
        f"NCCL {setting.release.name} sends to another host over {channels} of about"
        f" {CHANNEL_RATE / 1e9:g} GB/s each (NCCL_NCHANNELS_PER_NET_PEER)"
    ]


def _own_nics_note(
    row: Collective, setting: EstimateInputs, hosts: int, per_host: int, size_bytes: int
) -> list[str]:
    """That the NICs next to one GPU limit an uneven exchange, where no other link does."""
    links = setting.fabric(hosts, per_host, size_bytes)
    if hosts == 1 or links.traffic is None:
        return []
    own = OwnNics(links, setting.system.nics_of(per_host)).least_of_nccl(links.traffic)
    (of_links,) = bounds(row, links, setting.system.features())
    factor = float(row.bus_factor(links.ranks))
    if own is None or own.time_s * of_links.busbw <= links.traffic.size_bytes * factor:
        return []
    return [
        "a GPU exchanges with other hosts over the NICs next to it alone: at least"
        f" {time_text(own.time_s)} for {format_size(links.traffic.size_bytes)} ({own.text})"
    ]
