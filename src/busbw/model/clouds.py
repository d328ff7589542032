"""Hosts that clouds rent, as the vendors' pages describe them."""

from dataclasses import dataclass

AWS = "AWS EC2 instance types, accelerated computing"
GCP = "Google Cloud GPU machine types"
AZURE = "Azure GPU-accelerated virtual machine sizes"
OCI = "OCI compute shapes, GPU"


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
    Instance("p4d.24xlarge", "a100", 8, 4, 100, "efav1", "intel", AWS, alone=True),
    Instance("p4de.24xlarge", "a100", 8, 4, 100, "efav1", "intel", AWS, alone=True),
    Instance("p5.48xlarge", "h100", 8, 32, 100, "efav2", "amd", AWS, alone=True),
    Instance("p5e.48xlarge", "h200", 8, 32, 100, "efav2", "amd", AWS, alone=True),
    Instance("p5en.48xlarge", "h200", 8, 16, 200, "efav3", "intel", AWS, alone=True),
    Instance("p6-b200.48xlarge", "b200", 8, 8, 400, "efav4", "intel", AWS),
    Instance("p6-b300.48xlarge", "b300", 8, 16, 400, "efav4", "intel", AWS),
    Instance("a2-ultragpu-8g", "a100", 8, 1, 100, "socket", "intel", GCP, near=False),
    Instance("a3-highgpu-8g", "h100", 8, 4, 200, "tcpx", "intel", GCP),
    Instance("a3-megagpu-8g", "h100", 8, 8, 200, "tcpxo", "intel", GCP),
    Instance("a3-ultragpu-8g", "h200", 8, 8, 400, "roce", "intel", GCP),
    Instance("a4-highgpu-8g", "b200", 8, 8, 400, "roce", "intel", GCP),
    Instance("nd96asr_v4", "a100", 8, 8, 200, "ib", "amd", AZURE),
    Instance("nd96amsr_a100_v4", "a100", 8, 8, 200, "ib", "amd", AZURE),
    Instance("nd96isr_h100_v5", "h100", 8, 8, 400, "ib", "intel", AZURE),
    Instance("nd96isr_h200_v5", "h200", 8, 8, 400, "ib", "intel", AZURE),
    Instance("bm.gpu4.8", "a100", 8, 16, 100, "roce", "amd", OCI),
    Instance("bm.gpu.a100-v2.8", "a100", 8, 16, 100, "roce", "amd", OCI),
    Instance("bm.gpu.h100.8", "h100", 8, 16, 200, "roce", "intel", OCI),
    Instance("bm.gpu.h200.8", "h200", 8, 8, 400, "roce", "intel", OCI),
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
