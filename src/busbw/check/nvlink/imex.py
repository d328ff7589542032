"""IMEX, which lets GPUs of several hosts share memory over NVLink."""

from collections.abc import Iterator

from busbw.check.base import Check, not_offered, passed, skipped, unanswered, warned
from busbw.check.machine import Machine
from busbw.check.nvlink.linked import switched
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.sizes import counted
from busbw.host.nvidia_services import imex, imex_domain, imex_nodes

CHANNELS = "/dev/nvidia-caps-imex-channels"
COMMAND = "nvidia-imex-ctl -N"
READY, UP = "READY", "UP"
MAKE = f"mkdir -p {CHANNELS}; mknod {CHANNELS}/channel0 c $(grep imex-channels /proc/devices | cut -d' ' -f1) 0"
NAMED = 3  # nodes in a message

ROW = CheckRow(
    id="BW035",
    name="nvlink-imex",
    layer=Layer.NVLINK,
    title="IMEX, on hosts that share one NVLink domain (GB200 NVL72)",
    right=f"{CHANNELS} has a channel, the domain is {UP} and all its nodes are {READY}",
    why="Without IMEX, NCCL silently uses the NICs between hosts instead of NVLink.",
    fix="end the jobs of the domain, then on all nodes of /etc/nvidia-imex/nodes_config.cfg: systemctl restart nvidia-imex",
    stays="systemctl enable nvidia-imex (not in Kubernetes, where ComputeDomains start it); "
    "for the channel, the option NVreg_CreateImexChannel0=1 of the module nvidia",
    reads=(f"{CHANNELS}/channel*", COMMAND, "nvmlDeviceGetGpuFabricInfoV"),
    sources=("NVIDIA IMEX service for NVLink networks, user guide",),
)


def look(machine: Machine) -> Iterator[Found]:
    """The channels, the domain and its nodes."""
    gpus, missing = switched(machine)
    if missing:
        yield missing
        return
    if not any(gpu.fabric and gpu.fabric.cluster for gpu in gpus):
        known = any(gpu.fabric for gpu in gpus)
        yield (
            skipped("the NVLink domain of this machine has no other hosts")
            if known
            else not_offered("", "NVML reports no fabric for these GPUs")
        )
        return
    yield _channels(machine)
    yield from _domain(machine)


def _channels(machine: Machine) -> Found:
    names = [name for name in machine.names(CHANNELS) if name.startswith("channel")]
    evidence = Evidence(CHANNELS, ", ".join(names[:NAMED]) or "no channel", "channel0 or another one")
    if names:
        return passed("", f"{counted(len(names), 'IMEX channel')}", evidence)
    return warned("", "no IMEX channel: NCCL uses the NICs between hosts, not NVLink", evidence, fix=MAKE)


def _domain(machine: Machine) -> Iterator[Found]:
    reading = machine.call("imex", imex)
    nodes, domain = imex_nodes(reading.text or ""), imex_domain(reading.text or "")
    bad = {address: state for address, state in nodes.items() if state != READY}
    evidence = Evidence(
        COMMAND, f"domain {domain or 'not reported'}, {len(nodes) - len(bad)} of {len(nodes)} nodes {READY}", f"{UP}, all {READY}"
    )
    if not nodes and domain in ("", UP):  # the state of the domain alone does not say that all nodes are ready
        reason = reading.reason or "no node in the answer"
        yield unanswered("", f"the state of IMEX cannot be read: {reason}", reason, fix=COMMAND)
    elif bad:
        named = ", ".join(f"{address} {state}" for address, state in list(bad.items())[:NAMED])
        yield warned("", f"{counted(len(bad), 'IMEX node')} not {READY}: {named}", evidence, fix=ROW.fix)
    elif domain != UP:
        yield warned("", f"the IMEX domain is {domain or 'in an unknown state'}", evidence, fix=ROW.fix)
    else:
        yield passed("", f"IMEX domain {UP}, {counted(len(nodes), 'node')} {READY}", evidence)


CHECK = Check(ROW, look)
