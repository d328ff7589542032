"""PCI devices of the healthy server: under each root port a switch with a GPU and a network
card.
"""

from tree import Tree

BUSES = ("1b", "43", "52", "61", "9d", "c3", "d1", "df")
DEVICES = "/sys/bus/pci/devices"
SPEED, LANES = "32.0 GT/s PCIe", "16"
FATAL = "Undefined 0\nDLP 0\nSDES 0\nTOTAL_ERR_{kind} 0"
CORRECTABLE = "RxErr 0\nBadTLP 0\nBadDLLP 0\nRollover 0\nTimeout 0\nNonFatalErr 0\nTOTAL_ERR_COR 0"
INTEL, BROADCOM = "0x8086", "0x1000"
NVME = ("0000:02:00.0", "0000:03:00.0")


def gpu_bdf(index: int) -> str:
    """PCI address of a GPU."""
    return f"0000:{BUSES[index % 8]}:00.0"


def port_bdf(index: int) -> str:
    """PCI address of a network port; the ninth is on a second card beside the first GPU."""
    return f"0000:{_bus(index, 1 + index // 8)}:00.0"


def _bus(index: int, offset: int) -> str:
    return f"{int(BUSES[index % 8], 16) + offset:02x}"


def bridges(index: int, *, gpu: bool) -> tuple[str, str, str]:
    """Root port, upstream and downstream port of the switch above a GPU or network port."""
    return (
        f"0000:{_bus(index, -5)}:01.0",
        f"0000:{_bus(index, -4)}:00.0",
        f"0000:{_bus(index, -3)}:0{0 if gpu else 1 + index // 8}.0",
    )


def config(
    *,
    payload: int = 256,
    read_request: int = 4096,
    relaxed: bool = True,
    acs: int | None = None,
    ats: bool | None = None,
) -> bytes:
    """A configuration space with a PCI Express capability, and of ACS (its control bits) and ATS
    (enabled or not) what is given.
    """
    data = bytearray(4096)
    data[6], data[0x34], data[0x60] = 0x10, 0x60, 0x10
    control = (payload.bit_length() - 8) << 5 | (read_request.bit_length() - 8) << 12 | relaxed << 4
    data[0x68:0x6A] = control.to_bytes(2, "little")
    capabilities = [(0x0001, 0)]  # AER, which every device here has
    capabilities += [(0x000D, acs)] if acs is not None else []
    capabilities += [(0x000F, ats << 15)] if ats is not None else []
    for number, (kind, value) in enumerate(capabilities):
        at, following = (
            0x100 + 0x40 * number,
            (0x140 + 0x40 * number if number + 1 < len(capabilities) else 0),
        )
        data[at : at + 4] = (kind | 1 << 16 | following << 20).to_bytes(4, "little")
        data[at + 6 : at + 8] = value.to_bytes(2, "little")
    return bytes(data)


def device(
    tree: Tree, path: tuple[str, ...], vendor: str, kind: str, numa: int, blob: bytes
) -> None:
    """One function with its link, error counts and configuration space, at the end of a path of
    addresses.
    """
    base, root = f"{DEVICES}/{path[-1]}", f"pci{path[0][:7]}"
    tree.link(base, f"../../../devices/{root}/{'/'.join(path)}")
    tree.files(base, vendor=vendor, **{"class": kind}, numa_node=str(numa))
    tree.files(
        base,
        current_link_speed=SPEED,
        max_link_speed=SPEED,
        current_link_width=LANES,
        max_link_width=LANES,
    )
    tree.files(
        base,
        aer_dev_fatal=FATAL.format(kind="FATAL"),
        aer_dev_nonfatal=FATAL.format(kind="NONFATAL"),
        aer_dev_correctable=CORRECTABLE,
    )
    tree.data(f"{base}/config", blob)
    tree.link(f"{base}/iommu_group", "../../../../kernel/iommu_groups/7")


def _under_switch(
    tree: Tree, path: tuple[str, ...], vendor: str, kind: str, numa: int, blob: bytes
) -> None:
    for length, maker in ((1, INTEL), (2, BROADCOM), (3, BROADCOM)):
        device(tree, path[:length], maker, "0x060400", numa, config(acs=0))
    device(tree, path, vendor, kind, numa, blob)


def _interrupts(tree: Tree, index: int) -> None:
    """Four of a network port, on CPUs of its node."""
    numbers = [str(100 + 4 * index + vector) for vector in range(4)]
    tree.listing(f"{DEVICES}/{port_bdf(index)}/msi_irqs", *numbers)
    for vector, number in enumerate(numbers):
        tree.file(
            f"/proc/irq/{number}/effective_affinity_list", str(48 * (index % 8 // 4) + vector)
        )


def drive(tree: Tree, index: int, bdf: str) -> None:
    """An NVMe drive."""
    tree.files(f"{DEVICES}/{bdf}", vendor="0x144d", **{"class": "0x010802"})
    tree.link(f"{DEVICES}/{bdf}/driver", "../../../bus/pci/drivers/nvme")
    tree.files(
        f"/sys/class/nvme/nvme{index}",
        state="live",
        address=bdf,
        transport="pcie",
        model="SAMSUNG MZQL23T8HCLS-00A07",
    )
    tree.files(f"/sys/class/nvme/nvme{index}/hwmon{index}", temp1_alarm="0", temp1_input="36850")


def add(tree: Tree, gpus: int, ports: int) -> None:
    """To the tree."""
    tree.file("/sys/kernel/iommu_groups/7/type", "identity").call("nvml_load", "{}")
    for index, bdf in enumerate(NVME):
        drive(tree, index, bdf)
    for index in range(gpus):
        _under_switch(
            tree,
            (*bridges(index, gpu=True), gpu_bdf(index)),
            "0x10de",
            "0x030200",
            index // 4,
            config(),
        )
    for index in range(ports):
        path = (*bridges(index, gpu=False), port_bdf(index))
        _under_switch(tree, path, "0x15b3", "0x020000", index % 8 // 4, config(ats=False))
        _interrupts(tree, index)
