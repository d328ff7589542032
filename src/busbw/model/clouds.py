"""Hosts that clouds rent (model/clouds.csv)."""

from dataclasses import dataclass
from functools import cache

from busbw.core.table_file import rows

_AZURE_PREFIX = "standard_"


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


@cache
def instances() -> dict[str, Instance]:
    """All hosts of the table, by name."""
    return {row.name: row for row in rows("model/clouds.csv", Instance)}


def instance(text: str) -> Instance | None:
    """The row of an instance type in any case, such as `p5.48xlarge` or
    `Standard_ND96isr_H100_v5`; None if there is none.
    """
    return instances().get(text.strip().lower().removeprefix(_AZURE_PREFIX))


def with_these_nics(gpu: str, gpus: int, nics: int, gbit: float) -> Instance | None:
    """The row of the only vendor that has these NICs beside GPUs of this name, such as `H100` or
    `NVIDIA H100 80GB HBM3`; None if there is none.
    """
    words = gpu.lower().replace("-", " ").split()
    for row in instances().values():
        if row.alone and row.word in words and (row.gpus, row.nics, row.gbit) == (gpus, nics, gbit):
            return row
    return None
