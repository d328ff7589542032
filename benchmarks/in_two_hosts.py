"""Runs a busbw command over two emulated hosts of this machine: `in_two_hosts.py MBIT/S [-p RANKS] plan gpt-small --batch-size 2 ...`.

Needs root: the hosts are network namespaces, joined by a veth pair limited to MBIT/S (0: no limit; tests/netlab). Each rank computes with
one thread, because all hosts share this machine's cores.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "netlab"))

import netlab  # noqa: E402 - found by the path above


def main() -> int:
    """Make the hosts, run, and remove the hosts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("rate", type=float, metavar="MBIT/S")
    parser.add_argument("-p", dest="ranks", type=int, default=1, help="ranks a host (default 1)")
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, netlab.lab(Path(folder), 2, rate_mbit=asked.rate or None) as lab:
        places = ",".join(f"{host.address}:{asked.ranks}" for host in lab.hosts)
        words = [*asked.words, "--hosts", places, "--ifname", "10.77.0.0/24"]
        environment = {**lab.environment(), "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
        return subprocess.run(lab.hosts[0].enter(sys.executable, "-m", "busbw", *words), env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
