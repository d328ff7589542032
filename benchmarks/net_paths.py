"""How the net plugin's streams spread over equal paths, compared with ports chosen by the kernel:
`net_paths.py [FILE.json] [JOBS]`.

Needs root: hosts, routers and links are network namespaces (tests/native/paths.py). A job opens 8
connections of 4 streams. The streams of the fullest path are counted for the first, the first two
and all connections. The path is the routers' own choice (a keyed hash over addresses and ports), or
that of Linux's bond (layer3+4), computed from the same ports. Then 2 and 8 connections send over
links of 100 Mbit/s.
"""

import itertools
import json
import platform
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import net_loopback

TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path[:0] = [str(TESTS / "native"), str(TESTS / "netlab")]

import netlab  # noqa: E402 - found by the path above, as are those below
import paths  # noqa: E402
import streams  # noqa: E402
from peers import Peer, link  # noqa: E402

JOBS = 40
LINKS = (2, 4, 8)
CONNECTIONS = (1, 2, 8)
LOADED = (2, 8)
STREAMS = 4
LINK_MBIT = 100
WARM_S, WINDOW_S = 0.5, 2.0
MESSAGE_BYTES = 1 << 20
ROUNDS = 5


def job(library: Path, made: paths.Paths) -> tuple[Peer, Peer]:
    """A started process on each host; the speed is given, so that none is measured."""
    a, b = (
        Peer(library, 11, host.inside, host.addresses[0], BUSBW_NET_SPEED="10000")
        for host in made.hosts
    )
    a.call("init")
    b.call("init")
    return a, b


def opened(
    library: Path, made: paths.Paths, ports: str
) -> tuple[list[list[streams.Stream]], dict[streams.Stream, int]]:
    """The streams of one job by connection, and the link of each."""
    if ports == "kernel":
        with made.watched() as seen:
            groups = made.of_kernel(max(CONNECTIONS), 1 + STREAMS)
        return groups, seen
    a, b = job(library, made)
    with made.watched() as seen:
        link(a, b, max(CONNECTIONS))
    groups = streams.of_process(a.process.pid)
    a.stop(), b.stop()
    return groups, seen


def spread(library: Path, made: paths.Paths, jobs: int) -> Iterator[dict]:
    """Streams of the fullest path and paths without any, of each job and of its first connections
    alone.

    The stream for small messages (with NCCL Socket: for control) is not counted.
    """
    for ports in ("busbw", "kernel"):
        every = [opened(library, made, ports) for _ in range(jobs)]
        for connections, chosen_by in itertools.product(CONNECTIONS, ("bond", "route")):
            found = []
            for groups, seen in every:
                chunks = [stream for group in groups[:connections] for stream in group[1:]]
                found.append(
                    counts(
                        (
                            streams.slave(one, made.count) if chosen_by == "bond" else seen[one]
                            for one in chunks
                        ),
                        made.count,
                    )
                )
            what = {
                "hash": chosen_by,
                "paths": made.count,
                "connections": connections,
                "ports": ports,
                "streams": STREAMS * connections,
            }
            yield {
                **what,
                "fullest": [max(one) for one in found],
                "empty": [one.count(0) for one in found],
            }


def counts(taken: Iterator[int], ways: int) -> list[int]:
    """Streams on each path."""
    counter = Counter(taken)
    return [counter[one] for one in range(ways)]


def filled(library: Path, made: paths.Paths, connections: int) -> dict:
    """The use of the links while connections send: bytes per second of each link over its rate,
    and the streams on each.
    """
    a, b = job(library, made)
    with made.watched() as seen:
        pairs = link(a, b, connections)
    chunks = [stream for group in streams.of_process(a.process.pid) for stream in group[1:]]
    number = int(
        made.count * LINK_MBIT * 1e6 / 8 * (WARM_S + WINDOW_S) * 2 / MESSAGE_BYTES / len(pairs)
    )
    messages = [[MESSAGE_BYTES, 0, 0]] * number
    for peer, end, way in ((a, 0, "send"), (b, 1, "recv")):
        flows = [{"comm": pair[end], "way": way, "messages": messages} for pair in pairs]
        peer.start("traffic", flows=flows, limit_s=2 * WARM_S + WINDOW_S)
    time.sleep(WARM_S)
    began, before = time.monotonic(), made.carried()
    time.sleep(WINDOW_S)
    seconds, after = time.monotonic() - began, made.carried()
    reports = a.result()["flows"] + b.result()["flows"]
    a.kill(), b.kill()
    assert not any(one["error"] or one["faults"] for one in reports), reports
    rates = [
        (late - early) / seconds * 8 / 1e6 / LINK_MBIT
        for early, late in zip(before, after, strict=True)
    ]
    return {
        "paths": made.count,
        "streams": counts((seen[one] for one in chunks), made.count),
        "filled": [round(one, 3) for one in rates],
    }


def report(rows: list[dict], loads: list[dict]) -> str:
    """The tables: the fullest path relative to an even share, median and worst of the jobs; then
    how full the links were.
    """
    lines = [
        f"{'hash':6} {'paths':>5} {'streams':>7} {'ports':7} {'fullest, of an even share':>26}"
        f" {'worst':>6} {'jobs with a path unused':>24}"
    ]
    for row in rows:
        even = max(1.0, row["streams"] / row["paths"])
        fullest, unused = (
            statistics.median(row["fullest"]) / even,
            (sum(map(bool, row["empty"])) if row["streams"] >= row["paths"] else "-"),
        )
        head = f"{row['hash']:6} {row['paths']:5} {row['streams']:7} {row['ports']:7}"
        lines.append(f"{head} {fullest:26.2f} {max(row['fullest']) / even:6.2f} {unused:>24}")
    lines.append(
        f"\n"
        f"{'links':>5} {'streams on each':24} {'how full each is':46} {'all':>5}"
        f" {'streams of one size':>20}"
    )
    for load in loads:
        streams_, filled_ = (" ".join(map(str, load[key])) for key in ("streams", "filled"))
        equal = sum(load["streams"]) / load["paths"] / max(load["streams"])
        lines.append(
            f"{load['paths']:5} {streams_:24} {filled_:46} {statistics.mean(load['filled']):5.0%}"
            f" {equal:20.0%}"
        )
    return "\n".join(lines)


def main() -> int:
    """Make each network, run the jobs, print the tables and write the figures to the file, if
    given.
    """
    library, jobs = (
        Path(net_loopback.build()["native"]),
        (int(sys.argv[2]) if len(sys.argv) > 2 else JOBS),
    )
    rows: list[dict] = []
    loads: list[dict] = []
    try:
        for count in LINKS:
            with paths.paths(count) as made:
                rows += spread(library, made, jobs)
                made.limit(LINK_MBIT)
                loads += [
                    filled(library, made, connections)
                    for connections in LOADED
                    for _ in range(ROUNDS)
                ]
    except netlab.Unavailable as error:
        print(
            f"no emulated network: {error}\n\n"
            f"hint: run it as root, on Linux 5.14 or newer with ip"
            " and tc (iproute2)",
            file=sys.stderr,
        )
        return 3
    rows.sort(key=lambda row: (row["hash"], row["paths"], row["connections"], row["ports"]))
    print(report(rows, loads))
    if len(sys.argv) > 1:
        lines = {
            key: ",\n  ".join(map(json.dumps, some))
            for key, some in (("spread", rows), ("loads", loads))
        }
        machine = json.dumps(
            {
                "kernel": platform.release(),
                "machine": platform.machine(),
                "jobs": jobs,
                "link_mbit": LINK_MBIT,
            }
        )
        text = (
            f"{{\n"
            f' "host": {machine},\n'
            f' "spread": [\n'
            f"  {lines['spread']}\n"
            f" ],\n"
            f' "loads": [\n'
            f" "
            f" {lines['loads']}\n"
            f" ]\n"
            f"}}\n"
        )
        Path(sys.argv[1]).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
