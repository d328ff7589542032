"""Blocks of a KV cache between two emulated hosts that two cables join, over each alone and over
both: `kv_two_hosts.py FOLDER [OPTION ...]`.

Needs root, pyroute2, busbw[torch] and nixl-cu13. FOLDER gets rails.json and rails.txt, what
`busbw backends` writes and prints; the options are added to its own.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "netlab")]

import netlab  # noqa: E402 - found by the path above

FAST, SLOW = ("10.77.0.0/24", 1600), ("10.78.0.0/24", 400)  # Mbit/s
BACKENDS = "gloo-grouped,gloo-packed,nixl,nixl-write"
WORDS = f"sendrecv --blocks 64 -b 16K -e 256K -f 4 --backends {BACKENDS} --max-time 1s --no-history"
WHERE = ("--hosts", "10.77.0.1:1,10.77.0.2:1", "--ifname", FAST[0])
LIMIT_S = 500


def main() -> int:
    """Measure, print and write the result."""
    folder, options = Path(sys.argv[1]), sys.argv[2:]
    rails = [word for name, rate in (FAST, SLOW) for word in ("--rail", f"{name}={rate}Mbit/s")]
    command = ["busbw", "backends", *WORDS.split(), *WHERE, *rails, *options]
    with netlab.lab(hosts=2, rate_mbit=FAST[1]) as lab:
        netlab.second_cable(lab, SLOW[1])
        # Both hosts are one machine, whose memory UCX would use.
        environment = {**os.environ, **lab.environment(), "UCX_TLS": "tcp,self", "COLUMNS": "100"}
        argv = [sys.executable, "-m", *command, "--json", str(folder / "rails.json"), "--force"]
        done = subprocess.run(
            lab.hosts[0].enter(*argv),
            env={**environment, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT / "src")},
            stdout=subprocess.PIPE,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    (folder / "rails.txt").write_text(f"$ UCX_TLS=tcp,self {' '.join(command)}\n{done.stdout}")
    print(done.stdout)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
