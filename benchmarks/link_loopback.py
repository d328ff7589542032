"""The TCP test of `busbw link` compared with raw TCP over this machine's loopback: ratios of medians, alternating rounds.

`python benchmarks/link_loopback.py [FILE.json]` builds the native program `rawtcp` with cargo, which moves the same 1 MiB pieces with one
blocking thread for each stream, and prints one table. Loopback shares the processors between both ends.
"""

import contextlib
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from busbw.launch import remote
from busbw.launch.node import Node
from busbw.link import messages as m
from busbw.link.authentication import token

ROUNDS = 5
SECONDS = 2.0
LIMIT_S = 20.0
STREAMS = (1, 2, 4, 8)
HERE = "127.0.0.1"
NATIVE = Path(__file__).resolve().parents[1] / "native"
GOAL = 0.95


def build() -> str:
    """The path of rawtcp."""
    argv = ["cargo", "build", "--release", "--manifest-path", str(NATIVE / "Cargo.toml"), "-p", "harness", "--bin", "rawtcp"]
    done = subprocess.run([*argv, "--message-format=json-render-diagnostics"], stdout=subprocess.PIPE, text=True, check=True)
    messages = (json.loads(line) for line in done.stdout.splitlines())
    return next(one["executable"] for one in messages if one["reason"] == "compiler-artifact" and one["target"]["name"] == "rawtcp")


def raw(program: str, streams: int) -> float:
    """Bytes per second of the native program."""
    with subprocess.Popen([program, "serve", HERE, "0"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        try:
            port = server.stdout.readline().rsplit(":", 1)[1].strip()
            argv = [program, "run", HERE, port, "--streams", str(streams), "--seconds", str(SECONDS)]
            done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, timeout=LIMIT_S, check=True)
        finally:
            server.kill()
    return json.loads(done.stdout)["to_GBps"] * 1e9


@contextlib.contextmanager
def nodes() -> Iterator[tuple[Node, Node]]:
    """Two nodes, as the driver starts them on two hosts."""
    words = remote.busbw("link", "--node")
    with contextlib.ExitStack() as undo:
        both = [Node(HERE, words) for _ in range(2)]
        for one in both:
            undo.callback(one.close)
        yield both[0], both[1]


def link(sender: Node, receiver: Node, streams: int) -> m.Taken:
    """One transfer from node to node."""
    key = token()
    port = receiver.ask(m.Listen(HERE, key), m.Listening, LIMIT_S)
    receiving = receiver.begin(m.Receive(port.ticket, streams, SECONDS, LIMIT_S))
    sending = sender.begin(m.Send(("lo", HERE), HERE, port.port, key, streams, SECONDS, LIMIT_S))
    sender.result(sending, m.Taken, 2 * LIMIT_S)
    return receiver.result(receiving, m.Taken, 2 * LIMIT_S)


def main() -> int:
    """Run the rounds, print the table and write the rates to the file, if given. 1 if the goal is missed at the best stream counts."""
    program = build()
    rates: dict[str, dict[int, list[float]]] = {name: {streams: [] for streams in STREAMS} for name in ("raw", "link")}
    with nodes() as (sender, receiver):
        for _ in range(ROUNDS):
            for streams in STREAMS:
                rates["raw"][streams].append(raw(program, streams))
                rates["link"][streams].append(link(sender, receiver, streams).rate or 0.0)
    print(f"{'streams':>7} {'raw GB/s':>9} {'link GB/s':>10} {'ratio':>6} {'least':>9} {'most':>6}")
    for streams in STREAMS:
        one, other = rates["raw"][streams], rates["link"][streams]
        ratios = sorted(b / a for a, b in zip(one, other, strict=True))
        middle = [statistics.median(some) for some in (one, other)]
        shares = f"{ratios[len(ratios) // 2]:>6.1%} {ratios[0]:>9.1%} {ratios[-1]:>6.1%}"
        print(f"{streams:>7} {middle[0] / 1e9:>9.2f} {middle[1] / 1e9:>10.2f} {shares}")
    best = {name: max(statistics.median(some) for some in by.values()) for name, by in rates.items()}
    share = best["link"] / best["raw"]
    print(f"best of link is {share:.1%} of the best raw rate; the goal is {GOAL:.0%}")
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(json.dumps(rates, indent=1) + "\n")
    return int(share < GOAL)


if __name__ == "__main__":
    sys.exit(main())
