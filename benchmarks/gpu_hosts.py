"""Emulated hosts h1, h2, ..., each with its share of this machine's GPUs and cores, without the
commands `ip` and `tc`.

    gpu_hosts.py 25 train vgg16 --batch-size 128          a busbw command over two hosts, 25 Gbit/s
        between them (0: no limit; at most 34)
    gpu_hosts.py -n 4 -p 2 0 run all_reduce               four hosts, two ranks on each
    gpu_hosts.py --cpus 1 plan gpt-small                  ranks on CPUs: no GPUs, all hosts share
        the cores, and a rank computes with one thread
    gpu_hosts.py 25 each step_parts.py vgg16 fp32 128     a Python program on each, with the
        variables of torchrun

Needs root and pyroute2. The hosts are a lab of busbw. If there are too few GPUs, the hosts share
them, with a part of the multiprocessors each, through CUDA's Multi-Process Service (MPS).
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from busbw import lab  # noqa: E402 - found by the path above
from busbw.core.errors import BusbwError  # noqa: E402
from busbw.lab import host_exec  # noqa: E402
from busbw.lab.types import NETWORK, Lab, LabHost, LabSpec, Shape  # noqa: E402

NAME = "gpu-hosts"
BURST = 4 << 20


def environment(made: Lab, host: LabHost) -> dict[str, str]:
    """The environment of this process, with the GPUs of the host."""
    paths = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH", ""), str(ROOT / "src")]))
    return {**host_exec.environment(made, host, os.environ), "PYTHONPATH": paths}


def launch_agent(made: Lab) -> dict[str, str]:
    """The variables that make Open MPI 4 and 5 use this program instead of ssh: AGENT HOST COMMAND.

    It passes the environment on.
    """
    agent = Path(made.folder, "agent")
    agent.write_text(
        f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__).resolve()}" agent "$@"\n'
    )
    agent.chmod(0o755)
    return {"PRTE_MCA_plm_ssh_agent": str(agent), "OMPI_MCA_plm_rsh_agent": str(agent)}


def run_agent(name: str, command: list[str]) -> None:
    """Become the command on a host."""
    made = lab.find(NAME)
    host = made.host(name)
    kept = {
        name: value
        for name, value in environment(made, host).items()
        if not name.startswith(("OMPI_", "PMIX_", "PRTE_"))
    }
    argv = host_exec.enter(made, host, "sh", "-c", " ".join(command))
    os.execvpe(argv[0], argv, kept)


def each(made: Lab, words: list[str]) -> int:
    """A Python program on every host."""
    ranks = []
    for number, host in enumerate(made.hosts):
        torchrun = {
            "RANK": str(number),
            "WORLD_SIZE": str(len(made.hosts)),
            "LOCAL_RANK": "0",
            "MASTER_ADDR": made.hosts[0].address,
            "MASTER_PORT": "29500",
            "NCCL_HOSTID": host.name,
        }
        interface = dict.fromkeys(("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"), host.interface)
        argv = host_exec.enter(made, host, sys.executable, *words)
        ranks.append(
            subprocess.Popen(argv, env={**environment(made, host), **torchrun, **interface})
        )
    return max(rank.wait() for rank in ranks)


def over_all(made: Lab, ranks: int, words: list[str]) -> int:
    """A busbw command with so many ranks on each host."""
    places = ",".join(f"{host.name}:{ranks}" for host in made.hosts)
    busbw = [sys.executable, "-m", "busbw", *words, "--hosts", places, "--ifname", NETWORK]
    first = made.hosts[0]
    variables = {**environment(made, first), **launch_agent(made)}
    argv = host_exec.enter(made, first, *busbw)
    return subprocess.run(argv, env=variables, check=False).returncode


def arguments() -> argparse.Namespace:
    """Of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-n", dest="hosts", type=int, default=2, help="hosts, 2 to 8 (default 2)")
    parser.add_argument("-p", dest="ranks", type=int, default=1, help="ranks, and GPUs, of a host")
    parser.add_argument("--cpus", action="store_true", help="ranks on CPUs")
    parser.add_argument("gbit", type=float, metavar="GBIT/S")
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND")
    asked = parser.parse_args()
    if asked.words[:1] == ["each"] and asked.ranks > 1:
        parser.error("-p: each host runs one process of `each`")
    return asked


def main() -> int:
    """Make the hosts, run, and remove the hosts."""
    asked = arguments()
    rate = asked.gbit * 1e9 / 8 if asked.gbit else None
    gpus = 0 if asked.cpus else asked.ranks
    spec = LabSpec(
        name=NAME,
        names=[f"h{number}" for number in range(1, asked.hosts + 1)],
        shape=Shape(rate=rate, burst=BURST if rate and not asked.cpus else None),
        sshd=False,
        gpus=None if gpus == 1 else gpus,  # None also where there is no GPU
        share_cores=asked.cpus,
    )
    if asked.cpus:
        os.environ["OMP_NUM_THREADS"] = "1"
    with lab.temporary_lab(spec) as made:
        for note in made.notes:
            print(f"note: {note}", file=sys.stderr)
        if asked.words[:1] == ["each"]:
            return each(made, asked.words[1:])
        return over_all(made, asked.ranks, asked.words)


if __name__ == "__main__":
    try:
        if sys.argv[1:2] == ["agent"]:
            run_agent(sys.argv[2], sys.argv[3:])
        sys.exit(main())
    except BusbwError as error:
        print(error.render(), file=sys.stderr)
        sys.exit(error.exit)
