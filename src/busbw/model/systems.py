"""Systems described in words: `h100x8`, `8x400G`.

Bounds and NCCL's model are computed from a System: its rates are bytes per second in one direction,
and its hosts are alike. `fabric` and `model` add how many hosts and GPUs take part.
"""

import re
from dataclasses import dataclass, replace
from difflib import get_close_matches

from busbw.core.errors import UsageError, unknown
from busbw.core.rates import LINK_EXAMPLE, parse_rate
from busbw.core.sizes import counted
from busbw.core.topology import Gpu
from busbw.model.bounds import Features
from busbw.model.clouds import Instance, instance, instances, with_these_nics
from busbw.model.fabric import Fabric, gb, rails_of
from busbw.model.gpu_hosts import (
    UsualHost,
    gpu_hosts,
    notes_over_pcie,
    refuse_unknown_links,
    refuse_unsold,
)
from busbw.model.hardware import (
    NCCL_PCI,
    BridgedGpus,
    Generation,
    Pair,
    bridged_gpus,
    by_name,
    card_word,
    generation,
    gpu_word,
    is_card,
    pcie_gpus,
)
from busbw.model.nccl.choice import Model
from busbw.model.nccl.constants import Release
from busbw.model.nccl.graphs import GraphHost, nvls, ring, tree
from busbw.model.networks import NetworkModel, networks, note
from busbw.model.payload import planned_rate

GBIT = 1e9 / 8
PCIE_WIRE = {3: 15.75e9, 4: 31.5e9, 5: 63e9, 6: 126e9}  # 16 lanes; PCI-SIG, as in host/gpu.py
# Shares of a link's rate that are left for data. RoCE v2: 82 of 4178 bytes of a packet at MTU 4096
# are headers, preamble and gap (IEEE 802.3, InfiniBand architecture annex A17). PCIe: 55.4 of 63
# GB/s, nvbandwidth host to device on an H200.
ROCE_PAYLOAD, PCIE_PAYLOAD = 4096 / (4096 + 82), 55.4 / 63
PCIE_PLANNED = NCCL_PCI[4] / PCIE_WIRE[4]  # the same for all generations
MAX_HOSTS = 100_000
CPUS = ("intel", "amd", "arm")
_NAME = re.compile(r"([a-z]+[0-9]+[a-z]*?)(x|nvl)([0-9]{1,4})", re.ASCII)
_NICS = re.compile(r"(?:([0-9]{1,3})\s*x\s*)?([0-9]{1,4}(?:\.[0-9]+)?[^0-9.]*)", re.ASCII)
NICS_HINT = "give the ports of a host and the rate of each, like --nics 8x400G"
SYSTEM_HINT = (
    "name the GPU and how many a host has, like h100x8 or gb200nvl72, or a cloud's host, like"
    " p5.48xlarge"
)


@dataclass(frozen=True, slots=True)
class System:
    """A kind of host. Rates are bytes per second."""

    name: str  # empty for a machine whose links were read
    gpu: str
    gpus: int
    sm: int
    link: float  # joins a GPU to its peers: NVLink, or PCIe
    link_text: str
    planned: float  # NCCL's constant for `link`
    over_nvlink: bool
    pcie: float
    pcie_planned: float
    nics: int = 0
    nic: float = 0.0  # of a port, or its share of its slot, if the slot is slower than its ports
    nvls: bool = False
    cpu: str = "intel"
    near: bool = True  # whether NICs and GPUs share PCIe switches
    pair: Pair | None = None  # of GPUs that are joined each to each other, without a switch
    # Whether the GPUs are joined unevenly; `link` then counts all links of a GPU.
    part_unknown: bool = False
    rccl: bool = False  # AMD's GPUs, of whose library there is no model
    network: NetworkModel | None = None
    assumed_from: str = ""  # the host whose NICs these are, if `network` was not given
    notes: tuple[str, ...] = ()
    nic_over_pcie: bool = False  # whether the NICs' slots are slower than their ports
    nic_notes: tuple[str, ...] = ()  # said of several hosts
    nics_unknown: str = ""  # why no NIC is known, though there are some
    collnet: bool = False  # whether the network's switches reduce (SHARP)
    rack: bool = False  # whether its GPUs are an NVLink domain, which hosts share

    @property
    def payload_nic(self) -> float:
        """The bytes of data per second that one NIC carries."""
        share = PCIE_PAYLOAD if self.nic_over_pcie else ROCE_PAYLOAD
        return min(self.nic * share, self.pcie * PCIE_PAYLOAD)

    def features(self) -> Features:
        """The features that `bounds` may use."""
        return Features(nvls=self.nvls, collnet=self.collnet)

    def notes_on(self, hosts: int) -> list[str]:
        """What an answer about so many hosts should say of the system."""
        if hosts == 1:
            return list(self.notes)
        notes = [*self.notes, *self.nic_notes]
        if self.network is not None and self.network.latency_us:
            notes.append(note(self.network, self.assumed_from))
        return notes

    def as_timed(self) -> "System":
        """The system with the latency of a network's hop in place of what its plugin reports."""
        return replace(self, network=self.network.as_timed()) if self.network else self

    def fabric(self, hosts: int, per_host: int, *, payload: bool = False) -> Fabric:
        """The links of `per_host` GPUs on each of `hosts` hosts, at their rates, or at what these
        carry of data.

        GPUs take along the NICs next to them: half of the GPUs use half of the NICs, but at least
        one. All together are not faster than the slots of the GPUs, but for those that NVLink
        joins to a Grace CPU.
        """
        nic = self.payload_nic if payload else self.nic
        nics = self.nics_of(per_host) if hosts > 1 else 0
        slot = self.pcie * PCIE_PAYLOAD if payload else self.pcie
        nic_text, nics_rate = f"NICs of each host, {nics} x {gb(nic)} GB/s", nics * nic
        if self.cpu != "arm" and nics_rate > per_host * slot:
            nics_rate = per_host * slot
            nic_text = f"slots of the GPUs of each host, {per_host} x {gb(slot)} GB/s"
        gpu = self._link(per_host, payload=payload) if per_host > 1 else None
        text = self.pair.text(per_host) if self.pair else self.link_text
        return Fabric(
            hosts,
            per_host,
            gpu,
            text if gpu else "",
            slot,
            self.over_nvlink and gpu is not None,
            nics_rate,
            nic if nics else 0.0,
            nic_text if nics else "",
        )

    def model(self, release: Release, hosts: int, per_host: int) -> Model:
        """NCCL's model of a communicator of `per_host` GPUs on each of `hosts` hosts; UsageError
        for AMD's GPUs, which use RCCL.
        """
        if self.rccl:
            raise UsageError(
                f"{self.name or self.gpu}: busbw has no model of RCCL",
                "busbw predict COLLECTIVE --topo prints the bounds of the links",
            )
        rails, rail = self._rails(per_host) if hosts > 1 else (0, 0.0)
        host = GraphHost(
            per_host,
            self.sm,
            self._link(per_host, payload=True) / 1e9,
            self.pcie_planned / 1e9,
            rails,
            rail / 1e9,
            self.nvls,
        )
        channels = ring(host)
        return Model(
            release,
            hosts,
            per_host,
            self.sm,
            self.over_nvlink and per_host > 1,
            channels,
            tree(host, channels.channels),
            nvls(host),
            self.cpu,
            collnet=self.collnet,
            near=self.near,
            net_latency_us=self.network.latency_us if self.network else 0.0,
        )

    def planned_rail(self, per_host: int) -> float:
        """The bytes per second of the NICs next to one GPU, as NCCL plans with them."""
        return self._rails(per_host)[1]

    def _link(self, per_host: int, *, payload: bool) -> float:
        """The rate of a GPU's links to the others that take part."""
        if self.pair is None or per_host < 2:
            return self.planned if payload else self.link
        rate = self.pair.planned if payload else self.pair.rate
        return self.pair.links * (per_host - 1) * rate

    def nics_of(self, per_host: int) -> int:
        """The NICs that so many GPUs of a host take along."""
        return max(1, self.nics * per_host // self.gpus) if self.nics else 0

    def _rails(self, per_host: int) -> tuple[int, float]:
        """NICs as NCCL plans with them: none is faster than its slot, and all together are not
        faster than the slots of the GPUs.
        """
        nics = self.nics_of(per_host)
        rails = rails_of(nics, per_host)
        if not rails:
            return 0, 0.0
        most = self.pcie_planned * min(1.0, per_host / rails)
        nic = self.nic * PCIE_PLANNED if self.nic_over_pcie else self.nic
        return rails, min(nic * nics / rails, most)


def parse_system(text: str) -> System:
    """The system called `h100x8`, `h100x4` or `gb200nvl72`: a GPU of the table and how many of them
    share NVLink on a host. Or a cloud's instance, such as `p5.48xlarge`, with its NICs and network.

    Others have one NIC for each GPU at the usual rate, which `with_nics` replaces. UsageError for
    other text.
    """
    rented = instance(text)
    if rented is not None:
        return _of_instance(rented)
    match = _NAME.fullmatch(text.strip().lower())
    if match is None:
        close = get_close_matches(text.strip().lower(), instances(), 1)
        suggestion = f"did you mean {close[0]}? " if close else ""
        raise UsageError(f"--system: '{text}' is not a system", suggestion + SYSTEM_HINT)
    word, kind, gpus = match.group(1), match.group(2), int(match.group(3))
    refuse_unknown_links(text, word)
    usual = gpu_hosts().get(word)
    if usual is None:
        raise unknown("GPU", word, {known: known for known in gpu_hosts()}, "--system: ")
    refuse_unsold(text, usual, gpus, rack=kind == "nvl")
    nics = usual.nics or gpus
    return replace(
        _of_word(usual, gpus),
        name=text.strip().lower(),
        nics=nics if usual.gbit else 0,
        nic=usual.gbit * GBIT,
        cpu=usual.cpu,
        rack=kind == "nvl",
    )


def _of_word(usual: UsualHost, gpus: int) -> System:
    """A host of the table, without NICs."""
    row, name = by_name(usual.word), usual.word.upper()
    bridged = bridged_gpus().get(usual.word)
    if bridged is not None and gpus <= bridged.most:
        return _of_bridges(bridged, name, gpus)
    if row is not None:
        return of_generation(row, name, gpus)
    return _of_pcie(usual.word, name, gpus)


def _of_bridges(bridged: BridgedGpus, gpu: str, gpus: int) -> System:
    """A host whose GPUs NVLink joins each to each other, without NICs."""
    row = by_name(bridged.family)
    assert row is not None
    system = replace(of_generation(row, gpu, gpus), nvls=False)
    if gpus < 2:
        return system
    pair = Pair("NVLink", bridged.links // (gpus - 1), row.link_rate, row.planned)
    each = pair.links * (gpus - 1)
    return replace(
        system,
        pair=pair,
        link=each * pair.rate,
        planned=each * pair.planned,
        link_text=pair.text(gpus),
    )


def _of_instance(rented: Instance) -> System:
    """A cloud's host, with its NICs and network."""
    network = networks()[rented.network]
    return replace(
        _of_word(gpu_hosts()[rented.word], rented.gpus),
        name=rented.name,
        nics=rented.nics,
        nic=rented.gbit * GBIT,
        cpu=rented.cpu,
        near=rented.near,
        network=network,
    )


def _of_pcie(word: str, gpu: str, gpus: int) -> System:
    """A host of `gpus` GPUs that PCIe joins, without NICs."""
    row = pcie_gpus()[word]
    share = row.lanes / 16
    rate, planned = PCIE_WIRE[row.pcie_gen] * share, NCCL_PCI[row.pcie_gen] * share
    text = f"PCIe {row.pcie_gen} x{row.lanes}, {gb(rate)} GB/s"
    system = System(gpu.lower(), gpu, gpus, row.sm, rate, text, planned, False, rate, planned)
    return replace(system, notes=notes_over_pcie(word, gpus))


def of_generation(row: Generation, gpu: str, gpus: int, pcie_gen: int = 0) -> System:
    """A host of `gpus` GPUs of one row of the table, joined by NVSwitch, without NICs."""
    gen = pcie_gen or row.pcie_gen
    text = f"NVLink, {counted(row.links, 'link')} x {gb(row.link_rate)} GB/s"
    return System(
        f"{gpu.lower()}x{gpus}",
        gpu,
        gpus,
        row.sm,
        row.links * row.link_rate,
        text,
        row.links * row.planned,
        True,
        PCIE_WIRE[gen],
        NCCL_PCI[gen],
        nvls=row.sm >= 90 and gpus > 1,
    )


def of_gpus(gpu: Gpu, gpus: int, nics: int, nic: float, *, nvls: bool) -> System | str:
    """The system of hosts whose links were read; a string says which rate is missing."""
    if gpu.nvlink is None:
        return f"the NVLinks of {gpu.name} could not be read"
    planned = planned_rate(gpu)
    if planned is None:
        return f"NCCL's constants for {gpu.name or 'this GPU'} are not in the table"
    link: float | None
    if gpu.nvlink and gpu.nvlink_rate:
        over_nvlink = True
        link = gpu.nvlink * gpu.nvlink_rate
        text = f"NVLink, {counted(gpu.nvlink, 'link')} x {gb(gpu.nvlink_rate)} GB/s"
    else:
        over_nvlink = False
        link = gpu.pcie
        text = f"PCIe, {gb(link or 0)} GB/s"
    if link is None:
        return f"the PCIe link of {gpu.name} could not be read"
    row = generation(gpu)
    gen = gpu.pcie_gen_max or (row.pcie_gen if row else 4)
    lanes = (gpu.pcie_width or 16) / 16
    pcie = gpu.pcie or PCIE_WIRE.get(gen, 63e9) * lanes
    return System(
        "",
        gpu.name,
        gpus,
        gpu.sm,
        link,
        text,
        planned[0],
        over_nvlink,
        pcie,
        NCCL_PCI.get(gen, 48e9) * lanes,
        nics,
        nic,
        nvls and over_nvlink,
    )


def with_nics(system: System, text: str) -> System:
    """The system with other NICs, such as `8x400G` or `8x400Gbit/s`: how many ports a host has, and
    the rate of each, with its unit; UsageError for other text.
    """
    match = _NICS.fullmatch(text.strip())
    count = int(match.group(1) or 1) if match else 0
    if match is None or not count:
        raise UsageError(f"--nics {text}: not a number of ports and the rate of each", NICS_HINT)
    try:
        rate = parse_rate(match.group(2), "--nics", LINK_EXAMPLE)
    except UsageError as error:
        reason = f"'{match.group(2)}' is not the rate of a port, with its unit"
        raise UsageError(f"--nics {text}: {reason}", NICS_HINT) from error
    return replace(system, nics=count, nic=rate, nic_over_pcie=False, nic_notes=(), nics_unknown="")


def with_assumed_network(system: System) -> System:
    """The system with the network of the only vendor whose hosts have such NICs, if there is one
    and no network is known.
    """
    if system.network is not None or not system.nics:
        return system
    host = with_these_nics(system.gpu, system.gpus, system.nics, round(system.nic / GBIT))
    if host is None:
        return system
    return replace(system, network=networks()[host.network], assumed_from=host.name)


def of_device(name: str, gpus: int) -> System | None:
    """A host of `gpus` GPUs of a device's name, such as `NVIDIA H100 80GB HBM3`, without NICs, if
    their links are those of the table.
    """
    word = gpu_word(name)
    row = by_name(word)
    if row is not None:
        return of_generation(row, name, gpus)
    if gpus == 1 and is_card(name):  # without a peer it does not matter which cards NVLink joins
        word = card_word(name)
    return _of_pcie(word, name, gpus) if word in pcie_gpus() else None
