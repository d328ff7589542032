"""The rate of GPUDirect RDMA within one host."""

from collections.abc import Iterator

import msgspec

from busbw.check.base import Check, failed, judged, not_offered, skipped, unknown
from busbw.check.load import COMMAND
from busbw.check.loopback import CALL, NOT_INSTALLED, WITHOUT_CUDA, Loop, Loopback
from busbw.check.machine import Machine, Port
from busbw.check.nic.links import gbits
from busbw.check.pcie.nic_bandwidth import GENERATIONS
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.gpu import pcie_rate
from busbw.host.pci import read_link
from busbw.host.source import Unavailable

SHARE = 0.8  # of the port's rate or that of its PCIe link
GBIT = 1e9 / 8

ROW = CheckRow(
    id="BW265",
    name="gpudirect-loopback",
    layer=Layer.PCIE,
    title="rate of GPUDirect RDMA from the memory of each GPU through its RDMA device and back, under load",
    right=f"{SHARE:.0%} or more of the rate of the port, or of its PCIe link if that is lower",
    why="It needs the GPU, the PCIe switch, the NIC and the modules for GPUDirect together, and no other host. ACS, an IOMMU or a "
    "narrow link halve the rate, and NCCL is then slower on this host alone.",
    fix="busbw check --only pcie-acs --only pcie-iommu --only pcie-path --only gpudirect-path; in one shell ib_write_bw -d {device} "
    "--use_cuda={gpu} -F; in another the same with localhost at its end",
    stays="depends on the cause",
    reads=(
        "ib_write_bw --use_cuda of perftest, to this host itself",
        "/sys/class/infiniband/*/ports/*/rate",
        "/sys/bus/pci/devices/*/current_link_*",
    ),
    sources=("perftest, README", "Azure node health checks, azure_ib_write_bw_gdr"),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each port next to a GPU; skip without a load or without perftest."""
    reading = machine.call(CALL, _not_asked)
    if reading.data is None:
        yield skipped(f"judged only under load: {COMMAND}")
        return
    tried = msgspec.json.decode(reading.data, type=Loopback)
    if not tried.loops and tried.reason in (NOT_INSTALLED, WITHOUT_CUDA):
        yield not_offered("", tried.reason)
    elif not tried.loops:
        report = skipped(tried.reason) if tried.reason.startswith("no ") else unknown("", tried.reason)
        yield report
    for loop in tried.loops:
        yield _judge(machine, loop)


def _judge(machine: Machine, loop: Loop) -> Found:
    port = next((port for port in machine.ports if port.name == loop.port), None)
    fix = filled(ROW.fix, device=port.device if port else loop.port, gpu=loop.gpu)
    where = f"ib_write_bw --use_cuda={loop.gpu}, {loop.port}"
    if loop.bytes_per_s is None:
        message = f"GPUDirect RDMA with GPU {loop.gpu} fails: {loop.error}"
        return failed(loop.port, message, Evidence(where, loop.error, "a rate"), fix=fix)
    most = _most(machine, port) if port else None
    text = f"{loop.bytes_per_s / GBIT:.0f} Gbit/s with GPU {loop.gpu}"
    if most is None:
        return unknown(loop.port, f"{text}, but the rate of the port is not known", Evidence(where, text))
    return judged(
        right=loop.bytes_per_s >= SHARE * most,
        subject=loop.port,
        good=text,
        bad=f"only {text}, {loop.bytes_per_s / most:.0%} of {most / GBIT:.0f}",
        evidence=(Evidence(where, text, f"{SHARE * most / GBIT:.0f} Gbit/s or more"),),
        fix=fix,
        weight=1 - loop.bytes_per_s / most,
    )


def _most(machine: Machine, port: Port) -> float | None:
    """Bytes per second of the port, or of its PCIe link if that is less."""
    link = read_link(machine, port.bdf)
    rates = [gbits(machine, port) * GBIT, pcie_rate(GENERATIONS.get(link.speed or 0), link.width) or 0.0]
    return min((rate for rate in rates if rate), default=None) if rates[0] else None


def _not_asked() -> str:
    raise Unavailable("no load was asked for")


CHECK = Check(ROW, look)
