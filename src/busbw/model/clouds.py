"""Hosts that clouds rent, as the vendors' pages describe them."""

from dataclasses import dataclass

# The page or file of each, and what it says of the NICs and the CPU.
EFA = "AWS, Maximize network bandwidth on Amazon EC2 instances with multiple network cards"
P4 = "aws/aws-ofi-nccl 2daf7d3, topology/p4d-24xl-topo.xml and p4de-24xl-topo.xml"
P5 = f"{EFA}; /proc/cpuinfo: AMD EPYC 7R13"
P5EN = f"{EFA}; AWS CDK, InstanceClass.P5EN: Sapphire Rapids"
P6_B200 = f"{EFA}: 8 cards, EFA 3,200 Gbit/s; 5th Gen Intel Xeon"
P6_B300 = f"{EFA}: EFA on 16 of 17 cards; AWS News Blog 2025-11-18: 6.4 Tbit/s"
GCP = "Google, Accelerator-optimized machine family"
A2 = f"{GCP}: 100 Gbit/s, Cascade Lake"
A3_HIGH = f"{GCP}: 4 NICs and 1 other, 1,000 Gbit/s, Sapphire Rapids"
A3_MEGA = f"{GCP}: 8 NICs and 1 other, 1,800 Gbit/s, Sapphire Rapids"
ULTRA = f"{GCP}: 8 ConnectX-7 and 2 others, 3,600 Gbit/s, Emerald Rapids"
AZURE = "MicrosoftDocs/azure-compute-docs, sizes/gpu-accelerated/includes"
ND_A100 = f"{AZURE}/ndasra100v4-series-specs.md and ndma100v4-series-specs.md"
ND_HOPPER = f"{AZURE}/ndh100v5-series-summary.md and nd-h200-v5-series-summary.md"
OCI = "Oracle, Compute Shapes"
GPU4 = f"{OCI}: 8 x 200 Gbit/s, AMD EPYC; oracle-quickstart/oci-hpc-oke: on 16 ports"
BM_A100 = f"{OCI}: 16 x 100 Gbit/s, AMD EPYC 7J13"
BM_H100 = f"{OCI}: 8 x 2 x 200 Gbit/s, Intel Xeon 8480+"
BM_H200 = f"{OCI}: 8 x 400 Gbit/s, Intel Xeon 8480+"


@dataclass(frozen=True, slots=True)
class Instance:
    """One type of host: `gpus` GPUs of a row of `gpu_hosts`, `nics` ports of `gbit` each for NCCL.

    `alone` says that no other vendor's host has these NICs beside these GPUs, so they tell the
    network. `near` says whether NICs and GPUs share PCIe switches.
    """

    name: str
    word: str
    gpus: int
    nics: int
    gbit: int
    network: str
    cpu: str
    source: str
    alone: bool = False
    near: bool = True


INSTANCES: tuple[Instance, ...] = (
    Instance("p4d.24xlarge", "a100", 8, 4, 100, "efav1", "intel", P4, alone=True),
    Instance("p4de.24xlarge", "a100", 8, 4, 100, "efav1", "intel", P4, alone=True),
    Instance("p5.48xlarge", "h100", 8, 32, 100, "efav2", "amd", P5, alone=True),
    Instance("p5e.48xlarge", "h200", 8, 32, 100, "efav2", "amd", P5, alone=True),
    Instance("p5en.48xlarge", "h200", 8, 16, 200, "efav3", "intel", P5EN, alone=True),
    Instance("p6-b200.48xlarge", "b200", 8, 8, 400, "efav4", "intel", P6_B200),
    Instance("p6-b300.48xlarge", "b300", 8, 16, 400, "efav4", "intel", P6_B300),
    Instance("a2-ultragpu-8g", "a100", 8, 1, 100, "socket", "intel", A2, near=False),
    Instance("a3-highgpu-8g", "h100", 8, 4, 200, "tcpx", "intel", A3_HIGH),
    Instance("a3-megagpu-8g", "h100", 8, 8, 200, "tcpxo", "intel", A3_MEGA),
    Instance("a3-ultragpu-8g", "h200", 8, 8, 400, "roce", "intel", ULTRA),
    Instance("a4-highgpu-8g", "b200", 8, 8, 400, "roce", "intel", ULTRA),
    Instance("nd96asr_v4", "a100", 8, 8, 200, "ib", "amd", ND_A100),
    Instance("nd96amsr_a100_v4", "a100", 8, 8, 200, "ib", "amd", ND_A100),
    Instance("nd96isr_h100_v5", "h100", 8, 8, 400, "ib", "intel", ND_HOPPER),
    Instance("nd96isr_h200_v5", "h200", 8, 8, 400, "ib", "intel", ND_HOPPER),
    Instance("bm.gpu4.8", "a100", 8, 16, 100, "roce", "amd", GPU4),
    Instance("bm.gpu.a100-v2.8", "a100", 8, 16, 100, "roce", "amd", BM_A100),
    Instance("bm.gpu.h100.8", "h100", 8, 16, 200, "roce", "intel", BM_H100),
    Instance("bm.gpu.h200.8", "h200", 8, 8, 400, "roce", "intel", BM_H200),
)
BY_INSTANCE = {row.name: row for row in INSTANCES}
_AZURE_PREFIX = "standard_"


def instance(text: str) -> Instance | None:
    """The row of an instance type in any case, such as `p5.48xlarge` or
    `Standard_ND96isr_H100_v5`; None if there is none.
    """
    return BY_INSTANCE.get(text.strip().lower().removeprefix(_AZURE_PREFIX))


def with_these_nics(gpu: str, gpus: int, nics: int, gbit: float) -> Instance | None:
    """The row of the only vendor that has these NICs beside GPUs of this name, such as `H100` or
    `NVIDIA H100 80GB HBM3`; None if there is none.
    """
    words = gpu.lower().replace("-", " ").split()
    for row in INSTANCES:
        if row.alone and row.word in words and (row.gpus, row.nics, row.gbit) == (gpus, nics, gbit):
            return row
    return None
