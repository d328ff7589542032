"""PCIe under load: copies to and from each GPU, and GPUDirect RDMA within the host."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import msgspec

from busbw.check.base import check, failed, judged, not_offered, skipped, unknown
from busbw.check.load.gpu_copies import Copies, GpuLoad
from busbw.check.load.judge import COMMAND, under_load
from busbw.check.load.rdma_loopback import CALL, NOT_INSTALLED, WITHOUT_CUDA, Loopback, PortLoopback
from busbw.check.machine import Machine, RdmaPort
from busbw.check.nic.links import gbits
from busbw.check.pcie.links import GENERATIONS
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer
from busbw.core.sizes import counted
from busbw.host.gpu import pcie_rate
from busbw.host.pci import read_link
from busbw.host.source import Unavailable
from busbw.ui.number_formats import bandwidth_text, nominal_text

# Share of the link's rate. Azure's node health checks ask for 21 of 31.5 GB/s on A100, and for 48
# of 63 GB/s on H100.
COPY_SHARE = 2 / 3

LOAD_RATE = CheckRow(
    id="BW053",
    name="pcie-load-rate",
    layer=Layer.PCIE,
    title="rate of copies between pinned host memory and each GPU, under load",
    right=(
        f"in each direction {COPY_SHARE:.0%} or more of what the link carries at its current"
        " generation and width"
    ),
    why=(
        "Data loading, checkpoints, offloading and NCCL's paths through the host all use this "
        "link. Retransmits, an IOMMU or memory on another socket slow it down, and no GPU counter "
        "shows it."
    ),
    fix=(
        "repeat it on an idle machine; then check pcie-iommu, pcie-numa, pcie-max-payload and"
        " pcie-aer-correctable for GPU {gpu}"
    ),
    stays="permanent: hardware or a BIOS setting",
    reads=(
        "copies of 128 MiB from and to pinned memory",
        "nvmlDeviceGetCurrPcieLinkGeneration",
        "nvmlDeviceGetCurrPcieLinkWidth",
    ),
    sources=(
        "Azure node health checks, gpu bandwidth",
        "PCI Express Base Specification, rates and encoding of each generation",
    ),
)
LOOPBACK_SHARE = 0.8  # of the port's rate or that of its PCIe link
GBIT = 1e9 / 8


@under_load(LOAD_RATE, over_pcie=True)
def check_load_rate(gpu: GpuLoad) -> Iterator[Finding]:
    for copies in gpu.copies:
        yield _judge_direction(gpu, copies)


def _judge_direction(gpu: GpuLoad, copies: Copies) -> Finding:
    links = Counter((sample.gen, sample.width) for sample in copies.samples)
    gen, width = max(links, key=links.__getitem__, default=(None, None))
    link = pcie_rate(gen, width)
    text = f"{bandwidth_text(copies.bytes_per_s)} GB/s {copies.direction}"
    where = f"copies {copies.direction}, {gpu.label}"
    if link is None:
        return unknown(
            gpu.label,
            f"{text}, but NVML does not report the generation and lanes of its link",
            Evidence(where, text),
        )
    text_of_share = (
        f"{text}, {copies.bytes_per_s / link:.0%} of the {nominal_text(link)} GB/s of generation"
        f" {gen} x{width}"
    )
    return judged(
        right=copies.bytes_per_s >= COPY_SHARE * link,
        subject=gpu.label,
        good=text_of_share,
        bad=f"only {text_of_share}",
        evidence=(Evidence(where, text, f"{nominal_text(COPY_SHARE * link)} GB/s or more"),),
        fix=filled(LOAD_RATE.fix, gpu=gpu.index),
        weight=1 - copies.bytes_per_s / link,
    )


LOAD_LINK = CheckRow(
    id="BW054",
    name="pcie-load-link",
    layer=Layer.PCIE,
    title="generation and lanes of each GPU's PCIe link, under load",
    right="in all samples the highest that the GPU and its slot support",
    why=(
        "An idle GPU lowers its link speed, so a single reading means little. A link that stays "
        "down-trained under load loses half of its rate per generation, and logs no Xid."
    ),
    fix=(
        "nvidia-smi -q -i {gpu} | grep -A8 'GPU Link Info'; drain the host; set the link speed "
        "of the slot to Auto in the BIOS; power it off and reseat {bdf} and its riser"
    ),
    stays="permanent: hardware or a BIOS setting",
    reads=(
        "nvmlDeviceGetCurrPcieLinkGeneration",
        "nvmlDeviceGetCurrPcieLinkWidth",
        "nvmlDeviceGetMaxPcieLinkGeneration",
    ),
    sources=("NVML, PCIe link", "NVSentinel issue 890"),
)


@under_load(LOAD_LINK, over_pcie=True)
def check_load_link(gpu: GpuLoad) -> Iterator[Finding]:
    links = [(sample.gen, sample.width) for sample in gpu.samples if sample.gen and sample.width]
    if not links or not gpu.gen_max or not gpu.width_max:
        yield unknown(gpu.label, "NVML does not report the generation and lanes of its link")
    else:
        degraded = [link for link in links if link[0] < gpu.gen_max or link[1] < gpu.width_max]
        highest, (gen, width) = f"generation {gpu.gen_max} x{gpu.width_max}", min(degraded or links)
        yield judged(
            right=not degraded,
            subject=gpu.label,
            good=f"{highest} in all {len(links)} samples under load",
            bad=(
                f"below {highest} in {len(degraded)} of {len(links)} samples under load, down to"
                f" generation {gen} x{width}"
            ),
            evidence=(
                Evidence(
                    f"NVML, {gpu.label}, while copies ran", f"generation {gen} x{width}", highest
                ),
            ),
            fix=filled(LOAD_LINK.fix, gpu=gpu.index, bdf=gpu.bus_id),
        )


LOAD_TRANSITIONS = CheckRow(
    id="BW055",
    name="pcie-load-transitions",
    layer=Layer.PCIE,
    title="changes of generation or lanes of each GPU's PCIe link, under load",
    right="none while a copy runs in one direction",
    why=(
        "A link that retrains carries no data meanwhile. Idle GPUs often change the speed. Under "
        "load, a change points to a bad contact, a riser, or firmware power saving."
    ),
    fix=(
        "check pcie-aer-correctable; drain the host; turn off ASPM and power saving of the slot "
        "in the BIOS; power it off and reseat {bdf} and its riser"
    ),
    stays="permanent: hardware or a BIOS setting",
    reads=("nvmlDeviceGetCurrPcieLinkGeneration", "nvmlDeviceGetCurrPcieLinkWidth"),
    sources=("NVML, PCIe link",),
)


@under_load(LOAD_TRANSITIONS, over_pcie=True)
def check_load_transitions(gpu: GpuLoad) -> Iterator[Finding]:
    number = changes = 0
    for copies in gpu.copies:
        links = [
            (sample.gen, sample.width) for sample in copies.samples if sample.gen and sample.width
        ]
        number += len(links)
        changes += sum(before != after for before, after in pairwise(links))
    if not number:
        yield unknown(gpu.label, "NVML does not report the generation and lanes of its link")
    else:
        text = f"{counted(changes, 'change')} of its link in {number} samples under load"
        yield judged(
            right=not changes,
            subject=gpu.label,
            good=text,
            bad=text,
            evidence=(
                Evidence(f"NVML, {gpu.label}, while copies ran", counted(changes, "change"), "0"),
            ),
            fix=filled(LOAD_TRANSITIONS.fix, bdf=gpu.bus_id),
        )


GPUDIRECT_LOOPBACK = CheckRow(
    id="BW265",
    name="gpudirect-loopback",
    layer=Layer.PCIE,
    title=(
        "rate of GPUDirect RDMA from the memory of each GPU through its RDMA device and back, under"
        " load"
    ),
    right=(
        f"{LOOPBACK_SHARE:.0%} or more of the rate of the port, or of its PCIe link if that is"
        " lower"
    ),
    why=(
        "It needs the GPU, the PCIe switch, the NIC and the modules for GPUDirect together, and "
        "no other host. ACS, an IOMMU or a narrow link halve the rate, and NCCL is then slower on "
        "this host alone."
    ),
    fix=(
        "busbw check --only pcie-acs --only pcie-iommu --only pcie-path --only gpudirect-path; "
        "in one shell ib_write_bw -d {device} --use_cuda={gpu} -F; in another the same with "
        "localhost at its end"
    ),
    stays="depends on the cause",
    reads=(
        "ib_write_bw --use_cuda of perftest, to this host itself",
        "/sys/class/infiniband/*/ports/*/rate",
        "/sys/bus/pci/devices/*/current_link_*",
    ),
    sources=("perftest, README", "Azure node health checks, azure_ib_write_bw_gdr"),
)


@check(GPUDIRECT_LOOPBACK)
def check_gpudirect_loopback(machine: Machine) -> Iterator[Finding]:
    """A finding for each port next to a GPU; skip without a load."""
    reading = machine.call(CALL, _not_asked)
    if reading.data is None:
        yield skipped(f"judged only under load: {COMMAND}")
        return
    tried = msgspec.json.decode(reading.data, type=Loopback)
    if not tried.loops and tried.reason in (NOT_INSTALLED, WITHOUT_CUDA):
        yield not_offered("", tried.reason)
    elif not tried.loops:
        without = tried.reason.startswith("no ")
        yield skipped(tried.reason) if without else unknown("", tried.reason)
    for loop in tried.loops:
        yield _judge_loop(machine, loop)


def _judge_loop(machine: Machine, loop: PortLoopback) -> Finding:
    port = next((port for port in machine.ports if port.name == loop.port), None)
    fix = filled(GPUDIRECT_LOOPBACK.fix, device=port.device if port else loop.port, gpu=loop.gpu)
    where = f"ib_write_bw --use_cuda={loop.gpu}, {loop.port}"
    if loop.bytes_per_s is None:
        message = f"GPUDirect RDMA with GPU {loop.gpu} fails: {loop.error}"
        return failed(loop.port, message, Evidence(where, loop.error, "a rate"), fix=fix)
    limit = _port_or_link_rate(machine, port) if port else None
    text = f"{loop.bytes_per_s / GBIT:.0f} Gbit/s with GPU {loop.gpu}"
    if limit is None:
        return unknown(
            loop.port, f"{text}, but the rate of the port is not known", Evidence(where, text)
        )
    return judged(
        right=loop.bytes_per_s >= LOOPBACK_SHARE * limit,
        subject=loop.port,
        good=text,
        bad=f"only {text}, {loop.bytes_per_s / limit:.0%} of {limit / GBIT:.0f}",
        evidence=(Evidence(where, text, f"{LOOPBACK_SHARE * limit / GBIT:.0f} Gbit/s or more"),),
        fix=fix,
        weight=1 - loop.bytes_per_s / limit,
    )


def _port_or_link_rate(machine: Machine, port: RdmaPort) -> float | None:
    """Bytes per second of the port, or of its PCIe link if that is less."""
    link = read_link(machine, port.bdf)
    rates = [
        gbits(machine, port) * GBIT,
        pcie_rate(GENERATIONS.get(link.speed or 0), link.width) or 0.0,
    ]
    return min((rate for rate in rates if rate), default=None) if rates[0] else None


def _not_asked() -> str:
    raise Unavailable("no load was asked for")
