"""The time of a run with the system's TCP congestion control and with reno: `tcp_congestion.py
FILE.json`, as root.

Two emulated hosts of this machine (network namespaces joined by a veth pair, limited to each of
RATES), one rank of the mpi engine on each, both settings in turn, ROUNDS times. In a new namespace
the kernel allows no third setting.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "netlab"))

import netlab  # noqa: E402 - found by the path above

ROUNDS = 5
RATES = (None, 10_000, 2_000)  # Mbit/s; without a limit at first
SETTING = "net.ipv4.tcp_congestion_control"
WORDS = (
    "run",
    "all_reduce",
    "--engine",
    "mpi",
    "-b",
    "8",
    "-e",
    "16M",
    "-f",
    "8",
    "--timing",
    "classic",
    "--iters",
    "50",
)


def medians(lab: Any, control: str, file: Path) -> dict[int, float]:
    """Seconds by bytes, of the faster placement."""
    for host in lab.hosts:
        subprocess.run(host.enter("sysctl", "-qw", f"{SETTING}={control}"), check=True)
    places = ",".join(f"{host.address}:1" for host in lab.hosts)
    argv = [
        sys.executable,
        "-m",
        "busbw",
        *WORDS,
        "--hosts",
        places,
        "--ifname",
        "10.77.0.0/24",
        "--json",
        str(file),
    ]
    environment = {**lab.environment(), "PYTHONPATH": str(ROOT / "src")}
    subprocess.run(
        lab.hosts[0].enter(*argv),
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=120,
    )
    rows = json.loads(file.read_text())["rows"]
    return {
        row["size_bytes"]: min(row[place]["time_s"] for place in ("out_of_place", "in_place"))
        for row in rows
    }


def main() -> int:
    """Measure, print and write the results."""
    out = Path(sys.argv[1])
    own = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    every: dict[str, dict[str, list[dict[int, float]]]] = {}
    for rate in RATES:
        found = every[f"{rate or 'no limit'}"] = {own: [], "reno": []}
        with tempfile.TemporaryDirectory() as folder, netlab.lab(2, rate) as lab:
            for _ in range(ROUNDS):
                for control, runs in found.items():
                    runs.append(medians(lab, control, Path(folder) / "result.json"))
        out.write_text(json.dumps(every, indent=1) + "\n")
        print(
            f"{rate or 'no limit':>10}"
            + "".join(f"{f'{control}, us':>14} {'least':>8} {'most':>8}" for control in found)
        )
        for size in found[own][0]:
            columns = ([1e6 * run[size] for run in runs] for runs in found.values())
            print(
                f"{size:>10}"
                + "".join(
                    f"{statistics.median(us):14.1f} {min(us):8.1f} {max(us):8.1f}" for us in columns
                ),
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
