"""Reads the topology of a host from NCCL's or RCCL's XML, as they write it to NCCL_TOPO_DUMP_FILE
and read it from NCCL_TOPO_FILE.

Elements: system, cpu (vendor, arch, host_hash), pci (busid, link_speed, link_width), gpu (sm, and
RCCL's gcn), nvlink and xgmi (target, count, tclass), net (name, speed in Mbit/s). Source:
src/graph/xml.cc of both. Document types and entities are refused; size, depth and number of
elements are limited.
"""

from dataclasses import dataclass, field, replace
from xml.parsers import expat

from busbw.core.errors import UsageError
from busbw.core.sizes import counted
from busbw.model.fabric import gb
from busbw.model.hardware import NCCL_PCI, Pair, gcn_name, of_links, xgmi
from busbw.model.systems import PCIE_WIRE, System, of_generation
from busbw.model.topo_links import MEASURE, LinkLayout, TopoGpu, analyze_links, refuse_unlike
from busbw.model.topo_nics import Slot, TopoPort, with_ports

MAX_BYTES, MAX_DEPTH, MAX_ELEMENTS = 16 << 20, 64, 200_000
HINT = "write one with NCCL_TOPO_DUMP_FILE=topo.xml in the environment of any NCCL program"
GENERATION = {"8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}  # GT/s
# Two GPUs of MI250 are a package, joined by four links, which older RCCL wrote as one.
PACKAGES = "gfx90a"
CPU = {"GenuineIntel": "intel", "AuthenticAMD": "amd"}


@dataclass(slots=True)
class TopoDocument:
    """What was read from the elements. `ports` has each network port once; `hosts` are the hashes
    that NCCL gives hosts in one NVLink domain.
    """

    gpus: list[TopoGpu] = field(default_factory=list)
    ports: dict[str, TopoPort] = field(default_factory=dict)
    hosts: set[str] = field(default_factory=set)
    cpu: str = "intel"
    near: bool = True  # every port is below a PCIe switch
    root: str = ""


def read(data: bytes, name: str) -> System:
    """The system of the host in the file.

    UsageError for other files, for several hosts, for hosts whose GPUs differ, for unknown GPUs,
    and for links of which busbw has no model.
    """
    document = _parse(data, name)
    if not document.gpus:
        raise UsageError(
            f"{name}: no <gpu> is in it", f"{HINT}; files for NCCL_TOPO_FILE may leave the GPUs out"
        )
    if len(document.hosts) > 1:
        raise UsageError(
            f"{name}: it has {len(document.hosts)} hosts in one NVLink domain (host_hash), and"
            " --topo reads one host",
            "describe the domain with --system, like gb200nvl72, or write the file with"
            " NCCL_MNNVL_ENABLE=0",
        )
    refuse_unlike(document.gpus, name)
    return _system(document, name)


def fault(data: bytes, name: str) -> str:
    """Why the file is no topology; empty if it is one. It need not have GPUs."""
    try:
        _parse(data, name)
    except UsageError as error:
        return str(error)
    return ""


def _parse(data: bytes, name: str) -> TopoDocument:
    if len(data) > MAX_BYTES:
        raise UsageError(f"{name}: {len(data)} bytes, more than any topology has", HINT)
    document = _TopoReader().read(data, name)
    if document.root != "system":
        raise UsageError(f"{name}: the document is <{document.root[:20]}>, not <system>", HINT)
    return document


def _system(document: TopoDocument, name: str) -> System:
    gpu = document.gpus[0]
    if not gpu.links:
        bare = _over_pcie(document.gpus, name)
    elif gpu.gcn:
        bare = _of_amd(document.gpus, name)
    else:
        bare = _of_nvidia(document.gpus, name)
    bare = with_ports(bare, list(document.ports.values()), slots_count=not _hides_slots(gpu))
    return replace(
        bare, name=name, sm=gpu.sm, cpu=document.cpu, near=document.near, rccl=bool(gpu.gcn)
    )


def _hides_slots(gpu: TopoGpu) -> bool:
    """Whether the slots in the file are not the real ones: a virtual machine gives its GPUs an
    older PCIe than they have, and its NICs too.
    """
    row = of_links(gpu.sm, gpu.total) if gpu.links and not gpu.gcn else None
    return row is not None and gpu.gen < row.pcie_gen


def _over_pcie(gpus: list[TopoGpu], name: str) -> System:
    gpu = gpus[0]
    pcie, planned = _slot_rates(gpu)
    gpu_name = f"GPU of {gcn_name(gpu.gcn)}" if gpu.gcn else f"GPU of sm {gpu.sm}"
    text = f"PCIe, {gb(pcie)} GB/s"
    return System(name, gpu_name, len(gpus), gpu.sm, pcie, text, planned, False, pcie, planned)


def _slot_rates(gpu: TopoGpu) -> tuple[float, float]:
    """The rate of the GPU's slot, and NCCL's constant for it."""
    share = gpu.lanes / 16
    return PCIE_WIRE[gpu.gen] * share, NCCL_PCI[gpu.gen] * share


def _of_nvidia(gpus: list[TopoGpu], name: str) -> System:
    gpu, links = gpus[0], gpus[0].total
    row = of_links(gpu.sm, links)
    if row is None:
        raise UsageError(
            f"{name}: no GPU of the table has {links} NVLinks and compute capability"
            f" {gpu.sm / 10:g}",
            "give --system instead",
        )
    bare = of_generation(row, f"{row.names[0]} or alike", len(gpus), gpu.gen)
    unit = Pair("NVLink", 0, row.link_rate, row.planned)
    system = _with_links(bare, analyze_links(gpus, "NVLink", name), unit)
    pcie, planned = _slot_rates(gpu)
    return replace(system, pcie=pcie, pcie_planned=planned)


def _of_amd(gpus: list[TopoGpu], name: str) -> System:
    gpu, row = gpus[0], xgmi(gpus[0].gcn)
    if row is None:
        raise UsageError(
            f"{name}: the rate of an xGMI link of {gcn_name(gpu.gcn)} is not in the table", MEASURE
        )
    layout = analyze_links(gpus, "xGMI", name)
    single = all(count == 1 for gpu in gpus for _, count, _ in gpu.links)
    if row.gcn == PACKAGES and not layout.to_each and single:
        raise UsageError(
            f"{name}: the file counts the links within a package of {row.gcn} as one",
            f"{MEASURE}, or a newer RCCL's file",
        )
    pcie, planned = _slot_rates(gpu)
    bare = System(
        name, f"{row.name} or alike", len(gpus), gpu.sm, 0.0, "", 0.0, True, pcie, planned
    )
    return _with_links(bare, layout, Pair("xGMI", 0, row.link_rate, row.planned))


def _with_links(bare: System, layout: LinkLayout, unit: Pair) -> System:
    """The system with the links of its GPUs, each of which has the kind and rates of `unit`."""
    text = f"{unit.kind}, {counted(layout.links, 'link')} x {gb(unit.rate)} GB/s"
    link, planned = layout.links * unit.rate, layout.links * unit.planned
    system = replace(bare, link=link, planned=planned, link_text=text)
    if layout.to_each == 0:
        return system
    pair = replace(unit, links=layout.to_each) if layout.to_each else None
    return replace(system, nvls=False, pair=pair, part_unknown=pair is None)


class _TopoReader:
    """Collects what is known of GPUs and NICs while the parser walks through the document."""

    def __init__(self) -> None:
        self.document = TopoDocument()
        self._elements = 0
        self._stack: list[str] = []
        self._slots: list[Slot] = []
        self._gpu = TopoGpu()

    def read(self, data: bytes, name: str) -> TopoDocument:
        """Parse the document; UsageError if it is no XML, or refused."""
        parser = expat.ParserCreate()
        parser.StartDoctypeDeclHandler = self._refuse
        parser.EntityDeclHandler = self._refuse
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        document = data.lstrip()  # NCCL reads a file that begins with a blank line
        skipped = data.count(b"\n") - document.count(b"\n")
        try:
            parser.Parse(document, True)
        except expat.ExpatError as error:
            reason = f"line {error.lineno + skipped}: {expat.ErrorString(error.code)}"
            raise UsageError(f"{name}: not XML: {reason}", HINT) from error
        except _StopReading as error:
            line = parser.CurrentLineNumber + skipped
            raise UsageError(f"{name}: line {line}: {error}", HINT) from error
        return self.document

    def _refuse(self, *declared: object) -> None:
        raise _StopReading("document types and entities are not read")

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._elements += 1
        if self._elements > MAX_ELEMENTS or len(self._stack) >= MAX_DEPTH:
            raise _StopReading("too many elements, or too deep")
        self.document.root = self.document.root or tag
        self._stack.append(tag)
        if tag == "pci":
            self._slots.append(_slot(attributes))
        elif tag == "cpu":
            vendor = CPU.get(attributes.get("vendor", ""), self.document.cpu)
            self.document.cpu = "arm" if attributes.get("arch") == "arm64" else vendor
            if "host_hash" in attributes:
                self.document.hosts.add(attributes["host_hash"])
        elif tag == "gpu":
            slot = self._slots[-1] if self._slots else Slot()
            sm, gcn = _number(attributes.get("sm", "")), attributes.get("gcn", "")
            self._gpu = TopoGpu(slot.bus, sm, gcn, slot.gen, slot.lanes)
        elif tag in ("nvlink", "xgmi") and "gpu" in self._stack:
            self._link(attributes)
        elif tag == "net":
            self._port(attributes)

    def _link(self, attributes: dict[str, str]) -> None:
        count = _number(attributes.get("count", ""))
        if count:
            target = attributes.get("target", "").lower()
            self._gpu.links.append((target, count, attributes.get("tclass", "").lower()))

    def _port(self, attributes: dict[str, str]) -> None:
        megabits = _number(attributes.get("speed", ""), digits=18)
        if megabits > 0:
            self.document.near &= self._stack.count("pci") > 1
            key = ":".join(attributes.get(key, "") for key in ("name", "port", "dev"))
            slot = self._slots[-1] if self._slots else Slot()
            self.document.ports[key] = TopoPort(attributes.get("name", ""), megabits, slot)

    def _end(self, tag: str) -> None:
        self._stack.pop()
        if tag == "pci":
            self._slots.pop()
        elif tag == "gpu":
            self.document.gpus.append(self._gpu)


class _StopReading(Exception):
    """The document is not read further."""


def _slot(attributes: dict[str, str]) -> Slot:
    """An empty or unknown speed counts as Gen4, which is what a virtual machine often hides."""
    bus = attributes.get("busid", "").lower()
    gen = GENERATION.get(attributes.get("link_speed", "").split(" ")[0])
    lanes = _number(attributes.get("link_width", ""))
    known_lanes = lanes in (1, 2, 4, 8, 16)
    return Slot(bus, gen or 4, lanes if known_lanes else 16, gen is not None and known_lanes)


def _number(text: str, digits: int = 9) -> int:
    """A number of at most `digits` digits; 0 for anything else."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= digits else 0
