"""Predicts the time of every size on every number of hosts, with how far it may be off."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from busbw.core.collectives import BY_NAME, Collective
from busbw.core.errors import UsageError
from busbw.core.sizes import counted
from busbw.model.algorithm_bounds import algorithm_bounds
from busbw.model.bounds import P2P
from busbw.model.estimate import Fits, Point, Setting, calibrate, channels_of_send, estimate
from busbw.model.fabric import gb
from busbw.model.nccl.choice import Choice
from busbw.model.nccl.constants import Release
from busbw.model.nccl.nvls_types import reduces
from busbw.model.nccl.p2p import CHANNEL_RATE, PAIRS
from busbw.model.systems import System
from busbw.model.types import Crossing, Described, Fit, Forecast, Prediction

OWN_NVLS = (
    "before 2.28, NCCL expects more of NVLSTree than it reaches: 4 to 11 % on 2 x 8 H100 and H20"
    " from 1 GiB on"
)
CHECKED_HOSTS = 248  # the largest job with public figures that the model was compared with
P2P_BAND = 0.5
# SimAI's table of all_gather and reduce_scatter: rings over 4 to 128 hosts are 23 to 60 % slower
# than the model where latency takes most of the time. Of all_reduce there is no such table.
MANY_HOSTS, LATENCY_BAND = 3, 0.6
# On two H200 all_gather and reduce_scatter of 1 GiB are 23 and 24 % slower. Each GPU also copies
# its own half; whether that is why was not measured.
COPYING_COLLECTIVES, COPY_BAND = ("all_gather", "reduce_scatter"), 0.25
MAX_SIZE_BYTES = 1 << 42


def describe(system: System, hosts: int, per_host: int, release: Release, source: str) -> Described:
    """The system in an answer."""
    wire = system.fabric(hosts, per_host)
    data = system.fabric(hosts, per_host, payload=True)
    nics = ""
    if wire.nics and wire.rail:
        nics = f"{round(wire.nics / wire.rail)} x {gb(wire.rail)} GB/s"
    return Described(
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


@dataclass(frozen=True, slots=True)
class Band:
    """How far busbw may be off from `from_bytes` on, as a fraction: without (`plain`) and with a
    calibration of the algorithm and protocol.

    `source` names the errors found without one: how far the measured busbw is from the model's.
    """

    from_bytes: int
    plain: float
    calibrated: float
    source: str


BANDS: tuple[Band, ...] = (
    Band(
        1 << 30,
        0.15,
        0.05,
        "2 x 8 H100: 1.8 %; 2 x 8 H20: 4.2 %; 4 x 8 H100, nccl issue 1221: 12 %; 2 H200: 8 %",
    ),
    Band((64 << 20) + 1, 0.20, 0.10, "2 x 8 H20: 19 % at 128 MiB; 2 H200: 17 %"),
    Band(1 << 20, 0.35, 0.20, "2 x 8 H20: up to 36 %; 2 H200: 30 % at 2 MiB"),
    Band(0, 0.50, 0.30, "2 x 8 H20: 20 to 46 %"),
)


def band(
    row: Collective, shape: tuple[int, int], size_bytes: int, choice: Choice, fit: Fit | None
) -> float:
    """How far busbw may be off on `shape` (hosts, ranks on each): by the table, or the
    calibration's own error if that is larger.

    A calibration does not count beyond its hosts, nor below half of its smallest size.
    """
    limits = next(limits for limits in BANDS if size_bytes >= limits.from_bytes)
    hosts, per_host = shape
    if choice.algorithm == P2P:
        return P2P_BAND
    if fit and hosts <= fit.hosts and 2 * size_bytes >= fit.least_bytes:
        return max(limits.calibrated, fit.worst, fit.held_worst or 0.0)
    waits = hosts >= MANY_HOSTS and choice.parts.latency_s > choice.parts.transfer_s
    copies = row.name in COPYING_COLLECTIVES and hosts * per_host == 2
    return max(limits.plain, LATENCY_BAND if waits else 0.0, COPY_BAND if copies else 0.0)


def without_rails(system: System, lost: int) -> System:
    """The system with `lost` NICs less on every host; UsageError if none is left."""
    if lost and lost >= system.nics:
        raise UsageError(
            f"--rails-lost {lost}: a host has {system.nics} NICs", "lose fewer than it has"
        )
    return replace(system, nics=system.nics - lost)


def forecast(
    setting: Setting, row: Collective, hosts: int, per_host: int, size_bytes: int, fits: Fits
) -> Forecast | None:
    """The expected time of one size; None where nothing can run."""
    chosen = estimate(setting, row.name, hosts, per_host, size_bytes)
    if chosen is None:
        return None
    fit = fits.get((row.name, chosen.algorithm, chosen.protocol))
    timed = calibrate(chosen, fit)
    ranks, time_s = hosts * per_host, timed.parts.time_s
    return Forecast(
        hosts,
        ranks,
        size_bytes,
        chosen.algorithm,
        chosen.protocol,
        time_s,
        timed.parts.latency_s,
        size_bytes * float(row.bus_factor(ranks)) / time_s,
        band(row, (hosts, per_host), size_bytes, chosen, fit),
        fit is not None,
        hosts > (fit.hosts if fit else CHECKED_HOSTS),
    )


def crossing(setting: Setting, row: Collective, hosts: int, per_host: int, fits: Fits) -> Crossing:
    """The size from which on the bytes take more of the time than the latency."""
    last, size = 0, 8  # the last size at which latency takes more, and the next to try
    while size <= MAX_SIZE_BYTES:
        expected = forecast(setting, row, hosts, per_host, size, fits)
        if expected is not None and expected.regime == "latency":
            last = size
        size *= 2
    if last >= MAX_SIZE_BYTES:
        return Crossing(hosts, hosts * per_host, None)
    next_size = max(2 * last, 8)
    above = forecast(setting, row, hosts, per_host, next_size, fits)
    exact = 0.0
    if above and above.time_s > above.latency_s:
        exact = above.latency_s / ((above.time_s - above.latency_s) / above.size_bytes)
    return Crossing(hosts, hosts * per_host, round(min(max(exact, last), next_size)))


def predict(
    setting: Setting,
    row: Collective,
    hosts: Sequence[int],
    per_host: int,
    sizes: Sequence[int],
    source: str,
    fits: Fits | None = None,
    rails_lost: int = 0,
) -> Prediction:
    """The expected time of every size on every number of hosts, and the bounds of the largest size
    on the largest of these numbers.

    There are only bounds where busbw has no model of times. UsageError where nothing can run, as
    with one rank, or with no NIC between hosts.
    """
    fits = fits or {}
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
            forecast(setting, row, count, per_host, size, fits) for count in hosts for size in sizes
        ]
        rows = [expected for expected in forecasts if expected is not None]
        several = [count for count in hosts if count * per_host > 1 and not setting.traffic]
        crossings = [crossing(setting, row, count, per_host, fits) for count in several]
    bounds = algorithm_bounds(setting, row, largest, per_host, max(sizes))
    described = describe(setting.system, largest, per_host, setting.release, source)
    described.notes.extend(_system_notes(setting.system, setting.release, bounds.chosen))
    return Prediction(
        collective=row.name,
        described=described,
        rows=rows,
        crossings=crossings,
        bounds=bounds,
        fits=list(fits.values()),
        oversubscription=setting.oversubscription,
        rails_lost=rails_lost,
        notes=_notes(row, rows, setting, fits),
    )


def check(system: System, hosts: int, per_host: int) -> None:
    """UsageError if the system has no NICs for several hosts, or fewer than `per_host` GPUs, or if
    its GPUs are joined unevenly and only some take part.
    """
    if hosts > 1 and not system.nics:
        raise UsageError(
            f"{system.name or system.gpu} on {hosts} hosts: its NICs are unknown",
            "give them, like --nics 8x400G",
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


def _system_notes(system: System, release: Release, chosen: str) -> list[str]:
    notes = []
    if system.part_unknown:
        notes.append(
            "the GPUs are joined unevenly: the bounds count all links of a GPU, and paths between"
            " two can have less"
        )
    if system.rccl:
        notes.append("busbw has no model of RCCL: the bounds are those of the links")
    if release.nvls_efficiency is None and chosen.startswith("NVLS"):
        notes.append(OWN_NVLS)
    return notes


def _notes(row: Collective, rows: Sequence[Forecast], setting: Setting, fits: Fits) -> list[str]:
    notes = []
    if any(expected.extrapolated for expected in rows):
        known = f"than the {CHECKED_HOSTS} compared with"
        if fits:
            known = f"than the {max(fit.hosts for fit in fits.values())} calibrated"
        notes.append(
            f"extrapolated: more hosts {known}; assumes a non-blocking network along rails, without"
            " congestion, lost links or late ranks"
        )
    if any(expected.algorithm == P2P for expected in rows):
        notes.append(
            "NCCL builds this of sends and receives, and has no model of it: the rate is its"
            " point-to-point bound"
        )
        notes += _notes_on_sends(row, rows, setting)
    if not reduces(row.name, setting.dtype, setting.op) and setting.system.nvls:
        notes.append(f"NVLS does not reduce {setting.dtype}: NCCL takes another algorithm")
    if setting.oversubscription > 1:
        notes.append(
            f"oversubscription {setting.oversubscription:g}: traffic between hosts has"
            f" 1/{setting.oversubscription:g} of the NICs' rate"
        )
    missing = {
        f"{expected.algorithm} {expected.protocol}"
        for expected in rows
        if not expected.calibrated and expected.algorithm != P2P
    }
    if fits and missing:
        notes.append(f"not calibrated: {', '.join(sorted(missing))}")
    return notes


def _notes_on_sends(row: Collective, rows: Sequence[Forecast], setting: Setting) -> list[str]:
    """How many channels a send between hosts has, on the largest job."""
    largest = max(rows, key=lambda expected: expected.hosts)
    if row.name != PAIRS or largest.hosts == 1:
        return []
    per_host = largest.ranks // largest.hosts
    channels = counted(channels_of_send(setting, largest.hosts, per_host), "channel")
    return [
        f"NCCL {setting.release.name} sends to another host over {channels} of about"
        f" {CHANNEL_RATE / 1e9:g} GB/s each (NCCL_NCHANNELS_PER_NET_PEER)"
    ]


def point(
    setting: Setting, collective: str, hosts: int, per_host: int, size_bytes: int, time_s: float
) -> Point | None:
    """A measured time as a point of a calibration; None where NCCL has no model."""
    if collective not in BY_NAME:
        return None
    chosen = estimate(setting, collective, hosts, per_host, size_bytes)
    if chosen is None or chosen.algorithm == P2P or size_bytes <= 0:
        return None
    return Point(
        collective, chosen.algorithm, chosen.protocol, hosts, size_bytes, chosen.parts, time_s
    )
