"""TCP streams as a hash of addresses and ports sees them: their ports and targets, and the member
of a bond that they would take.

Run as a program, it is the part that works on an emulated host: `python streams.py
serve|connect|watch ...`.
"""

import contextlib
import ipaddress
import json
import select
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

ESTABLISHED = "01"
LIMIT_S = 20
TCP, SYN, ACK = 6, 0x02, 0x10
ETH_P_ALL, PACKET_OUTGOING, SO_RCVBUFFORCE = 3, 4, 33


class Stream(NamedTuple):
    """A TCP connection."""

    source: str
    target: str
    source_port: int
    target_port: int


def slave(stream: Stream, slaves: int) -> int:
    """The member that Linux's bond chooses with xmit_hash_policy layer3+4: bond_ip_hash of
    drivers/net/bonding/bond_main.c.

    32-bit words as a little-endian machine reads them; the four words of an IPv6 address are folded
    into one.
    """
    (folded,) = struct.unpack("<I", struct.pack(">HH", stream.source_port, stream.target_port))
    for address in (stream.source, stream.target):
        for (word,) in struct.iter_unpack("<I", ipaddress.ip_address(address).packed):
            folded ^= word
    folded ^= folded >> 16
    folded ^= folded >> 8
    return (folded >> 1) % slaves


def descriptors(pid: int) -> dict[str, int]:
    """Open descriptors of a process by their target, such as `socket:[1234]`."""
    by_target = {}
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            by_target[str(file.readlink())] = int(file.name)
    return by_target


def of_process(pid: int) -> list[list[Stream]]:
    """Streams of a process, grouped by the port that they go to; groups and what is in each in
    the order of opening.
    """
    opened = descriptors(pid)
    by_port: dict[int, list[tuple[int, Stream]]] = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            number = opened.get(f"socket:[{words[9]}]")
            if words[3] == ESTABLISHED and number is not None:
                (source, source_port), (target, target_port) = _end(words[1]), _end(words[2])
                by_port.setdefault(target_port, []).append(
                    (number, Stream(source, target, source_port, target_port))
                )
    return [
        [stream for _, stream in group]
        for group in sorted(sorted(group) for group in by_port.values())
    ]


def _end(text: str) -> tuple[str, int]:
    """An address of /proc/net/tcp: 32-bit words in the machine's byte order, then the port."""
    digits, port = text.split(":")
    packed = b"".join(
        struct.pack("=I", int(digits[at : at + 8], 16)) for at in range(0, len(digits), 8)
    )
    return str(ipaddress.ip_address(packed)), int(port, 16)


def of_kernel(
    source: list[str], destination: list[str], target: str, connections: int, streams: int
) -> list[list[Stream]]:
    """`streams` to each of `connections` listeners on a host, with source ports that the kernel
    chose, in the order of opening.

    `source` and `destination` are the command prefixes that enter the hosts.
    subprocess.CalledProcessError if there is no route.
    """
    with subprocess.Popen(
        _program(destination, "serve", target, connections),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdin and server.stdout
        connect = _program(source, "connect", target, streams, server.stdout.readline())
        done = subprocess.run(connect, capture_output=True, text=True, timeout=LIMIT_S, check=True)
        server.stdin.close()
    return [[Stream(*stream) for stream in group] for group in json.loads(done.stdout)]


@contextlib.contextmanager
def first_packets(inside: list[str], prefix: str) -> Iterator[dict[Stream, str]]:
    """The interface by which the first packet of each stream leaves a forwarding host within the
    context; filled at the end.

    Only interfaces whose names begin with `prefix`; `inside` is the command prefix that enters the
    host.
    """
    interfaces: dict[Stream, str] = {}
    with subprocess.Popen(
        _program(inside, "watch", prefix), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as watcher:
        assert watcher.stdin and watcher.stdout
        watcher.stdout.readline()  # it listens
        try:
            yield interfaces
        finally:
            watcher.stdin.close()
            interfaces.update(
                (Stream(*stream), name) for name, *stream in json.loads(watcher.stdout.read())
            )


def _program(inside: list[str], *words: object) -> list[str]:
    return [*inside, sys.executable, __file__, *map(str, words)]


def _serve(address: str, count: str) -> None:
    """Listen until the input ends."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sockets = [
        socket.create_server((address, 0), family=family, backlog=64) for _ in range(int(count))
    ]
    print(json.dumps([listener.getsockname()[1] for listener in sockets]), flush=True)
    sys.stdin.read()


def _connect(address: str, count: str, ports: str) -> None:
    """Like NCCL's own transport it does not bind: the kernel chooses the source port at each
    connect.
    """
    groups = [
        [socket.create_connection((address, port), 5) for _ in range(int(count))]
        for port in json.loads(ports)
    ]
    ends = [
        [(connection.getsockname(), connection.getpeername()) for connection in group]
        for group in groups
    ]
    print(
        json.dumps(
            [
                [(source[0], target[0], source[1], target[1]) for source, target in group]
                for group in ends
            ]
        )
    )


def _watch(prefix: str) -> None:
    """Capture all packets until the input ends; the first of a stream has SYN and no ACK."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL)) as capture:
        # all that comes while this has no core
        capture.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        print(flush=True)
        packets = []
        while capture in select.select([capture, sys.stdin], [], [])[0]:
            packet, (name, _, kind, *_) = capture.recvfrom(128)
            if kind == PACKET_OUTGOING and name.startswith(prefix) and (stream := _opened(packet)):
                packets.append((name, *stream))
    print(json.dumps(packets))


def _opened(packet: bytes) -> Stream | None:
    """The stream that a packet opens. IPv6 without extension headers."""
    old = packet[0] >> 4 == 4
    family, protocol, addresses, size = (
        (socket.AF_INET, 9, 12, 4) if old else (socket.AF_INET6, 6, 8, 16)
    )
    begin = (packet[0] & 15) * 4 if old else 40
    if packet[protocol] != TCP or packet[begin + 13] & (SYN | ACK) != SYN:
        return None
    source, target = (
        socket.inet_ntop(family, packet[at : at + size]) for at in (addresses, addresses + size)
    )
    return Stream(source, target, *struct.unpack_from(">HH", packet, begin))


DO: dict[str, Callable[..., None]] = {"serve": _serve, "connect": _connect, "watch": _watch}

if __name__ == "__main__":
    DO[sys.argv[1]](*sys.argv[2:])
