"""Bounds with NCCL's own constants, which exclude packet headers and checksums, instead of nominal
rates.

In NCCL's tables, data is about 82 % of NVLink's nominal rate and 76 % of PCIe's; NICs count with
their nominal rate.
"""

from dataclasses import replace

from busbw.core.collectives import Collective
from busbw.core.result import Ideal
from busbw.core.sizes import counted
from busbw.core.topology import Gpu
from busbw.model.bounds import Features, bounds
from busbw.model.fabric import Fabric, gb
from busbw.model.hardware import NCCL_PCI, generation


def planned_rate(gpu: Gpu) -> tuple[float, str] | None:
    """NCCL's bytes per second for the GPU's link to its peers, described; None if not known."""
    if gpu.nvlink:
        row = generation(gpu)
        if row is None:
            return None
        links = counted(gpu.nvlink, "link")
        text = f"NVLink as NCCL plans, {links} x {gb(row.planned)} GB/s"
        return gpu.nvlink * row.planned, text
    x16 = NCCL_PCI.get(gpu.pcie_gen_max or 0)
    if x16 is None or not gpu.pcie_width:
        return None
    rate = x16 * gpu.pcie_width / 16
    return rate, f"PCIe as NCCL plans, {gb(rate)} GB/s"


def plan(row: Collective, fab: Fabric, gpu: Gpu) -> Ideal | None:
    """The bound of Ring, or the point-to-point bound without Ring, with NCCL's constants; None
    for hardware not in the table.
    """
    if fab.gpu is not None:
        planned = planned_rate(gpu)
        if planned is None:
            return None
        fab = replace(fab, gpu=planned[0], gpu_link=planned[1])
    return next(iter(bounds(row, fab, Features())), None)
