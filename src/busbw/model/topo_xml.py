"""Reads the topology of a host from NCCL's or RCCL's XML, as they write it to NCCL_TOPO_DUMP_FILE
and read it from NCCL_TOPO_FILE.

Elements: system, cpu (vendor, arch), pci (busid, link_speed, link_width), gpu (sm, and RCCL's gcn),
nvlink and xgmi (target, count, tclass), net (name, speed in Mbit/s). Source: src/graph/xml.cc of
both. Document types and entities are refused; size, depth and number of elements are limited.
"""

from dataclasses import dataclass, field, replace
from xml.parsers import expat

from busbw.core.errors import UsageError
from busbw.core.sizes import counted
from busbw.model.fabric import gb
from busbw.model.hardware import NCCL_PCI, gcn_name, of_links, xgmi
from busbw.model.systems import PCIE_WIRE, Pair, System, of_generation
from busbw.model.topo_links import MEASURE, Gpu, Joined, joined

MOST_BYTES, MOST_DEPTH, MOST_ELEMENTS = 16 << 20, 64, 200_000
HINT = "write one with NCCL_TOPO_DUMP_FILE=topo.xml in the environment of any NCCL program"
GENERATION = {"8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}  # GT/s
# two GPUs of MI250 are a package, joined by four links, which older RCCL wrote as one
PACKAGES = "gfx90a"
CPU = {"GenuineIntel": "intel", "AuthenticAMD": "amd"}


@dataclass(slots=True)
class Found:
    """What the elements say. Ports are (name, Mbit/s)."""

    gpus: list[Gpu] = field(default_factory=list)
    ports: dict[str, float] = field(default_factory=dict)
    cpu: str = "intel"
    near: bool = True  # every port is below a PCIe switch
    root: str = ""


def read(data: bytes, name: str) -> System:
    """The system of the host in the file.

    UsageError for other files, for hosts whose GPUs differ, for unknown GPUs, and for links of
    which busbw has no model.
    """
    if len(data) > MOST_BYTES:
        raise UsageError(f"{name}: {len(data)} bytes, more than any topology has", HINT)
    found = _Reader().read(data, name)
    if found.root != "system":
        raise UsageError(f"{name}: the document is <{found.root[:20]}>, not <system>", HINT)
    if not found.gpus:
        raise UsageError(
            f"{name}: no <gpu> is in it", f"{HINT}; files for NCCL_TOPO_FILE may leave the GPUs out"
        )
    if len({gpu.likeness for gpu in found.gpus}) > 1:
        raise UsageError(
            f"{name}: the GPUs differ in architecture, links or PCIe",
            "describe the host with --system instead",
        )
    return _system(found, name)


def _system(found: Found, name: str) -> System:
    gpu = found.gpus[0]
    rates = set(found.ports.values())
    if len(rates) > 1:
        raise UsageError(
            f"{name}: the rates of the NICs differ:"
            f" {', '.join(f'{rate:g}' for rate in sorted(rates))} Mbit/s",
            "give --nics",
        )
    nic = rates.pop() * 1e6 / 8 if rates else 0.0
    if not gpu.links:
        pcie, planned = PCIE_WIRE[gpu.gen] * gpu.lanes / 16, NCCL_PCI[gpu.gen] * gpu.lanes / 16
        called = f"GPU of {gcn_name(gpu.gcn)}" if gpu.gcn else f"GPU of sm {gpu.sm}"
        bare = System(
            name,
            called,
            len(found.gpus),
            gpu.sm,
            pcie,
            f"PCIe, {gb(pcie)} GB/s",
            planned,
            False,
            pcie,
            planned,
        )
    elif gpu.gcn:
        bare = _of_amd(found.gpus, name)
    else:
        bare = _of_nvidia(found.gpus, name)
    return replace(
        bare,
        name=name,
        sm=gpu.sm,
        nics=len(found.ports),
        nic=nic,
        cpu=found.cpu,
        near=found.near,
        rccl=bool(gpu.gcn),
    )


def _of_nvidia(gpus: list[Gpu], name: str) -> System:
    gpu, links = gpus[0], gpus[0].total
    row = of_links(gpu.sm, links)
    if row is None:
        raise UsageError(
            f"{name}: no GPU of the table has {links} NVLinks and compute capability"
            f" {gpu.sm / 10:g}",
            "give --system instead",
        )
    bare = of_generation(row, f"{row.names[0]} or alike", len(gpus), gpu.gen)
    made = _joined(
        bare, joined(gpus, "NVLink", name), Pair("NVLink", 0, row.link_rate, row.planned)
    )
    lanes = gpu.lanes / 16
    return replace(made, pcie=PCIE_WIRE[gpu.gen] * lanes, pcie_planned=NCCL_PCI[gpu.gen] * lanes)


def _of_amd(gpus: list[Gpu], name: str) -> System:
    gpu, row = gpus[0], xgmi(gpus[0].gcn)
    if row is None:
        raise UsageError(
            f"{name}: the rate of an xGMI link of {gcn_name(gpu.gcn)} is not in the table", MEASURE
        )
    how = joined(gpus, "xGMI", name)
    if (
        row.gcn == PACKAGES
        and not how.to_each
        and all(count == 1 for one in gpus for _, count, _ in one.links)
    ):
        raise UsageError(
            f"{name}: the file counts the links within a package of {row.gcn} as one",
            f"{MEASURE}, or a newer RCCL's file",
        )
    pcie, planned = PCIE_WIRE[gpu.gen] * gpu.lanes / 16, NCCL_PCI[gpu.gen] * gpu.lanes / 16
    bare = System(
        name, f"{row.name} or alike", len(gpus), gpu.sm, 0.0, "", 0.0, True, pcie, planned
    )
    return _joined(bare, how, Pair("xGMI", 0, row.link_rate, row.planned))


def _joined(bare: System, how: Joined, one: Pair) -> System:
    """The system with the links of its GPUs, each of which is like `one`."""
    text = f"{one.kind}, {counted(how.links, 'link')} x {gb(one.rate)} GB/s"
    made = replace(bare, link=how.links * one.rate, planned=how.links * one.planned, link_text=text)
    if how.to_each == 0:
        return made
    pair = replace(one, links=how.to_each) if how.to_each else None
    return replace(made, nvls=False, pair=pair, part_unknown=pair is None)


class _Reader:
    """Collects what is known of GPUs and NICs while the parser walks through the document."""

    def __init__(self) -> None:
        self.found = Found()
        self._elements = 0
        self._stack: list[str] = []
        self._slots: list[tuple[str, int, int]] = []
        self._gpu = Gpu()

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
            self.found.cpu = (
                "arm"
                if given.get("arch") == "arm64"
                else CPU.get(given.get("vendor", ""), self.found.cpu)
            )
        elif tag == "gpu":
            bus, gen, lanes = self._slots[-1] if self._slots else ("", 4, 16)
            self._gpu = Gpu(bus, _whole(given.get("sm", "")), given.get("gcn", ""), gen, lanes)
        elif (
            tag in ("nvlink", "xgmi")
            and "gpu" in self._stack
            and (count := _whole(given.get("count", "")))
        ):
            self._gpu.links.append(
                (given.get("target", "").lower(), count, given.get("tclass", "").lower())
            )
        elif tag == "net":
            self._port(given)

    def _port(self, given: dict[str, str]) -> None:
        rate = float(_whole(given.get("speed", "")))
        if rate > 0:
            self.found.near &= self._stack.count("pci") > 1
            self.found.ports[
                f"{given.get('name', '')}:{given.get('port', '')}:{given.get('dev', '')}"
            ] = rate

    def _end(self, tag: str) -> None:
        self._stack.pop()
        if tag == "pci":
            self._slots.pop()
        elif tag == "gpu":
            self.found.gpus.append(self._gpu)


class _Refused(Exception):
    """The document is not read further."""


def _slot(given: dict[str, str]) -> tuple[str, int, int]:
    """Address, generation and lanes; an empty or unknown speed counts as Gen4, which is what a
    virtual machine often hides.
    """
    lanes = _whole(given.get("link_width", ""))
    bus = given.get("busid", "").lower()
    return (
        bus,
        GENERATION.get(given.get("link_speed", "").split(" ")[0], 4),
        lanes if lanes in (1, 2, 4, 8, 16) else 16,
    )


def _whole(text: str) -> int:
    """A number of at most nine digits; 0 for anything else."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
