"""What would explain a busbw below the expected range: what the log and the settings state, and
other descriptions of the system with which this busbw is expected.

Several causes may give one figure. So a description says what the busbw fits, not why.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace

from busbw.core.collectives import Collective
from busbw.core.finding import Verdict
from busbw.core.result import Result
from busbw.core.sizes import counted
from busbw.model.estimate import EstimateInputs
from busbw.model.fabric import gb
from busbw.model.forecast import MeasuredCurves, forecast
from busbw.model.nccl.choice import ALL_ALLOWED, allowed
from busbw.model.transport_findings import RULES as TRANSPORTS
from busbw.model.types import Forecast

CLOSE = 0.06  # how far a busbw may be from what a description expects
LARGE = 64 << 20  # below, latency decides, which no description here changes
FEW_CHANNELS = 4
SOCKET = "NET/Socket"
# Settings with which NCCL is slower than without, and the values that do it.
SLOWER_WITH: dict[str, Callable[[str], bool]] = {
    "NCCL_P2P_DISABLE": lambda value: value != "0",
    "NCCL_P2P_LEVEL": lambda value: value in ("LOC", "0"),
    "NCCL_IB_DISABLE": lambda value: value != "0",
    "NCCL_NET": lambda value: value.lower() == "socket",
    "NCCL_MAX_NCHANNELS": lambda value: value.isdigit() and int(value) <= FEW_CHANNELS,
    "NCCL_MAX_CTAS": lambda value: value.isdigit() and int(value) <= FEW_CHANNELS,
}
_DEVICE_NAME = re.compile(r"[a-z][\w.-]*\d(?::\d+)?", re.ASCII)


def stated(result: Result, nics: int) -> list[str]:
    """What the log and the settings state that slows NCCL down on hosts with so many NICs."""
    names = {rule.id for rule in TRANSPORTS}
    found = [
        finding.message
        for finding in result.findings
        if finding.id in names and finding.verdict is Verdict.WARN
    ]
    if not found and nics and result.ran and SOCKET in result.ran.transports():
        found.append(f"NCCL's log has connections by {SOCKET}: TCP, not RDMA")
    settings = result.environment
    set_ = [
        f"{name}={settings[name]}"
        for name, slows in SLOWER_WITH.items()
        if slows(settings.get(name, "0" if name.endswith("DISABLE") else ""))
    ]
    if set_:
        found.append(f"the run set {' and '.join(set_)}")
    return found + _unused_nics(result, nics)


def _unused_nics(result: Result, nics: int) -> list[str]:
    """That NCCL's log, or NCCL_IB_HCA, names fewer NICs of a host than it has."""
    used: dict[str, set[str]] = defaultdict(set)
    for connection in result.ran.connections if result.ran else ():
        for device in connection.devices:
            host, _, name = device.rpartition(":")
            used[host].add(name)
    most = max(map(len, used.values()), default=0)
    if 0 < most < nics:
        return [f"NCCL's log has connections over {most} of {nics} NICs of a host"]
    selected = _selected(result.environment)
    if not used and 0 < len(selected) < nics:
        return [f"NCCL_IB_HCA names {len(selected)} of {nics} NICs: {', '.join(selected)}"]
    return []


def _selected(environment: Mapping[str, str]) -> list[str]:
    """The devices that NCCL_IB_HCA names in full; none if it excludes some, or has prefixes."""
    text = environment.get("NCCL_IB_HCA", "").strip()
    names = text.removeprefix("=").split(",") if text and not text.startswith("^") else []
    return names if all(map(_DEVICE_NAME.fullmatch, names)) else []


def fitting(
    setting: EstimateInputs,
    row: Collective,
    shape: tuple[int, int],
    size_bytes: int,
    busbw: float,
    evidence: MeasuredCurves | None,
) -> list[str]:
    """A description of the system with which a `busbw` is expected; none at small sizes."""
    if size_bytes < LARGE:
        return []

    def expected(changed: EstimateInputs) -> Forecast | None:
        return forecast(changed, row, *shape, size_bytes, evidence)

    in_hosts = expected(replace(setting, system=replace(setting.system, collnet=False)))
    if setting.system.collnet and in_hosts and _is_in(busbw, in_hosts):
        return [
            f"it fits NCCL without reduction in the network's switches, {gb(in_hosts.busbw)} GB/s:"
            " NCCL_COLLNET_ENABLE=1 had no effect"
        ]
    without = replace(setting, may=allowed({"NCCL_NVLS_ENABLE": "0"}, row.name))
    plain, rings = expected(setting), expected(without) if setting.may == ALL_ALLOWED else None
    if plain and rings and _is_in(busbw, rings) and not _is_close(plain.busbw, rings):
        return [
            f"it fits NCCL without NVLS, {gb(rings.busbw)} GB/s: NVLS was off or not available"
            " (--no-nvls compares with that)"
        ]
    return _fewer_nics(setting, shape[0], busbw, expected)


def _fewer_nics(
    setting: EstimateInputs,
    hosts: int,
    busbw: float,
    expected: Callable[[EstimateInputs], Forecast | None],
) -> list[str]:
    nics = setting.system.nics
    for count in range(nics - 1, 0, -1) if hosts > 1 else ():
        fewer = replace(setting, system=replace(setting.system, nics=count))
        forecasted = expected(fewer) if nics % count == 0 else None
        if forecasted and _is_close(busbw, forecasted):
            part = nics // count
            spine = f", or the network is oversubscribed {part}:1" if hosts > 2 else ""
            return [
                f"it fits {count} of {counted(nics, 'NIC')}, {gb(forecasted.busbw)} GB/s: NCCL uses"
                f" so few, or each has 1/{part} of its rate, as where ACS, or a NIC far from its"
                f" GPU, sends data through the CPU{spine}"
            ]
    return []


def _is_in(busbw: float, expected: Forecast) -> bool:
    return expected.low <= busbw <= expected.high


def _is_close(busbw: float, expected: Forecast) -> bool:
    return abs(busbw / expected.busbw - 1) <= CLOSE
