"""The TCP test of `busbw link` and what native programs carry over this machine's loopback,
alternating, medians of rounds.

`python benchmarks/link_loopback.py [FILE.json]` builds the native program `rawtcp` with cargo. It
moves 1 MiB pieces with one blocking thread for each stream. `discard` is the same program with the
receiver's kernel dropping the data, as the test has it; iperf3 is left out where it is not
installed. Each end is a session of its own, as nodes are: the kernel divides processors between
sessions.
"""

import contextlib
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from busbw.launch import remote
from busbw.launch.node import RemoteNode
from busbw.link import pair as m
from busbw.link.listening import token
from busbw.link.perftest import free_port, listens

ROUNDS = 11
SECONDS = 1.0
LIMIT_S = 20.0
STREAMS = (1, 2, 4, 8)
HERE = "127.0.0.1"
NATIVE = Path(__file__).resolve().parents[1] / "native"
GOAL = 0.95


def build() -> str:
    """The path of rawtcp."""
    argv = [
        "cargo",
        "build",
        "--release",
        "--manifest-path",
        str(NATIVE / "Cargo.toml"),
        "-p",
        "busbw-harness",
        "--bin",
        "rawtcp",
    ]
    done = subprocess.run(
        [*argv, "--message-format=json-render-diagnostics"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    messages = (json.loads(line) for line in done.stdout.splitlines())
    return next(
        one["executable"]
        for one in messages
        if one["reason"] == "compiler-artifact" and one["target"]["name"] == "rawtcp"
    )


def raw(program: str, streams: int, *options: str) -> float:
    """Bytes per second of the native program."""
    with subprocess.Popen(
        [program, "serve", HERE, "0", *options],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as server:
        assert server.stdout
        try:
            port = server.stdout.readline().rsplit(":", 1)[1].strip()
            argv = [
                program,
                "run",
                HERE,
                port,
                "--streams",
                str(streams),
                "--seconds",
                str(SECONDS),
            ]
            done = subprocess.run(
                argv,
                stdout=subprocess.PIPE,
                text=True,
                timeout=LIMIT_S,
                check=True,
                start_new_session=True,
            )
        finally:
            server.kill()
    return json.loads(done.stdout)["to_GBps"] * 1e9


def iperf3(streams: int) -> float:
    """Bytes per second that iperf3's server received."""
    port = str(free_port())
    with subprocess.Popen(
        ["iperf3", "-s", "-1", "-B", HERE, "-p", port],
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    ) as server:
        try:
            deadline = time.monotonic() + LIMIT_S
            while not listens(server.pid, int(port)) and time.monotonic() < deadline:
                time.sleep(0.01)
            argv = [
                "iperf3",
                "-J",
                "-c",
                HERE,
                "-p",
                port,
                "-P",
                str(streams),
                "-O",
                "1",
                "-t",
                str(max(1, round(SECONDS))),
            ]
            done = subprocess.run(
                argv,
                stdout=subprocess.PIPE,
                text=True,
                timeout=LIMIT_S,
                check=True,
                start_new_session=True,
            )
        finally:
            server.kill()
    return float(json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"]) / 8


@contextlib.contextmanager
def nodes() -> Iterator[tuple[RemoteNode, RemoteNode]]:
    """Two nodes, as the driver starts them on two hosts."""
    words = remote.busbw("link", "--node")
    with contextlib.ExitStack() as undo:
        both = [RemoteNode(HERE, words) for _ in range(2)]
        for one in both:
            undo.callback(one.close)
        yield both[0], both[1]


def link(sender: RemoteNode, receiver: RemoteNode, streams: int) -> float:
    """Bytes per second from node to node."""
    key = token()
    port = receiver.ask(m.Listen(HERE, key), m.Listening, LIMIT_S)
    receiving = receiver.begin(m.Receive(port.ticket, streams, SECONDS, LIMIT_S))
    sending = sender.begin(m.Send(("lo", HERE), HERE, port.port, key, streams, SECONDS, LIMIT_S))
    sender.result(sending, m.TransferEnd, 2 * LIMIT_S)
    return receiver.result(receiving, m.TransferEnd, 2 * LIMIT_S).rate or 0.0


def main() -> int:
    """Run the rounds, print the table, keep the rates in the file that was named.

    1 if the goal is missed at the best stream counts.
    """
    program = build()
    with nodes() as (sender, receiver):
        ways: dict[str, Callable[[int], float]] = {
            "raw": lambda streams: raw(program, streams),
            "link": lambda streams: link(sender, receiver, streams),
            "discard": lambda streams: raw(program, streams, "--discard"),
        }
        if shutil.which("iperf3"):
            ways["iperf3"] = iperf3
        rates: dict[str, dict[int, list[float]]] = {
            name: {streams: [] for streams in STREAMS} for name in ways
        }
        for _ in range(ROUNDS):
            for streams in STREAMS:
                for name, way in ways.items():
                    rates[name][streams].append(way(streams))
    _print(rates)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(json.dumps(rates, indent=1) + "\n")
    best = {
        name: max(statistics.median(some) for some in by.values()) for name, by in rates.items()
    }
    for name in sorted(best.keys() - {"link"}):
        print(f"best of link is {best['link'] / best[name]:.1%} of the best of {name}")
    print(f"the goal is {GOAL:.0%} of raw")
    return int(best["link"] < GOAL * best["raw"])


def _print(rates: dict[str, dict[int, list[float]]]) -> None:
    """Median (least to most) in GB/s; the last column is the median of the rounds' own ratios."""
    print(f"{'streams':>7} " + " ".join(f"{name:>22}" for name in rates) + f" {'link / raw':>11}")
    for streams in STREAMS:
        some = [[rate / 1e9 for rate in by[streams]] for by in rates.values()]
        cells = [f"{statistics.median(one):.2f} ({min(one):.2f} to {max(one):.2f})" for one in some]
        ratio = statistics.median(
            b / a for a, b in zip(rates["raw"][streams], rates["link"][streams], strict=True)
        )
        print(f"{streams:>7} " + " ".join(f"{cell:>22}" for cell in cells) + f" {ratio:>11.1%}")


if __name__ == "__main__":
    sys.exit(main())
