"""How long the net plugin pauses because of loss and congestion control: `net_loss.py [FILE.json]
[ROUNDS]`.

Needs root: hosts, routers and the link between routers are network namespaces
(tests/native/paths.py). In each step both hosts send each other MESSAGES, the size of a bucket of
gradients. The link drops what does not fit its queue. Settings in turn, ROUNDS times.
"""

import json
import platform
import statistics
import sys
import time
from pathlib import Path

import net_loopback

TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path[:0] = [str(TESTS / "native"), str(TESTS / "netlab")]

import netlab  # noqa: E402 - found by the path above, as are those below
import paths  # noqa: E402
from peers import Peer, link  # noqa: E402

ROUNDS = 3
MESSAGES = [3 << 20, 48 << 10]
# Mbit/s, bytes of the queue, and steps; into the last all fits.
LINKS = (
    (2_000, 128 << 10, 60),
    (2_000, 256 << 10, 60),
    (2_000, 1 << 20, 100),
    (10_000, 32 << 20, 1500),
)
SETTINGS = (
    {"CONGESTION": "system", "RTO_MS": "200"},
    {"CONGESTION": "auto", "RTO_MS": "200"},
    {"CONGESTION": "auto", "RTO_MS": "10"},
)


def steps(
    library: Path, made: paths.Paths, speed: int, settings: dict[str, str], count: int
) -> tuple[list[float], int]:
    """Seconds of each step, and how often a retransmission timer expired on the first host."""
    words = {
        f"BUSBW_NET_{name}": value for name, value in {"SPEED": str(speed), **settings}.items()
    }
    a, b = (Peer(library, 11, host.inside, host.addresses[0], **words) for host in made.hosts)
    a.call("init")
    b.call("init")
    (there, back), messages = (
        (link(a, b, 1)[0], link(b, a, 1)[0]),
        [[size, 0, 0] for size in MESSAGES],
    )
    flows = [
        [
            {"comm": there[0], "way": "send", "messages": messages},
            {"comm": back[1], "way": "recv", "messages": messages},
        ],
        [
            {"comm": there[1], "way": "recv", "messages": messages},
            {"comm": back[0], "way": "send", "messages": messages},
        ],
    ]
    taken, before = [], timeouts(a)
    for _ in range(count):
        begun = time.perf_counter()
        for peer, own in zip((a, b), flows, strict=True):
            peer.start("traffic", flows=own, limit_s=30)
        reports = a.result()["flows"] + b.result()["flows"]
        taken.append(time.perf_counter() - begun)
        assert not any(one["error"] or one["faults"] for one in reports), reports
    ran_out = timeouts(a) - before
    a.kill(), b.kill()
    return taken, ran_out


def timeouts(peer: Peer) -> int:
    """Of all connections of its host so far."""
    names, values = (
        line.split()
        for line in Path(f"/proc/{peer.process.pid}/net/netstat").read_text().splitlines()[:2]
    )
    return int(values[names.index("TCPTimeouts")]) + int(values[names.index("TCPLossProbes")])


def report(rows: list[dict]) -> str:
    """A line for each link and setting, over all rounds."""
    head = f"{'Mbit/s':>7} {'queue KiB':>9} {'congestion':>10} {'RTO ms':>6}"
    lines = [f"{head} {'median ms':>10} {'mean':>7} {'99 %':>7} {'longest':>8} {'timers':>7}"]
    for row in rows:
        taken = [1e3 * one for some in row["steps_s"] for one in some]
        head = (
            f"{row['link_mbit']:7} {row['queue_bytes'] >> 10:9} {row['settings']['CONGESTION']:>10}"
            f" {row['settings']['RTO_MS']:>6}"
        )
        high = statistics.quantiles(taken, n=100)[-1]
        lines.append(
            f"{head} {statistics.median(taken):10.1f} {statistics.mean(taken):7.1f} {high:7.1f}"
            f" {max(taken):8.1f} {sum(row['timers']):7}"
        )
    return "\n".join(lines)


def main() -> int:
    """Make the network, run, print the table and write the figures to the file, if given."""
    library, rounds = (
        Path(net_loopback.build()["native"]),
        (int(sys.argv[2]) if len(sys.argv) > 2 else ROUNDS),
    )
    rows = [
        {
            "link_mbit": mbit,
            "queue_bytes": queue,
            "settings": settings,
            "count": count,
            "steps_s": [],
            "timers": [],
        }
        for mbit, queue, count in LINKS
        for settings in SETTINGS
    ]
    try:
        with paths.paths(1) as made:
            for row in rows * rounds:
                made.limit(row["link_mbit"], row["queue_bytes"])
                taken, ran_out = steps(
                    library, made, row["link_mbit"], row["settings"], row["count"]
                )
                row["steps_s"].append([round(one, 4) for one in taken])
                row["timers"].append(ran_out)
    except netlab.Unavailable as error:
        print(
            f"no emulated network: {error}\n\nhint: run it as root, with ip and tc (iproute2)",
            file=sys.stderr,
        )
        return 3
    print(report(rows))
    if len(sys.argv) > 1:
        own = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
        host = {"kernel": platform.release(), "congestion": own, "messages": MESSAGES}
        text = json.dumps({"host": host}) + "\n" + "\n".join(map(json.dumps, rows)) + "\n"
        Path(sys.argv[1]).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
