"""CPU time of the net plugin's threads on slow links, compared with raw TCP: `net_slow_link.py
FILE.json [LIBRARY]`.

Needs root: two emulated hosts of this machine, joined by a veth whose queue limits to each of RATES
in turn, ROUNDS times. LIBRARY, of another commit, is measured in alternation with this one. Threads
spin for 100 us, as in a rank with eight cores. Raw TCP uses cubic if the plugin does.
"""

import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import net_loopback

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "tests" / "netlab")]

import netlab  # noqa: E402 - found by the path above

ROUNDS = 3
RATES = (2_000, 6_000, 10_000, None)  # Mbit/s; none at last
LIMIT_S = 60
PLUGIN = {
    "one way, 1 MiB": ("--mode", "one-way"),
    "both ways, 1 MiB": ("--mode", "both-ways"),
    "ping-pong, 64 KiB": ("--mode", "ping-pong", "--size", "65536"),
    "ping-pong, 8 B": ("--mode", "ping-pong", "--size", "8"),
}
RAW = {"one way, 1 MiB": ("--streams", "4"), "both ways, 1 MiB": ("--streams", "4", "--both")}
SETTINGS = {"BUSBW_NET_THREADS": "12", "BUSBW_NET_SPIN_US": "100"}


def measure(lab: Any, program: str, before: tuple[str, ...], words: tuple[str, ...]) -> dict:
    """One run of a program on the first host against itself on the second."""
    here, there = lab.hosts
    environment = {**os.environ, **SETTINGS}
    serve = there.enter(program, "serve", *before, there.address, "0")
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True, env=environment) as serving:
        assert serving.stdout
        try:
            port = serving.stdout.readline().rsplit(":", 1)[1].strip()
            argv = here.enter(
                program,
                "run",
                *before,
                there.address,
                port,
                *words,
                "--seconds",
                str(net_loopback.SECONDS),
            )
            return json.loads(
                subprocess.run(
                    argv,
                    stdout=subprocess.PIPE,
                    text=True,
                    timeout=LIMIT_S,
                    check=True,
                    env=environment,
                ).stdout
            )
        finally:
            serving.kill()


def threads_cpu(run: dict) -> float:
    """Core-seconds per GB, without the thread that stands for NCCL's, which never sleeps."""
    return run["cpu_s_per_GB"] - run.get("driver_cpu_s_per_GB", 0.0)


def rounds(made: dict[str, str], libraries: dict[str, str]) -> Iterator[tuple[str, dict]]:
    """Every run: its description and its figures."""
    raw_setting = net_loopback.CUBIC if net_loopback.paced() else ()
    for rate in RATES:
        limit = rate or "no"
        with netlab.lab(2, rate) as lab:
            for _ in range(ROUNDS):
                for name, words in RAW.items():
                    yield (
                        f"{limit:>6} raw TCP, {name}",
                        measure(lab, made["rawtcp"], raw_setting, words),
                    )
                for name, words in PLUGIN.items():
                    for which, library in libraries.items():
                        yield (
                            f"{limit:>6} {which}, {name}",
                            measure(lab, made["netbench"], (library,), words),
                        )


def report(runs: dict[str, list[dict]]) -> str:
    """Medians of the rounds, with minimum and maximum."""
    lines = [f"{'Mbit/s':36} {'GB/s':>6} {'CPU s/GB':>9} {'least':>6} {'most':>6} {'us':>7}"]
    for name, found in runs.items():
        cpu, rate = (
            [threads_cpu(run) for run in found],
            statistics.median(map(net_loopback.rate, found)),
        )
        latency = [run["latency_us"]["median"] for run in found if run.get("latency_us")]
        ending = f" {statistics.median(latency):7.1f}" if latency else ""
        lines.append(
            f"{name:36} {rate:6.2f} {statistics.median(cpu):9.2f} {min(cpu):6.2f}"
            f" {max(cpu):6.2f}{ending}"
        )
    return "\n".join(lines)


def main() -> int:
    """Build, measure, print and write the results."""
    file = Path(sys.argv[1])
    file.touch()
    made = net_loopback.build()
    libraries = {"plugin": made["native"], **({"other": sys.argv[2]} if sys.argv[2:] else {})}
    runs: dict[str, list[dict]] = {}
    for name, run in rounds(made, libraries):
        runs.setdefault(name, []).append(run)
        file.write_text(
            json.dumps({"kernel": platform.release(), "settings": SETTINGS, "runs": runs}, indent=1)
            + "\n"
        )
    print(report(runs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
