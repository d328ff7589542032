"""Data Center Bridging of an interface, as the kernel reports it by rtnetlink (linux/dcbnl.h).

Nothing is changed; root is not needed. A message of a netlink socket (linux/netlink.h) is a header
and attributes, each of which may hold further ones.
"""

import errno
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from busbw.host.source import Source, Unavailable

HEADER, ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=HH")
REQUEST, DUMP, ERROR, DONE = 0x1, 0x300, 2, 3  # NLM_F_REQUEST, NLM_F_DUMP, NLMSG_ERROR, NLMSG_DONE
TYPE_BITS = 0x3FFF  # without the flags "nested" and "network byte order"
PRIORITIES = 8
_RTM_GETDCB = 78
_IEEE_GET = 21  # DCB_CMD_IEEE_GET
_IFNAME, _IEEE, _DCBX = 1, 13, 14
_ETS, _PFC, _APPS, _TRUST = 1, 2, 3, 11
_DSCP = 5  # IEEE_8021QAZ_APP_SEL_DSCP
_SELECTORS = {
    1: "ethertype",
    2: "stream port",
    3: "datagram port",
    4: "any port",
    _DSCP: "dscp",
    255: "pcp",
}
_HOST = 0x01  # DCB_CAP_DCBX_HOST
_MESSAGE = struct.Struct("=BBH")
_LIMIT_S = 2.0
_REPLY_BYTES = 1 << 16


def attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Type and value of each attribute; ends where `data` is no attribute."""
    while len(data) >= ATTRIBUTE.size:
        length, kind = ATTRIBUTE.unpack_from(data)
        if not ATTRIBUTE.size <= length <= len(data):
            return
        yield kind & TYPE_BITS, data[ATTRIBUTE.size : length]
        data = data[(length + 3) & ~3 :]


def messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Type and body of each message; ends where `data` is no message."""
    while len(data) >= HEADER.size:
        length, kind = HEADER.unpack_from(data)[:2]
        if not HEADER.size <= length <= len(data):
            return
        yield kind, data[HEADER.size : length]
        data = data[(length + 3) & ~3 :]


@dataclass(frozen=True, slots=True)
class Dcb:
    """What an interface does with priorities. None or empty where its driver does not say."""

    pfc: tuple[int, ...] | None = None  # priorities with priority flow control
    pfc_most: int = 0  # how many may have it at once
    classes: tuple[int, ...] = ()  # traffic class of each priority
    # Percent of the bandwidth of each traffic class, where its algorithm is ETS.
    shares: tuple[int, ...] = ()
    # Priority by DSCP value, only of those that were set.
    dscp: dict[int, int] = field(default_factory=dict)
    # What gives packets their priority, first choice first, where the driver has this table.
    trust: tuple[str, ...] = ()
    host: bool | None = None  # whether the host, not the firmware, negotiates DCBX


def read_dcb(source: Source, interface: str) -> Dcb | str:
    """The DCB state of an interface; a text says why it is unknown."""
    reading = source.call(f"dcb {interface}", lambda: _dcb_json(interface))
    return reading.reason if reading.data is None else msgspec.json.decode(reading.data, type=Dcb)


def _dcb_json(interface: str) -> str:
    if len(interface.encode()) > 15:  # IFNAMSIZ
        raise Unavailable(f"{interface}: no such interface")
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
            netlink.settimeout(_LIMIT_S)
            netlink.sendto(request(interface), (0, 0))
            reply = netlink.recv(_REPLY_BYTES)
    except TimeoutError as error:
        raise Unavailable(f"{interface}: no answer by netlink within {_LIMIT_S:g} s") from error
    except OSError as error:
        raise Unavailable(f"{interface}: netlink: {str(error.strerror).lower()}") from error
    return msgspec.json.encode(decode(reply, interface)).decode()


def request(interface: str) -> bytes:
    """The message that asks for the IEEE state of an interface."""
    name = interface.encode() + b"\0"
    attribute = _padded(ATTRIBUTE.pack(ATTRIBUTE.size + len(name), _IFNAME) + name)
    body = _MESSAGE.pack(socket.AF_UNSPEC, _IEEE_GET, 0) + attribute
    return HEADER.pack(HEADER.size + len(body), _RTM_GETDCB, REQUEST, 1, 0) + body


def decode(reply: bytes, interface: str) -> Dcb:
    """The state in an answer of the kernel; Unavailable if it is an error, or no such answer."""
    if len(reply) < HEADER.size + 4:
        raise Unavailable(f"{interface}: an answer of {len(reply)} bytes by netlink")
    length, kind = HEADER.unpack_from(reply)[:2]
    if kind == ERROR:
        (code,) = struct.unpack_from("=i", reply, HEADER.size)
        raise Unavailable(f"{interface}: {_reason(-code)}")
    answer = dict(attributes(reply[HEADER.size + _MESSAGE.size : length]))
    if kind != _RTM_GETDCB or _IEEE not in answer:
        raise Unavailable(f"{interface}: message {kind} by netlink has no DCB state")
    return _state(dict(attributes(answer[_IEEE])), answer.get(_DCBX))


def _reason(code: int) -> str:
    if code == errno.EOPNOTSUPP:
        return "its driver has no DCB, or a virtual function may not see it"
    return "no such interface" if code == errno.ENODEV else os.strerror(code).lower()


def _state(ieee: dict[int, bytes], dcbx: bytes | None) -> Dcb:
    ets, pfc = ieee.get(_ETS, b""), ieee.get(_PFC, b"")
    lossless = None
    if len(pfc) > 1:
        lossless = tuple(priority for priority in range(PRIORITIES) if pfc[1] >> priority & 1)
    classes: tuple[int, ...] = ()
    shares: tuple[int, ...] = ()
    # struct ieee_ets: three flags, then tx and rx bandwidth, algorithm and class by index
    if len(ets) >= 3 + 4 * PRIORITIES:
        classes = tuple(ets[3 + 3 * PRIORITIES : 3 + 4 * PRIORITIES])
        shares = tuple(ets[3 : 3 + PRIORITIES])
    # struct dcb_app
    apps = [value for _, value in attributes(ieee.get(_APPS, b"")) if len(value) >= 4]
    entries = [struct.unpack_from("=BBH", value) for value in apps]
    selectors = [value[0] for _, value in attributes(ieee.get(_TRUST, b"")) if value]
    return Dcb(
        pfc=lossless,
        pfc_most=pfc[0] if pfc else 0,
        classes=classes,
        shares=shares,
        dscp={protocol: priority for selector, priority, protocol in entries if selector == _DSCP},
        trust=tuple(_SELECTORS.get(selector, str(selector)) for selector in selectors),
        host=bool(dcbx[0] & _HOST) if dcbx else None,
    )


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
