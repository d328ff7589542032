"""Two emulated hosts, h1 and h2, with half of this machine's GPUs and cores each, without the
commands `ip` and `tc`.

    gpu_hosts.py 25 train vgg16 --batch-size 128          a busbw command over both, 25 Gbit/s
        between them (0: no limit; at most 34)
    gpu_hosts.py -p 2 0 run all_reduce                    two ranks on each host
    gpu_hosts.py 25 each step_parts.py vgg16 fp32 128     a Python program on each, with the
        variables of torchrun

Needs root and pyroute2. The hosts are a lab of busbw. If there are too few GPUs, the hosts share
them, with half of the multiprocessors each, through CUDA's Multi-Process Service (MPS).
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from busbw import lab  # noqa: E402 - found by the path above
from busbw.lab import host_exec  # noqa: E402
from busbw.lab.types import NETWORK, Lab, LabHost, LabSpec, Shape  # noqa: E402

HOSTS = ("h1", "h2")
NAME = "gpu-hosts"
BURST = 4 << 20


def environment(made: Lab, host: LabHost) -> dict[str, str]:
    """The environment of this process, with the GPU of the host."""
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


def each(made: Lab, words: list[str]) -> int:
    """A Python program on both hosts."""
    ranks = []
    for number, host in enumerate(made.hosts):
        torchrun = {
            "RANK": str(number),
            "WORLD_SIZE": "2",
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


def main(words: list[str]) -> int:
    """Make the hosts, run, and remove the hosts; as the launch agent, only run."""
    if words[:1] == ["agent"]:
        made = lab.find(NAME)
        host = made.host(words[1])
        kept = {
            name: value
            for name, value in environment(made, host).items()
            if not name.startswith(("OMPI_", "PMIX_", "PRTE_"))
        }
        argv = host_exec.enter(made, host, "sh", "-c", " ".join(words[2:]))
        os.execvpe(argv[0], argv, kept)
    ranks = "1"
    if words[:1] == ["-p"]:
        ranks, words = words[1], words[2:]
    if len(words) < 2:
        sys.exit((__doc__ or "").strip())
    own = int(ranks) if ranks != "1" else None
    gbit = float(words[0])
    shape = Shape(rate=gbit * 1e9 / 8, burst=BURST) if gbit else Shape()
    with lab.temporary_lab(
        LabSpec(name=NAME, names=list(HOSTS), shape=shape, sshd=False, gpus=own)
    ) as made:
        for note in made.notes:
            print(f"note: {note}", file=sys.stderr)
        if words[1] == "each":
            return each(made, words[2:])
        first = made.hosts[0]
        busbw = [
            sys.executable,
            "-m",
            "busbw",
            *words[1:],
            "--hosts",
            f"h1:{ranks},h2:{ranks}",
            "--ifname",
            NETWORK,
        ]
        argv, own = (
            host_exec.enter(made, first, *busbw),
            {**environment(made, first), **launch_agent(made)},
        )
        return subprocess.run(argv, env=own, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
