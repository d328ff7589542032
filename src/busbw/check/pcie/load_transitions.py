"""How often a GPU's link changes its speed or lanes under load."""

from collections.abc import Iterator
from itertools import pairwise

from busbw.check.base import Check, judged, unknown
from busbw.check.load import GpuLoad, loaded
from busbw.check.machine import Machine
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.sizes import counted

ROW = CheckRow(
    id="BW055",
    name="pcie-load-transitions",
    layer=Layer.PCIE,
    title="changes of generation or lanes of each GPU's PCIe link, under load",
    right="none while a copy runs in one direction",
    why="A link that retrains carries no data meanwhile. Idle GPUs often change the speed. Under load, a change points to a bad contact, "
    "a riser, or firmware power saving.",
    fix="check pcie-aer-correctable; drain the host; turn off ASPM and power saving of the slot in the BIOS; power it off and reseat "
    "{bdf} and its riser",
    stays="permanent: hardware or a BIOS setting",
    reads=("nvmlDeviceGetCurrPcieLinkGeneration", "nvmlDeviceGetCurrPcieLinkWidth"),
    sources=("NVML, PCIe link",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each GPU, both directions; changes between them are not counted."""
    return loaded(machine, _judge, over_pcie=True)


def _judge(gpu: GpuLoad) -> Iterator[Found]:
    links = [[(one.gen, one.width) for one in copies.samples if one.gen and one.width] for copies in gpu.copies]
    number = sum(map(len, links))
    if not number:
        yield unknown(gpu.label, "NVML does not report the generation and lanes of its link")
    else:
        changes = sum(before != after for one in links for before, after in pairwise(one))
        text = f"{counted(changes, 'change')} of its link in {number} samples under load"
        yield judged(
            right=not changes,
            subject=gpu.label,
            good=text,
            bad=text,
            evidence=(Evidence(f"NVML, {gpu.label}, while copies ran", counted(changes, "change"), "0"),),
            fix=filled(ROW.fix, bdf=gpu.bus_id),
        )


CHECK = Check(ROW, look)
