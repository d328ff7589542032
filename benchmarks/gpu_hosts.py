"""Two emulated hosts, h1 and h2, with a GPU and half of this machine's cores each, without the commands `ip` and `tc`.

    gpu_hosts.py 25 train vgg16 --batch-size 128          a busbw command over both, 25 Gbit/s between them (0: no limit; at most 34)
    gpu_hosts.py 25 each step_parts.py vgg16 fp32 128     a Python program on each, with the variables of torchrun

Needs root and pyroute2. The hosts are network and UTS namespaces, joined by a veth pair with MTU 9000. If the machine has one GPU, each
host has half of its multiprocessors through CUDA's Multi-Process Service (MPS). Without MPS the kernels of two processes would alternate,
and those of NCCL would wait for each other.
"""

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from pyroute2 import IPRoute, NetNS, netns

HOSTS = ("h1", "h2")
ROOT = Path(__file__).resolve().parents[1]
AGENT = Path("/run/busbw-gpu-hosts-agent")
# A launcher may be forbidden to start anything elsewhere by the machine's own settings.
DROPPED = ("OMPI_MCA_plm",)


def join(gbit: float) -> None:
    """Make the hosts anew."""
    for host in HOSTS:
        with contextlib.suppress(OSError):
            netns.remove(host)
        netns.create(host)
    with IPRoute() as here:
        here.link("add", ifname="v1", kind="veth", peer={"ifname": "v2"})
        for number, host in enumerate(HOSTS, 1):
            here.link("set", index=here.link_lookup(ifname=f"v{number}")[0], net_ns_fd=host)
    for number, host in enumerate(HOSTS, 1):
        with NetNS(host) as inside:
            inside.link("set", index=inside.link_lookup(ifname="lo")[0], state="up")
            veth = inside.link_lookup(ifname=f"v{number}")[0]
            inside.link("set", index=veth, mtu=9000)
            inside.addr("add", index=veth, address=f"10.77.0.{number}", prefixlen=24)
            inside.link("set", index=veth, state="up")
            if gbit:
                inside.tc("add", "tbf", veth, handle=0x10000, rate=f"{int(gbit * 1000)}mbit", burst=4 << 20, latency="20ms")


def enter(number: int) -> list[str]:
    """The prefix of a command that runs it on host 0 or 1."""
    half = (os.cpu_count() or 2) // 2  # of the machine's: the launch agent has only one half itself
    mine = f"{number * half}-{(number + 1) * half - 1}"
    inside = [
        "nsenter",
        f"--net=/var/run/netns/{HOSTS[number]}",
        "unshare",
        "--uts",
        "sh",
        "-c",
        'hostname "$0" && exec "$@"',
        HOSTS[number],
    ]
    return ["taskset", "-c", mine, *inside]


def environment(number: int) -> dict[str, str]:
    """The environment of this process, with the GPU of the host."""
    own = {name: value for name, value in os.environ.items() if name not in DROPPED}
    paths = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH", ""), str(ROOT / "src")]))
    one = gpus() == 1
    half = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"} if one else {}
    return {**own, "PYTHONPATH": paths, "CUDA_VISIBLE_DEVICES": "0" if one else str(number), **half}


def gpus() -> int:
    """The number of GPUs of this machine."""
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False).stdout if shutil.which("nvidia-smi") else ""
    return len(listed.splitlines())


def share() -> None:
    """Start MPS; has no effect if it runs already."""
    control = shutil.which("nvidia-cuda-mps-control")
    if control and gpus() == 1:
        subprocess.run([control, "-d"], capture_output=True, check=False, timeout=20)


def launch_agent() -> dict[str, str]:
    """The variables that make Open MPI 4 and 5 use this program instead of ssh: AGENT HOST COMMAND."""
    cases = "\n".join(f"{host}|10.77.0.{number}) number={number - 1};;" for number, host in enumerate(HOSTS, 1))
    lines = ["#!/bin/sh", "host=$1; shift", "case $host in", cases, "*) exit 255;;", "esac"]
    lines.append(f'exec "{sys.executable}" "{Path(__file__).resolve()}" agent $number "$@"')
    AGENT.write_text("\n".join(lines) + "\n")
    AGENT.chmod(0o755)
    return {"PRTE_MCA_plm_ssh_agent": str(AGENT), "OMPI_MCA_plm_rsh_agent": str(AGENT)}


def each(words: list[str]) -> int:
    """A Python program on both hosts."""
    ranks = []
    for number in range(len(HOSTS)):
        torchrun = {
            "RANK": str(number),
            "WORLD_SIZE": "2",
            "LOCAL_RANK": "0",
            "MASTER_ADDR": "10.77.0.1",
            "MASTER_PORT": "29500",
            "NCCL_HOSTID": HOSTS[number],
        }
        interface = dict.fromkeys(("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"), f"v{number + 1}")
        ranks.append(subprocess.Popen([*enter(number), sys.executable, *words], env={**environment(number), **torchrun, **interface}))
    return max(rank.wait() for rank in ranks)


def main(words: list[str]) -> int:
    """Make the hosts and run; as the launch agent, only run."""
    if words[:1] == ["agent"]:
        number = int(words[1])
        kept = {name: value for name, value in environment(number).items() if not name.startswith(("OMPI_", "PMIX_", "PRTE_"))}
        os.execvpe("taskset", [*enter(number), "sh", "-c", " ".join(words[2:])], kept)
    if len(words) < 2:
        sys.exit((__doc__ or "").strip())
    join(float(words[0]))
    share()
    if words[1] == "each":
        return each(words[2:])
    busbw = [sys.executable, "-m", "busbw", *words[1:], "--hosts", "h1:1,h2:1", "--ifname", "10.77.0.0/24"]
    return subprocess.run([*enter(0), *busbw], env={**environment(0), **launch_agent()}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
