"""Reads from NCCL's log, at NCCL_DEBUG=INFO, how ranks are connected.

The lines of NCCL 2.4 to 2.32, each behind `host:pid:tid [gpu] NCCL INFO`. Older releases print Ring
for Channel, and NET's ranks without brackets:

    Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read
    Channel 00 : 0[0] -> 1[1] via SHM/direct/direct
    Channel 03/0 : 7[7] -> 8[0] [send] via NET/IB/3(6)/GDRDMA/Shared
    NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eth0:192.0.2.2<0>
    NET/Socket : Using [0]eth0:192.0.2.2<0>

The number behind a network's name is a device of that list; a merged device has a number above.
"""

import re
from collections import defaultdict
from dataclasses import dataclass, field

from busbw.core.ran import LoggedConnections, NcclConnection

MAX_LINE = 4096
# NCCL's names of its own networks; that of NVIDIA's plugin, IBext_v9, begins with the first.
RDMA, SOCKET = "IB", "Socket"
_LINE = re.compile(r"([\w.-]{1,253}):\d+:\d+ (?:\[-?\d+\] )?NCCL INFO (.*)", re.ASCII)
_RANK = r"(\d{1,7})(?:\[[0-9a-f]{1,16}\])?"
_CONNECTION = re.compile(
    rf"(?:Channel|Ring) (\d{{1,4}})(?:/\d{{1,4}})? : {_RANK} -> {_RANK}"
    r" (?:\[(send|receive)\] )?via (P2P|SHM|NET)/(.+)",
    re.ASCII,
)
_NET = re.compile(r"(.{1,64}?)/(\d{1,4})(?:\(\d{1,7}\))?(/GDRDMA)?(?:[(/]|$)", re.ASCII)
_USING = re.compile(r"NET/(\S{1,64}) : Using (.*)")
_DEVICE = re.compile(r"\[(\d{1,4})\]([\w.-]{1,64}):", re.ASCII)
Pair = tuple[int, int, str]  # sender, receiver, transport


@dataclass
class _ConnectionLines:
    """What the lines of one connection state; a channel counts once, though both ends name it."""

    gdr: list[bool] = field(default_factory=list)
    channels: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    devices: dict[tuple[str, str, int], None] = field(default_factory=dict)  # host, network, number


def read(text: str) -> LoggedConnections | None:
    """The connections in a log that may have other lines too; None if it names none."""
    found: dict[Pair, _ConnectionLines] = defaultdict(_ConnectionLines)
    names: dict[tuple[str, str, int], str] = {}
    for line in text.splitlines():
        match = _LINE.search(line) if "NCCL INFO" in line and len(line) <= MAX_LINE else None
        if match is None:
            continue
        host, message = match.groups()
        using = _USING.match(message)
        if using:
            for number, device in _DEVICE.findall(using[2].partition(";")[0]):
                names[host, using[1], int(number)] = device
        else:
            _add(found, host, message)
    if not found:
        return None
    connections = [_connection(pair, found[pair], names) for pair in sorted(found)]
    rdma: dict[str, list[str]] = defaultdict(list)
    for (host, network, _), device in names.items():
        if network.startswith(RDMA):
            rdma[host].append(device)
    return LoggedConnections(connections, dict(sorted(rdma.items())))


def _add(found: dict[Pair, _ConnectionLines], host: str, message: str) -> None:
    """Add what a line states of a connection, if it is of one."""
    match = _CONNECTION.match(message)
    if match is None:
        return
    channel, sender, receiver, side, kind, rest = match.groups()
    if kind != "NET":
        path = rest.strip().split("/")[0]
        entry = found[int(sender), int(receiver), f"{kind}/{path}"]
        entry.channels[""].add(channel)
        return
    net = _NET.match(rest.strip())
    if net is None:
        return
    network, number, gdr = net.groups()
    entry = found[int(sender), int(receiver), f"NET/{network}"]
    entry.channels[side or ""].add(channel)
    if network != SOCKET:
        entry.gdr.append(gdr is not None)
    entry.devices[host, network, int(number)] = None


def _connection(
    pair: Pair, found: _ConnectionLines, names: dict[tuple[str, str, int], str]
) -> NcclConnection:
    devices = [
        f"{device[0]}:{names[device]}" for device in sorted(found.devices) if device in names
    ]
    gdr = all(found.gdr) if found.gdr else None
    return NcclConnection(*pair, gdr, max(map(len, found.channels.values())), devices)
