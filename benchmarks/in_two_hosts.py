"""Runs a busbw command over two emulated hosts of this machine: `in_two_hosts.py [-p RANKS] MBIT/S
plan gpt-small --batch-size 2 ...`.

Needs root and pyroute2: the hosts are a lab of busbw, whose link is limited to MBIT/S (0: no
limit). Each rank computes with one thread, because all hosts share this machine's cores.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from busbw import lab  # noqa: E402 - found by the path above
from busbw.lab.host_exec import enter, environment  # noqa: E402
from busbw.lab.types import NETWORK, LabSpec, Shape  # noqa: E402


def main() -> int:
    """Make the hosts, run, and remove the hosts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("rate", type=float, metavar="MBIT/S")
    parser.add_argument("-p", dest="ranks", type=int, default=1, help="ranks a host (default 1)")
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND")
    asked = parser.parse_args()
    shape = Shape(rate=asked.rate * 1e6 / 8 if asked.rate else None)
    spec = LabSpec(
        name=f"in-two-hosts-{os.getpid()}",
        names=["h1", "h2"],
        shape=shape,
        sshd=False,
        gpus=0,
        share_cores=True,
    )
    with lab.temporary_lab(spec) as made:
        places = ",".join(f"{host.address}:{asked.ranks}" for host in made.hosts)
        first, words = made.hosts[0], [*asked.words, "--hosts", places, "--ifname", NETWORK]
        own = {
            **environment(made, first, os.environ),
            "PYTHONPATH": str(ROOT / "src"),
            "OMP_NUM_THREADS": "1",
        }
        return subprocess.run(
            enter(made, first, sys.executable, "-m", "busbw", *words), env=own, check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
