"""The link rates that bound a run: those of each GPU and of each host's ports.

A Fabric exists only if all its rates are known and equal on all hosts; otherwise a NoFabric gives
the reason.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from busbw.core.alltoallv import Traffic
from busbw.core.result import Ideal
from busbw.core.sizes import counted
from busbw.core.topology import Gpu, Host, Nic

ON_CPUS = "the ranks run on CPUs"
OF_LAB = "the lab's rate"  # begins the text of a link of emulated hosts
# What a lab's rate limiter passes at full speed: busbw.lab.network sets the same.
LAB_BURST, LAB_BURST_S = 256 << 10, 1.35e-3
NVLINK_BETWEEN_HOSTS = ("GB200", "GB300")  # sold in racks whose hosts share one NVLink domain


@dataclass(frozen=True, slots=True)
class Fabric:
    """Hosts and their links; rates are bytes per second in one direction."""

    hosts: int  # Q in formulas
    per_host: int  # ranks of each host, P in formulas
    gpu: float | None  # one GPU's link to its peers, B in formulas; None with one rank per host
    gpu_link: str
    pcie: float | None  # of a GPU's slot
    over_nvlink: bool
    nics: float = 0.0  # all ports of one host together, I in formulas
    rail: float = 0.0  # one of these ports
    nic_link: str = ""
    # what an alltoallv moves between the ranks; None for an even exchange
    traffic: Traffic | None = None

    @property
    def ranks(self) -> int:
        return self.hosts * self.per_host


@dataclass(frozen=True, slots=True)
class NoFabric:
    """Why no bound of the run is known."""

    reason: str


def rails_of(nics: int, per_host: int) -> int:
    """The NICs that NCCL counts: it joins ports next to one of `per_host` GPUs (IB_MERGE_NICS)."""
    return per_host if nics > per_host and nics % per_host == 0 else nics


def fabric(hosts: Sequence[Host], ranks_per_host: Sequence[int]) -> Fabric | NoFabric:
    """The Fabric of a run with `ranks_per_host[i]` ranks on host i, one rank per GPU, over the
    ports of `ports_in_use`.
    """
    per_host = set(ranks_per_host)
    if len(per_host) != 1 or not hosts:
        counts = ", ".join(map(str, ranks_per_host))
        return NoFabric(f"the number of ranks per host varies: {counts}")
    ranks = per_host.pop()
    missing = _missing_gpus(hosts, ranks)
    if missing:
        return NoFabric(missing)
    if ranks == len(hosts) == 1:
        return NoFabric("with one rank no data crosses a link")
    gpus = [gpu for host in hosts for gpu in host.gpus]
    within = _gpus(gpus, ranks)
    if isinstance(within, NoFabric) or len(hosts) == 1:
        return within
    if any(name in gpu.name for gpu in gpus for name in NVLINK_BETWEEN_HOSTS):
        return NoFabric("NVLink may connect GPUs of several hosts here, which busbw cannot detect")
    return _with_nics(replace(within, hosts=len(hosts)), hosts)


def gb(rate: float) -> str:
    """GB/s (10^9) to four digits: `370.8`."""
    return f"{rate / 1e9:.4g}"


def _missing_gpus(hosts: Sequence[Host], ranks: int) -> str:
    for host in hosts:
        if not host.gpus:
            return (
                f"no GPU of host {host.hostname} could be read: {host.gpu_reason or 'it has none'}"
            )
        if len(host.gpus) < ranks:
            why = f" ({host.gpu_reason})" if host.gpu_reason else ""
            return (
                f"host {host.hostname} runs {ranks} ranks on {counted(len(host.gpus), 'GPU')}{why}"
            )
    return ""


def _gpus(gpus: Sequence[Gpu], ranks: int) -> Fabric | NoFabric:
    """The links between the GPUs of one host, each of which has `ranks` ranks."""
    slots = {gpu.pcie for gpu in gpus}
    pcie = slots.pop() if len(slots) == 1 else None
    if ranks == 1:
        return Fabric(1, ranks, None, "", pcie, over_nvlink=False)
    if len({(gpu.nvlink, gpu.nvlink_rate) for gpu in gpus}) > 1:
        kinds = ", ".join(sorted({_nvlink(gpu) for gpu in gpus}))
        return NoFabric(f"the GPUs' NVLinks differ: {kinds}")
    gpu = gpus[0]
    if gpu.nvlink and gpu.nvlink_rate:
        rate = gpu.nvlink * gpu.nvlink_rate
        return Fabric(1, ranks, rate, f"NVLink, {_nvlink(gpu)}", pcie, over_nvlink=True)
    if gpu.nvlink is None or gpu.nvlink:
        return NoFabric(f"the NVLink rate of {gpu.name} could not be read: {_nvlink(gpu)}")
    if pcie is None:
        return NoFabric("the GPUs have no NVLink, and their PCIe links differ or could not be read")
    shape = ""
    if gpu.pcie_gen_max and gpu.pcie_width:
        shape = f" Gen{gpu.pcie_gen_max} x{gpu.pcie_width}"
    return Fabric(1, ranks, pcie, f"PCIe{shape}, {gb(pcie)} GB/s", pcie, over_nvlink=False)


def _nvlink(gpu: Gpu) -> str:
    links = "unknown links" if gpu.nvlink is None else counted(gpu.nvlink, "link")
    rate = "unknown" if gpu.nvlink_rate is None else gb(gpu.nvlink_rate)
    return f"{links} x {rate} GB/s"


def _with_nics(fabric: Fabric, hosts: Sequence[Host]) -> Fabric | NoFabric:
    """The fabric with the ports of its hosts, which must be alike."""
    chosen = [(host, ports_in_use(host)) for host in hosts]
    for host, ports in chosen:
        if not ports:
            return NoFabric(_no_port(host))
        unknown = [nic.name for nic in ports if nic.rate is None]
        if unknown:
            return NoFabric(
                f"the rate of {unknown[0]} on host {host.hostname} is unknown: its rate could not"
                " be read"
            )
    rates = {nic.rate for _, ports in chosen for nic in ports}
    counts = {len(ports) for _, ports in chosen}
    if len(rates) > 1 or len(counts) > 1:
        texts = [f"host {host.hostname} {_ports(ports)}" for host, ports in chosen[:4]]
        return NoFabric(f"the NICs of the hosts differ: {'; '.join(texts)}")
    count = counts.pop()
    rail = rates.pop() or 0
    limited = any(nic.in_lab for _, ports in chosen for nic in ports)
    name = OF_LAB if limited else "NICs of each host"
    link = f"{name}, {count} x {gb(rail)} GB/s"
    return replace(fabric, nics=rail * count, rail=rail, nic_link=link)


def between_cpus(hosts: Sequence[Host]) -> Fabric | NoFabric:
    """The links of one CPU rank on each host: known only for a lab, as MPI may use any port."""
    if len(hosts) < 2 or not all(any(nic.in_lab for nic in host.nics) for host in hosts):
        return NoFabric(ON_CPUS)
    within = Fabric(len(hosts), 1, None, "", None, over_nvlink=False)
    return _with_nics(within, hosts)


def in_lab(ideal: Ideal) -> bool:
    return ideal.link.startswith(OF_LAB)


def lab_burst(ideal: Ideal) -> int:
    """Up to this size in bytes, a lab with a rate may carry data faster; 0 if there is no lab."""
    return max(LAB_BURST, round(ideal.busbw * LAB_BURST_S)) if in_lab(ideal) else 0


def ports_in_use(host: Host) -> list[Nic]:
    """The ports NCCL would use: the RDMA ports that are up, or else the Ethernet ports; without
    virtual ones, unless a lab gives their rate.
    """
    real = [nic for nic in host.nics if nic.up and (not nic.virtual or nic.in_lab)]
    return [nic for nic in real if nic.kind != "ethernet"] or real


def _no_port(host: Host) -> str:
    down = [nic.name for nic in host.nics if not nic.virtual]
    if down:
        return f"all network ports of host {host.hostname} are down: {', '.join(down)}"
    if host.nics:
        return (
            f"host {host.hostname} has only virtual network interfaces:"
            f" {', '.join(nic.name for nic in host.nics)}"
        )
    return f"host {host.hostname} has no network port"


def _ports(ports: Sequence[Nic]) -> str:
    counts = Counter(nic.rate or 0 for nic in ports)
    return " + ".join(
        f"{count} x {gb(rate)} GB/s" for rate, count in sorted(counts.items(), reverse=True)
    )
