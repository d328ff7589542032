"""A node with a broken part is never fine: the exit code of the whole check, and what the line
for a monitor names.
"""

import json
from pathlib import Path

import pytest
from healthy import healthy
from healthy_gpu import changed, health, links, logged
from healthy_pcie import gpu_bdf, port_bdf
from tree import Change, Tree, combine, environment

from busbw.check.brief import brief
from busbw.check.registry import examine
from busbw.core.finding import Verdict, exit_of
from busbw.host.snapshot import recorded

HOSTS = Path(__file__).parents[2] / "hosts"
PCI, RDMA, EIO = "/sys/bus/pci/devices", "/sys/class/infiniband", "input/output error"
NVML = "NVML, the NVIDIA driver's library, did not start"
SWITCHES = tuple(f"{PCI}/0000:0{number}:00.0" for number in range(5, 9))
NAGIOS = {1: 2, 0: 0, 3: 3}


def without(*paths: str) -> Change:
    """Paths that are gone."""

    def change(tree: Tree) -> None:
        for path in paths:
            tree.drop(path)

    return change


def nvml_error(reason: str, *, gpus: int = 1) -> Change:
    """The first GPUs from GPU 3 on answer every call with this error of NVML."""

    def change(tree: Tree) -> None:
        bad = [{"index": index, "error": reason} for index in range(3, 3 + gpus)]
        good = [health(index) for index in range(8) if not 3 <= index < 3 + gpus]
        tree.update("nvml_health", gpus=good[:3] + bad + good[3:])

    return change


def nvml_dead(reason: str) -> Change:
    """NVML gives nothing at all."""
    return lambda tree: tree.failing("nvml_health", reason)


def gpus_gone(*indices: int) -> Change:
    """GPUs that neither PCI nor NVML shows."""

    def change(tree: Tree) -> None:
        without(*(f"{PCI}/{gpu_bdf(index)}" for index in indices))(tree)
        remaining = [index for index in range(8) if index not in indices]
        tree.update(
            "nvml_health",
            gpus=[health(at) | {"bus_id": gpu_bdf(index)} for at, index in enumerate(remaining)],
            peers=[],
        )

    return change


def ports_gone(*indices: int, pci: bool = True) -> Change:
    """RDMA devices that are gone, from PCI too or only in the RDMA subsystem."""

    def change(tree: Tree) -> None:
        for index in indices:
            without(
                f"{RDMA}/mlx5_{index}", f"/sys/class/net/ib{index}", f"/sys/class/net/eth{index}"
            )(tree)
            if pci:
                tree.drop(f"{PCI}/{port_bdf(index)}")

    return change


def port(index: int, **values: str) -> Change:
    """Files of one port."""
    return lambda tree: tree.files(f"{RDMA}/mlx5_{index}/ports/1", **values)


def unanswered(*paths: str) -> Change:
    """Files that are in their folders and give I/O errors."""

    def change(tree: Tree) -> None:
        for folder in {str(parent) for path in paths for parent in Path(path).parents}:
            tree.listing(folder, *tree.source().names(folder))
        for path in paths:
            tree.error(path, EIO)

    return change


def unreadable(tree: Tree) -> None:
    """All files of a port answer with an I/O error, as after a fatal error of its firmware."""
    for path in [path for path in tree.paths if path.startswith(f"{RDMA}/mlx5_3/ports/1/")]:
        tree.error(path, EIO)


def in_container(change: Change) -> Change:
    """A change in a container."""
    return combine(lambda tree: tree.file("/.dockerenv", ""), change)


def unloaded(*modules: str) -> Change:
    """Kernel modules that are not loaded."""

    def change(tree: Tree) -> None:
        lines = tree.paths["/proc/modules"]["text"].splitlines()
        tree.file(
            "/proc/modules", "\n".join(line for line in lines if line.split(" ")[0] not in modules)
        )

    return change


ALL = range(8)
SEEN = tuple(
    f"pci {gpu_bdf(index)}: [10de:2330] type 00 class 0x030200 PCIe Endpoint" for index in ALL
)
CARDS = tuple(
    f"mlx5_core {port_bdf(index)}: 252.048 Gb/s available PCIe bandwidth (16.0 GT/s PCIe x16 link)"
    for index in ALL
)
CASES: dict[str, tuple[Change, int, str]] = {
    "a GPU answers Unknown Error, as after Xid 79": (
        nvml_error("Unknown Error"),
        1,
        "gpu-count GPU 3",
    ),
    "a GPU is lost": (nvml_error("GPU is lost"), 1, "gpu-count GPU 3"),
    "a GPU lacks power": (nvml_error("Insufficient External Power"), 1, "gpu-count GPU 3"),
    "a GPU is withheld by a cgroup": (nvml_error("Insufficient Permissions"), 0, "no data"),
    "a GPU is lost after its name was read": (
        changed(3, temperature_c=None, failed={"temperature_c": "GPU is lost"}),
        1,
        "gpu-count GPU 3",
    ),
    "a GPU does not tell its temperature": (
        changed(3, temperature_c=None, failed={"temperature_c": "Unknown Error"}),
        3,
        "gpu-temperature GPU 3",
    ),
    "NVML is dead with the module loaded": (nvml_dead(f"{NVML}: Unknown Error"), 1, "gpu-count"),
    "NVML says that the driver is not loaded": (
        combine(nvml_dead(f"{NVML}: Driver Not Loaded"), unloaded("nvidia")),
        1,
        "gpu-driver",
    ),
    "NVML's library is not here": (
        nvml_dead(f"{NVML}: NVML Shared Library Not Found"),
        3,
        "gpu-count",
    ),
    "busbw lacks its package for NVML": (
        nvml_dead("the Python package nvidia-ml-py is not installed"),
        3,
        "gpu-count",
    ),
    "all GPUs are gone from PCI": (gpus_gone(*ALL), 1, "gpu-missing"),
    "all GPUs and NVSwitches are gone, the module is loaded": (
        combine(gpus_gone(*ALL), without(*SWITCHES)),
        1,
        "gpu-missing",
    ),
    "all GPUs are gone, the module is not loaded": (
        combine(gpus_gone(*ALL), unloaded("nvidia", "nvidia_uvm")),
        1,
        "gpu-missing",
    ),
    "two GPUs are gone from PCI, beside NVSwitches": (gpus_gone(2, 5), 1, "gpu-missing"),
    "two GPUs are gone, and the boot log saw them": (
        combine(gpus_gone(2, 5), without(*SWITCHES), logged(*SEEN, ago_s=9e5)),
        1,
        "gpu-missing",
    ),
    "two GPUs are gone, and have device files": (
        combine(
            gpus_gone(2, 5),
            without(*SWITCHES),
            lambda tree: tree.files("/dev", **{f"nvidia{index}": "" for index in ALL}),
        ),
        1,
        "gpu-missing",
    ),
    "PCI has 8 GPUs, NVML 6": (
        lambda tree: tree.update("nvml_health", gpus=[health(index) for index in range(6)]),
        1,
        "gpu-count",
    ),
    "all network cards are gone from PCI": (ports_gone(*ALL), 1, "nic-missing"),
    "one network card is gone, and the boot log saw it": (
        combine(ports_gone(3), logged(*CARDS, ago_s=9e5)),
        1,
        f"nic-missing {port_bdf(3)}",
    ),
    "network cards without RDMA devices": (ports_gone(*ALL, pci=False), 1, "nic-present"),
    "a network card without a driver": (
        combine(ports_gone(3, pci=False), without(f"{PCI}/{port_bdf(3)}/driver")),
        1,
        f"nic-present {port_bdf(3)}",
    ),
    "an RDMA device without ports": (without(f"{RDMA}/mlx5_3/ports"), 1, "nic-state mlx5_3"),
    "one rail is down": (port(3, state="1: DOWN", phys_state="2: Polling"), 1, "nic-state mlx5_3"),
    "one port waits for its subnet manager": (port(3, state="2: INIT"), 1, "nic-state mlx5_3"),
    "all ports wait": (
        combine(*(port(index, state="2: INIT") for index in ALL)),
        1,
        "nic-state mlx5_0",
    ),
    "files of a port give I/O errors": (unreadable, 1, "nic-state mlx5_3"),
    "hardware thermal slowdown": (changed(3, reasons=0x48), 1, "gpu-throttle GPU 3"),
    "power brake": (changed(3, reasons=0x80), 1, "gpu-throttle GPU 3"),
    "software thermal slowdown": (changed(3, reasons=0x20), 0, "gpu-throttle GPU 3"),
    "a gap in the names of RDMA devices": (ports_gone(3), 0, "nic-missing"),
    "a network card reads as ones": (
        lambda tree: tree.data(f"{PCI}/{port_bdf(3)}/config", b"\xff" * 64),
        1,
        f"nic-present {port_bdf(3)}",
    ),
    "a GPU reads as ones": (
        lambda tree: tree.data(f"{PCI}/{gpu_bdf(3)}/config", b"\xff" * 64),
        1,
        f"gpu-count {gpu_bdf(3)}",
    ),
    "an NVLink is down": (changed(3, links=links(active=False)), 1, "nvlink-links GPU 3"),
    "a link of PCIe shows no width": (
        lambda tree: tree.files(
            f"{PCI}/{port_bdf(3)}", current_link_width="63", current_link_speed="Unknown"
        ),
        3,
        "pcie-width mlx5_3",
    ),
    "an idle GPU lowers its link": (
        lambda tree: tree.file(f"{PCI}/{gpu_bdf(3)}/current_link_speed", "2.5 GT/s PCIe"),
        0,
        "no data",
    ),
    "a container that was given no GPU": (
        in_container(nvml_dead(f"{NVML}: NVML Shared Library Not Found")),
        0,
        "no data",
    ),
    "a container that lost its GPUs": (
        in_container(
            combine(
                nvml_dead(f"{NVML}: Unknown Error"), lambda tree: tree.file("/dev/nvidiactl", "")
            )
        ),
        1,
        "gpu-count",
    ),
    "a job of Slurm that has two GPUs": (
        combine(
            environment(SLURM_JOB_ID="7"),
            lambda tree: tree.update("nvml_health", gpus=[health(0), health(1)], peers=[[0, 1, 0]]),
        ),
        0,
        "no data",
    ),
    "one counter of a port gives an I/O error": (
        unanswered(f"{RDMA}/mlx5_3/ports/1/hw_counters/out_of_buffer"),
        1,
        "device-files mlx5_3",
    ),
    "a bridge gives I/O errors": (
        lambda tree: tree.error(f"{PCI}/0000:16:01.0/aer_dev_fatal", EIO),
        1,
        "device-files 0000:16:01.0",
    ),
    "a GPU's files say that there is no such device": (
        lambda tree: tree.error(f"{PCI}/{gpu_bdf(3)}/current_link_speed", "no such device"),
        1,
        "device-files GPU 3",
    ),
    "the counts of memory errors give I/O errors": (
        unanswered(
            "/sys/devices/system/edac/mc/mc0/ue_count", "/sys/devices/system/edac/mc/mc0/ce_count"
        ),
        3,
        "mem-errors",
    ),
    "nothing is broken": (lambda tree: tree, 0, "passed"),
}


@pytest.mark.parametrize(
    ("name", "code", "reason"),
    [
        (
            "h100x8-ib",
            3,
            "8 NVIDIA GPUs on PCI, but NVML lists none: the recording has no 'nvml_health'",
        ),
        (
            "h200x2-recorded",
            3,
            "2 NVIDIA GPUs on PCI, but NVML lists none: the recording has no 'nvml_health'",
        ),
        (
            "vm-veth",
            3,
            "1 NVIDIA GPU on PCI, but NVML lists none: the recording has no 'nvml_health'",
        ),
        (
            "no-nic",
            3,
            "1 NVIDIA GPU on PCI, but NVML lists none: the recording has no 'nvml_health'",
        ),
        ("roce-bond", 0, ""),
    ],
)
def test_a_recorded_host_passes_or_gives_a_reason(name: str, code: int, reason: str) -> None:
    """They hold what a run needs to know of a machine, which is less than a snapshot has."""
    report = examine(recorded(HOSTS / f"{name}.jsonl"))
    assert exit_of([report.verdict]) == code
    assert {
        finding.message
        for finding in report.findings
        if finding.verdict is Verdict.UNKNOWN and not finding.optional
    } == ({reason} if reason else set())


@pytest.mark.parametrize("layer", ["Ethernet", "InfiniBand"])
@pytest.mark.parametrize("case", CASES)
def test_exit_code_and_first_line_of_broken_nodes(case: str, layer: str) -> None:
    change, code, subject = CASES[case]
    tree = healthy(layer=layer)
    change(tree)
    report = examine(tree.source())
    status, line = brief(report)
    assert exit_of([report.verdict]) == code, line
    assert status == NAGIOS[code] or (code, status) == (0, 1)  # a warning
    assert subject in line
    assert json.dumps(line).isascii() and line.count("\n") == 1


def test_a_machine_without_gpus_and_rdma_is_fine() -> None:
    tree = healthy(gpus=0, ports=0).files(
        f"{PCI}/0000:00:1f.0", vendor="0x8086", **{"class": "0x060100"}
    )
    combine(
        without(*SWITCHES, "/proc/driver/nvidia", "/dev/nvidia-uvm"),
        unloaded("nvidia", "nvidia_uvm", "nvidia_peermem", "mlx5_ib", "mlx5_core"),
    )(tree)
    tree.failing("nvml_health", "the Python package nvidia-ml-py is not installed")
    report = examine(tree.source())
    assert exit_of([report.verdict]) == 0, brief(report)[1]


def test_a_user_without_rights_and_a_kernel_that_offers_less_are_not_a_fault() -> None:
    tree = (
        healthy()
        .call("euid", "1000")
        .failing("kmsg", "/dev/kmsg: operation not permitted (it needs root)")
    )
    for path in list(tree.paths):
        if path.endswith("/config"):
            tree.data(path, b"\0" * 64)
    for index in range(8):
        tree.failing(f"dcb eth{index}", "operation not supported").drop(
            f"/sys/class/net/eth{index}/ecn"
        )
    report = examine(tree.source())
    status, line = brief(report)
    assert (status, exit_of([report.verdict])) == (0, 0), line
    assert "no data" in line and "unknown=0" in line
