"""Generation and lanes of a GPU's link under load."""

from collections.abc import Iterator

from busbw.check.base import Check, judged, unknown
from busbw.check.load import GpuLoad, loaded
from busbw.check.machine import Machine
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer

ROW = CheckRow(
    id="BW054",
    name="pcie-load-link",
    layer=Layer.PCIE,
    title="generation and lanes of each GPU's PCIe link, under load",
    right="in all samples the highest that the GPU and its slot support",
    why="An idle GPU lowers its link speed, so a single reading means little. A link that stays down-trained under load loses half of "
    "its rate per generation, and logs no Xid.",
    fix="nvidia-smi -q -i {gpu} | grep -A8 'GPU Link Info'; drain the host; set the link speed of the slot to Auto in the BIOS; power "
    "it off and reseat {bdf} and its riser",
    stays="permanent: hardware or a BIOS setting",
    reads=("nvmlDeviceGetCurrPcieLinkGeneration", "nvmlDeviceGetCurrPcieLinkWidth", "nvmlDeviceGetMaxPcieLinkGeneration"),
    sources=("NVML, PCIe link", "NVSentinel issue 890"),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each GPU, all its samples."""
    return loaded(machine, _judge, over_pcie=True)


def _judge(gpu: GpuLoad) -> Iterator[Found]:
    seen = [(sample.gen, sample.width) for sample in gpu.samples if sample.gen and sample.width]
    if not seen or not gpu.gen_max or not gpu.width_max:
        yield unknown(gpu.label, "NVML does not report the generation and lanes of its link")
    else:
        low = [one for one in seen if one[0] < gpu.gen_max or one[1] < gpu.width_max]
        best, (gen, width) = f"generation {gpu.gen_max} x{gpu.width_max}", min(low or seen)
        yield judged(
            right=not low,
            subject=gpu.label,
            good=f"{best} in all {len(seen)} samples under load",
            bad=f"below {best} in {len(low)} of {len(seen)} samples under load, down to generation {gen} x{width}",
            evidence=(Evidence(f"NVML, {gpu.label}, while copies ran", f"generation {gen} x{width}", best),),
            fix=filled(ROW.fix, gpu=gpu.index, bdf=gpu.bus_id),
        )


CHECK = Check(ROW, look)
