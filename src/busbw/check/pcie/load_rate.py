"""The rate of copies between host and GPU."""

from collections import Counter
from collections.abc import Iterator

from busbw.check.base import Check, judged, unknown
from busbw.check.load import Copies, GpuLoad, loaded
from busbw.check.machine import Machine
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.gpu import pcie_rate

SHARE = 2 / 3  # of the link: Azure's node health checks ask 21 of 31.5 GB/s of A100, and 48 of 63 of H100

ROW = CheckRow(
    id="BW053",
    name="pcie-load-rate",
    layer=Layer.PCIE,
    title="rate of copies between pinned host memory and each GPU, under load",
    right=f"in each direction {SHARE:.0%} or more of what the link carries at its current generation and width",
    why="Data loading, checkpoints, offloading and NCCL's paths through the host all use this link. Retransmits, an IOMMU or memory on "
    "another socket slow it down, and no GPU counter shows it.",
    fix="repeat it on an idle machine; then check pcie-iommu, pcie-numa, pcie-max-payload and pcie-aer-correctable for GPU {gpu}",
    stays="permanent: hardware or a BIOS setting",
    reads=("copies of 128 MiB from and to pinned memory", "nvmlDeviceGetCurrPcieLinkGeneration", "nvmlDeviceGetCurrPcieLinkWidth"),
    sources=("Azure node health checks, gpu bandwidth", "PCI Express Base Specification, rates and encoding of each generation"),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each GPU, both directions."""
    return loaded(machine, _judge, over_pcie=True)


def _judge(gpu: GpuLoad) -> Iterator[Found]:
    for one in gpu.copies:
        yield _direction(gpu, one)


def _direction(gpu: GpuLoad, one: Copies) -> Found:
    links = Counter((sample.gen, sample.width) for sample in one.samples)
    gen, width = max(links, key=links.__getitem__, default=(None, None))
    link, text = pcie_rate(gen, width), f"{one.bytes_per_s / 1e9:.1f} GB/s {one.direction}"
    where = f"copies {one.direction}, {gpu.label}"
    if link is None:
        return unknown(gpu.label, f"{text}, but NVML does not report the generation and lanes of its link", Evidence(where, text))
    of = f"{text}, {one.bytes_per_s / link:.0%} of the {link / 1e9:g} GB/s of generation {gen} x{width}"
    return judged(
        right=one.bytes_per_s >= SHARE * link,
        subject=gpu.label,
        good=of,
        bad=f"only {of}",
        evidence=(Evidence(where, text, f"{SHARE * link / 1e9:.1f} GB/s or more"),),
        fix=filled(ROW.fix, gpu=gpu.index),
        weight=1 - one.bytes_per_s / link,
    )


CHECK = Check(ROW, look)
