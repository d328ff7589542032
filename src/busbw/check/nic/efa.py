"""EFA devices of Amazon EC2: NCCL's plugin for them, and their dropped packets."""

from collections.abc import Iterator

from busbw.check.base import check, not_offered, passed, skipped, unanswered, warned
from busbw.check.machine import Machine, RdmaPort
from busbw.check.nic.links import MAX_LOSS_SHARE, counter_evidence, counts, driver, total
from busbw.check.rates import window
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer
from busbw.host.pci import read_devices

FOLDERS = (
    "/opt/amazon/ofi-nccl/lib",
    "/opt/amazon/ofi-nccl/lib64",
    "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu",
    "/opt/amazon/ofi-nccl/lib/aarch64-linux-gnu",
    "/opt/aws-ofi-nccl/lib",
    "/usr/local/lib",
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
)
PLUGIN = "libnccl-net"
KUBELET = "/var/lib/kubelet"
UNRESPONSIVE, DROPS, PACKETS = "unresponsive_remote_events", "rx_drops", "rx_pkts"

EFA = CheckRow(
    id="BW084",
    name="nic-efa",
    layer=Layer.NIC,
    title="EFA devices",
    right=(
        f"NCCL's plugin for EFA ({PLUGIN}*.so) is installed, packets arrive, at most"
        f" {MAX_LOSS_SHARE:g} of them dropped"
    ),
    why=(
        "NCCL has no EFA transport of its own: without the plugin it uses TCP. The security "
        "group must allow all traffic to and from itself."
    ),
    fix=(
        "install aws-ofi-nccl (part of the EFA installer) and add its folder to LD_LIBRARY_PATH;"
        " the log of NCCL then says NET/OFI"
    ),
    stays=(
        "an installed package stays; LD_LIBRARY_PATH belongs in the job script or /etc/ld.so.conf.d"
    ),
    reads=(
        "/sys/class/infiniband/*/ports/*/hw_counters/{unresponsive_remote_events,rx_drops,rx_pkts}",
        *FOLDERS,
    ),
    sources=("aws-ofi-nccl, README", "Linux drivers/infiniband/hw/efa/efa_verbs.c"),
)


@check(EFA)
def check_efa(machine: Machine) -> Iterator[Finding]:
    """The plugin where there is an NVIDIA GPU, then each EFA device."""
    ports = [port for port in machine.ports if driver(machine, port) == "efa"]
    if not ports:
        yield skipped("no EFA device")
        return
    if any(device.gpu for device in read_devices(machine).values()):
        yield _judge_plugin(machine)
    for port in ports:
        yield _judge_device(machine, port)


def _judge_plugin(machine: Machine) -> Finding:
    paths = (machine.environment or {}).get("LD_LIBRARY_PATH", "").split(":")
    folders = dict.fromkeys((*(path for path in paths if path.startswith("/")), *FOLDERS))
    plugins: list[str] = []
    for folder in folders:
        names = machine.names(folder)
        plugins += [f"{folder}/{name}" for name in names if name.startswith(PLUGIN)]
    place = plugins[0] if plugins else "in none of " + ", ".join(folders)
    evidence = Evidence(f"{PLUGIN}*.so", place, "in a folder of libraries")
    if plugins:
        return passed("", f"NCCL's plugin is {plugins[0]}", evidence)
    if machine.names(KUBELET):
        message = (
            "NCCL's plugin is not on this node of Kubernetes; the image of the job may have it"
        )
        return not_offered("", message, evidence, fix="busbw check in the container of the job")
    message = "NCCL's plugin for EFA is in none of the usual folders"
    return warned("", message, evidence, fix=EFA.fix)


def _judge_device(machine: Machine, port: RdmaPort) -> Finding:
    counters = counts(
        machine, port, [f"hw_counters/{name}" for name in (UNRESPONSIVE, DROPS, PACKETS)], ""
    )
    if isinstance(counters, str):
        return unanswered(port.name, f"its counters cannot be read: {counters}", counters)
    recent = window(machine, counters)
    gone, drops, packets = (total(recent.counts, name) for name in (UNRESPONSIVE, DROPS, PACKETS))
    message = (
        f"{drops} of {packets} packets dropped, {gone} times a remote end did not respond,"
        f" {recent.since}"
    )
    evidence = counter_evidence(counters, f"{UNRESPONSIVE}|{DROPS}")
    # A killed job leaves remote ends that do not respond; a closed security group lets no packet
    # in.
    if (gone and not packets) or drops > MAX_LOSS_SHARE * packets:
        fix = (
            "allow all traffic to and from the security group itself; check the hosts of the job"
            " that was running"
        )
        return warned(port.name, message, *evidence, fix=fix, weight=gone + drops)
    return passed(port.name, message, *evidence)
