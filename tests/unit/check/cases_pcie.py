"""Cases of the layer PCIe."""

from healthy import healthy
from healthy_pcie import DEVICES, bridges, config, gpu_bdf, port_bdf
from loads import loaded, loading, looping

GPU, PORT = f"{DEVICES}/{gpu_bdf(2)}", f"{DEVICES}/{port_bdf(3)}"
SWITCH = f"{DEVICES}/{bridges(5, gpu=False)[2]}"


def virtual():
    """The server as a virtual machine would show it."""
    return healthy().files("/sys/class/dmi/id", sys_vendor="QEMU")


PCIE = {
    "pcie-width": lambda tree: tree.file(f"{GPU}/current_link_width", "8"),
    "pcie-speed": lambda tree: tree.file(f"{PORT}/current_link_speed", "16.0 GT/s PCIe"),
    "pcie-nic-bandwidth": lambda tree: tree.file(f"{PORT}/current_link_speed", "16.0 GT/s PCIe"),
    "pcie-path": lambda tree: tree.link(
        GPU, f"../../../devices/pci0000:70/0000:70:01.0/{gpu_bdf(2)}"
    ),
    "pcie-numa": lambda tree: tree.file(f"{PORT}/numa_node", "-1"),
    "pcie-acs": lambda tree: tree.data(f"{SWITCH}/config", config(acs=0x1D)),
    "pcie-iommu": lambda tree: tree.file("/sys/kernel/iommu_groups/7/type", "DMA-FQ"),
    "pcie-ats": (virtual(), lambda tree: tree.data(f"{PORT}/config", config())),
    "pcie-max-read-request": lambda tree: tree.data(f"{PORT}/config", config(read_request=512)),
    "pcie-max-payload": lambda tree: tree.data(f"{PORT}/config", config(payload=128)),
    "pcie-relaxed-ordering": (
        lambda tree: tree.data(f"{PORT}/config", config(relaxed=False)).file(
            f"{DEVICES}/{bridges(3, gpu=False)[0]}/vendor", "0x1022"
        )
    ),
    "pcie-load-rate": (loaded(), loading(rate=20e9)),
    "pcie-load-link": (loaded(), loading(gen=2)),
    "gpudirect-loopback": (loaded(), looping(bytes_per_s=200e9 / 8)),
    "nvme": lambda tree: tree.file("/sys/class/nvme/nvme1/state", "dead"),
    "pcie-load-transitions": (loaded(), loading(first=0, gen=4)),
    "pcie-aer-fatal": lambda tree: tree.file(f"{SWITCH}/aer_dev_fatal", "DLP 2\nTOTAL_ERR_FATAL 2"),
    "device-files": lambda tree: tree.error(f"{GPU}/numa_node", "input/output error"),
    "pcie-aer-correctable": lambda tree: tree.file(
        f"{GPU}/aer_dev_correctable", "BadTLP 90000\nTOTAL_ERR_COR 90000"
    ),
}
