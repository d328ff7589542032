"""The net plugin compared with raw TCP over this machine's loopback, three alternating rounds:
ratios at the level of the transport.

`python benchmarks/net_loopback.py [FILE.json]` builds the plugin and the programs of `native/` with
cargo and prints one table. Loopback shares the processors between both ends, so the ratios are more
useful than the rates. If the system's congestion control is BBR, the plugin uses cubic, and so does
raw TCP here, except in rows that end in BBR. Shares are relative to the best raw TCP.
"""

import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROUNDS = 3
SECONDS = 2.0
LIMIT_S = 60
HOST = "127.0.0.1"
NATIVE = Path(__file__).resolve().parents[1] / "native"
RAW = {
    "raw TCP one way, 1 stream": ("--streams", "1"),
    "raw TCP one way, 4 streams": ("--streams", "4"),
    "raw TCP both ways, 1 stream each": ("--streams", "1", "--both"),
    "raw TCP both ways, 4 streams each": ("--streams", "4", "--both"),
}
# 1 MiB is a slice of NCCL's ring with its default buffers, 128 KiB of its point-to-point traffic.
PLUGIN = {
    "plugin one way, 1 MiB": ("--mode", "one-way"),
    "plugin both ways, 1 MiB": ("--mode", "both-ways"),
    "plugin both ways, 128 KiB": ("--mode", "both-ways", "--size", "131072"),
    "plugin in lock step, 1 MiB": ("--mode", "lock-step"),
}
LATENCY = {
    "plugin ping-pong, 8 B": ("--mode", "ping-pong", "--size", "8"),
    "plugin ping-pong, 64 KiB": ("--mode", "ping-pong", "--size", "65536"),
}
BBR = ", BBR"
CUBIC = ("--congestion", "cubic")  # of raw TCP
CEILINGS = {
    "one way": [name for name in RAW if "one way" in name],
    "both ways": [name for name in RAW if "both ways" in name],
}


def build() -> dict[str, str]:
    """Paths of the programs and of the library by the name of their target."""
    argv = [
        "cargo",
        "build",
        "--release",
        "--manifest-path",
        str(NATIVE / "Cargo.toml"),
        "-p",
        "busbw-harness",
        "-p",
        "busbw-plugin",
    ]
    done = subprocess.run(
        [*argv, "--message-format=json-render-diagnostics"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    made = {}
    for line in done.stdout.splitlines():
        message = json.loads(line)
        if message["reason"] == "compiler-artifact":
            programs = [
                file for file in message["filenames"] if not file.endswith((".rlib", ".rmeta"))
            ]
            if programs:
                made[message["target"]["name"]] = programs[0]
    return made


@contextlib.contextmanager
def serving(*argv: str) -> Iterator[str]:
    """The port of a program that serves on a free port of the loopback."""
    with subprocess.Popen([*argv, HOST, "0"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield process.stdout.readline().rsplit(":", 1)[1].strip()
        finally:
            process.kill()


def measure(
    program: str, before: tuple[str, ...], words: tuple[str, ...], congestion: str = "auto"
) -> dict:
    """One run of a program against itself."""
    os.environ["BUSBW_NET_CONGESTION"] = congestion
    with serving(program, "serve", *before) as port:
        argv = [program, "run", *before, HOST, port, *words, "--seconds", str(SECONDS)]
        return json.loads(
            subprocess.run(
                argv, stdout=subprocess.PIPE, text=True, timeout=LIMIT_S, check=True
            ).stdout
        )


def paced() -> bool:
    """Whether the system's congestion control is BBR."""
    return Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().startswith("bbr")


def rate(run: dict) -> float:
    """GB/s of both directions."""
    return run["to_GBps"] + run["from_GBps"]


def report(runs: dict[str, list[dict]]) -> str:
    """Median, minimum and maximum of the rounds; for the plugin also the share of the best raw
    figure of its direction and round.
    """
    raw_rows = {
        way: [row for row in runs if row.removesuffix(BBR) in names]
        for way, names in CEILINGS.items()
    }
    lines = [f"{'':34} {'GB/s':>7} {'least':>7} {'most':>7} {'CPU s/GB':>9} {'of raw':>7}"]
    for name in [name for name in runs if name.removesuffix(BBR) not in LATENCY]:
        rates = [rate(run) for run in runs[name]]
        cpu = statistics.median(run["cpu_s_per_GB"] for run in runs[name])
        share = ""
        if name.removesuffix(BBR) not in RAW:
            ceilings = raw_rows["one way" if "one way" in name else "both ways"]
            shares = [
                one / max(rate(runs[raw][number]) for raw in ceilings)
                for number, one in enumerate(rates)
            ]
            share = f"{statistics.median(shares):7.0%}"
        lines.append(
            f"{name:34} {statistics.median(rates):7.2f} {min(rates):7.2f} {max(rates):7.2f}"
            f" {cpu:9.3f} {share:>7}".rstrip()
        )
    lines.append(
        f"\n"
        f"{'one way, in microseconds':34} {'median':>7} {'least':>7} {'most':>7} {'min':>9}"
        f" {'p99':>7}"
    )
    for name in [name for name in runs if name.removesuffix(BBR) in LATENCY]:
        found = [run["latency_us"] for run in runs[name]]
        medians = [one["median"] for one in found]
        least, p99 = (
            min(one["min"] for one in found),
            statistics.median(one["p99"] for one in found),
        )
        lines.append(
            f"{name:34} {statistics.median(medians):7.1f} {min(medians):7.1f} {max(medians):7.1f}"
            f" {least:9.1f} {p99:7.1f}"
        )
    return "\n".join(lines)


def main() -> int:
    """Build, run the rounds, print the table and write the runs to the file, if given."""
    made = build()
    os.environ["BUSBW_NET_IFNAME"] = "=lo"
    settings = {"": "auto", BBR: "system"} if paced() else {"": "auto"}
    raw_settings: dict[str, tuple[str, ...]] = {"": CUBIC, BBR: ()} if paced() else {"": ()}
    runs: dict[str, list[dict]] = {}
    for _ in range(ROUNDS):
        for (name, words), (ending, before) in itertools.product(RAW.items(), raw_settings.items()):
            runs.setdefault(name + ending, []).append(measure(made["rawtcp"], before, words))
        for (name, words), (ending, congestion) in itertools.product(
            (PLUGIN | LATENCY).items(), settings.items()
        ):
            runs.setdefault(name + ending, []).append(
                measure(made["netbench"], (made["native"],), words, congestion)
            )
    print(report(runs))
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(json.dumps(runs, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
