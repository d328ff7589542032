"""Reads the topology of a host from NCCL's XML, as NCCL writes it to NCCL_TOPO_DUMP_FILE and reads it from NCCL_TOPO_FILE.

Elements: system, cpu (vendor, arch), pci (link_speed, link_width), gpu (sm), nvlink (count, tclass), net (name, speed in Mbit/s).
Source: NCCL src/graph/xml.cc. Document types and entities are refused; size, depth and number of elements are limited.
"""

from dataclasses import dataclass, field, replace
from xml.parsers import expat

from busbw.core.errors import UsageError
from busbw.core.sizes import counted
from busbw.model.fabric import gb
from busbw.model.hardware import NCCL_PCI, of_links
from busbw.model.systems import PCIE_WIRE, System, of_generation

MOST_BYTES, MOST_DEPTH, MOST_ELEMENTS = 16 << 20, 64, 200_000
HINT = "write one with NCCL_TOPO_DUMP_FILE=topo.xml in the environment of any NCCL program"
SWITCH = "0x0680"  # PCI class of NVSwitch, as nvlink's tclass names it
GENERATION = {"8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}  # GT/s
CPU = {"GenuineIntel": "intel", "AuthenticAMD": "amd"}


@dataclass(slots=True)
class Found:
    """What the elements say. GPUs are (sm, NVLinks, PCIe generation, lanes), ports are (name, Mbit/s)."""

    gpus: list[tuple[int, int, int, int]] = field(default_factory=list)
    ports: dict[str, float] = field(default_factory=dict)
    cpu: str = "intel"
    direct: bool = False  # some NVLink ends at a GPU, not at a switch
    near: bool = True  # every port is below a PCIe switch
    root: str = ""


def read(data: bytes, name: str) -> System:
    """The system of the host in the file. UsageError for other files, for hosts whose GPUs differ, and for unknown GPUs."""
    if len(data) > MOST_BYTES:
        raise UsageError(f"{name}: {len(data)} bytes, more than any topology has", HINT)
    found = _Reader().read(data, name)
    if found.root != "system":
        raise UsageError(f"{name}: the document is <{found.root[:20]}>, not <system>", HINT)
    if not found.gpus:
        raise UsageError(f"{name}: no <gpu> is in it", f"{HINT}; files for NCCL_TOPO_FILE may leave the GPUs out")
    if len(set(found.gpus)) > 1:
        raise UsageError(f"{name}: the GPUs differ in architecture, NVLinks or PCIe", "describe the host with --system instead")
    return _system(found, name)


def _system(found: Found, name: str) -> System:
    (sm, links, gen, lanes), gpus = found.gpus[0], len(found.gpus)
    rates = set(found.ports.values())
    if len(rates) > 1:
        raise UsageError(f"{name}: the rates of the NICs differ: {', '.join(f'{rate:g}' for rate in sorted(rates))} Mbit/s", "give --nics")
    nic = rates.pop() * 1e6 / 8 if rates else 0.0
    row = of_links(sm, links) if links else None
    pcie, planned = PCIE_WIRE[gen] * lanes / 16, NCCL_PCI[gen] * lanes / 16
    if links and row is None:
        raise UsageError(f"{name}: no GPU of the table has {links} NVLinks and compute capability {sm / 10:g}", "give --system instead")
    if row is None:
        bare = System(name, f"GPU of sm {sm}", gpus, sm, pcie, f"PCIe, {gb(pcie)} GB/s", planned, False, pcie, planned)
    else:
        bare = of_generation(row, f"{row.names[0]} or alike", gpus, gen)
        share = links / row.links
        text = f"NVLink, {counted(links, 'link')} x {gb(row.link_rate)} GB/s"
        bare = replace(bare, link=bare.link * share, planned=bare.planned * share, link_text=text, pcie=pcie, pcie_planned=planned)
    nvls = bare.nvls and not found.direct
    return replace(bare, name=name, sm=sm, nics=len(found.ports), nic=nic, nvls=nvls, cpu=found.cpu, near=found.near)


class _Reader:
    """Collects what is known of GPUs and NICs while the parser walks through the document."""

    def __init__(self) -> None:
        self.found = Found()
        self._elements = 0
        self._stack: list[str] = []
        self._slots: list[tuple[int, int]] = []
        self._gpu: list[int] = []

    def read(self, data: bytes, name: str) -> Found:
        """Parse the document; UsageError if it is no XML, or refused."""
        parser = expat.ParserCreate()
        parser.StartDoctypeDeclHandler = self._refuse
        parser.EntityDeclHandler = self._refuse
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        try:
            parser.Parse(data, True)
        except expat.ExpatError as error:
            raise UsageError(f"{name}: not XML: {error}", HINT) from error
        except _Refused as error:
            raise UsageError(f"{name}: line {parser.CurrentLineNumber}: {error}", HINT) from error
        return self.found

    def _refuse(self, *declared: object) -> None:
        raise _Refused("document types and entities are not read")

    def _start(self, tag: str, given: dict[str, str]) -> None:
        self._elements += 1
        if self._elements > MOST_ELEMENTS or len(self._stack) >= MOST_DEPTH:
            raise _Refused("too many elements, or too deep")
        self.found.root = self.found.root or tag
        self._stack.append(tag)
        if tag == "pci":
            self._slots.append(_slot(given))
        elif tag == "cpu":
            self.found.cpu = "arm" if given.get("arch") == "arm64" else CPU.get(given.get("vendor", ""), self.found.cpu)
        elif tag == "gpu":
            self._gpu = [_whole(given.get("sm", "")), 0]
        elif tag == "nvlink" and "gpu" in self._stack:
            self._gpu[1] += _whole(given.get("count", ""))
            self.found.direct |= not given.get("tclass", SWITCH).startswith(SWITCH)
        elif tag == "net":
            self._port(given)

    def _port(self, given: dict[str, str]) -> None:
        rate = float(_whole(given.get("speed", "")))
        if rate > 0:
            self.found.near &= self._stack.count("pci") > 1
            self.found.ports[f"{given.get('name', '')}:{given.get('port', '')}:{given.get('dev', '')}"] = rate

    def _end(self, tag: str) -> None:
        self._stack.pop()
        if tag == "pci":
            self._slots.pop()
        elif tag == "gpu":
            gen, lanes = self._slots[-1] if self._slots else (4, 16)
            self.found.gpus.append((self._gpu[0], self._gpu[1], gen, lanes))


class _Refused(Exception):
    """The document is not read further."""


def _slot(given: dict[str, str]) -> tuple[int, int]:
    """Generation and lanes; an empty or unknown speed counts as Gen4, which is what a virtual machine often hides."""
    lanes = _whole(given.get("link_width", ""))
    return GENERATION.get(given.get("link_speed", "").split(" ")[0], 4), lanes if lanes in (1, 2, 4, 8, 16) else 16


def _whole(text: str) -> int:
    """A number of at most nine digits; 0 for anything else."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
