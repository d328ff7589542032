"""Checks of GPUs and their driver: which are there, and what is unknown or does not apply."""

import json
from pathlib import Path

import pytest
from healthy import healthy
from healthy_gpu import all_changed, changed, logged
from looking import found, of
from tree import Tree, environment

from busbw.check.machine import Machine
from busbw.check.registry import CHECKS, examine
from busbw.core.finding import Verdict
from busbw.host.snapshot import recorded

HOSTS = Path(__file__).parents[2] / "hosts"


GPU_CHECKS = [check for check in CHECKS if check.judge.__module__.startswith("busbw.check.gpu.")]


PASS, WARN, FAIL, SKIP, UNKNOWN = (
    Verdict.PASS,
    Verdict.WARN,
    Verdict.FAIL,
    Verdict.SKIP,
    Verdict.UNKNOWN,
)


def in_container(tree):
    tree.file("/.dockerenv", "")


def on_qemu(tree):
    tree.files("/sys/class/dmi/id", sys_vendor="QEMU")


def without_switches(tree):
    for number in range(5, 9):
        tree.drop(f"/sys/bus/pci/devices/0000:0{number}:00.0")


def without_a_switch(tree):
    tree.drop("/sys/bus/pci/devices/0000:05:00.0")


def test_without_gpus_every_check_is_skipped():
    tree = (
        Tree()
        .files("/sys/bus/pci/devices/0000:00:02.0", vendor="0x8086", **{"class": "0x030000"})
        .failing("nvml_health", "no driver")
    )
    for check in GPU_CHECKS:
        assert {finding.verdict for finding in check.run(Machine(tree.source()))} == {SKIP}, (
            check.row.name
        )


def test_gpus_without_nvml_are_unknown_with_the_reason():
    machine = Machine(recorded(HOSTS / "vm-veth.jsonl"))
    for check in GPU_CHECKS:
        if check.row.name not in (
            "gpu-missing",
            "gpu-nouveau",
            "gpu-xid",
            "gpu-sxid",
            "gpu-load-throttle",
        ):
            (finding,) = check.run(machine)
            assert (
                finding.verdict is UNKNOWN
                and "1 NVIDIA GPU on PCI" in finding.message
                and "nvml_health" in finding.message
            )


def test_nvml_without_its_package_names_the_package():
    (finding,) = found(
        "gpu-mig",
        lambda tree: tree.failing(
            "nvml_health", "the Python package nvidia-ml-py is not installed"
        ),
    )
    assert finding.fix == "pip install nvidia-ml-py"


def test_lost_gpu_fails_and_one_of_another_job_is_not_offered():
    changes = changed(1, error="GPU is lost"), changed(2, error="Insufficient Permissions")
    assert (
        of(found("gpu-count", *changes), "GPU 1").message
        == "the GPU at 0000:43:00.0 does not answer NVML: GPU is lost"
    )
    for name, verdict in (("gpu-count", FAIL), ("gpu-ecc-mode", UNKNOWN)):
        lost, withheld = (of(found(name, *changes), f"GPU {index}") for index in (1, 2))
        assert (lost.verdict, lost.optional) == (verdict, False)
        assert (withheld.verdict, withheld.optional) == (UNKNOWN, True)


def test_gpu_whose_pci_reads_give_ones_fails():
    findings = found(
        "gpu-count",
        lambda tree: tree.data("/sys/bus/pci/devices/0000:43:00.0/config", b"\xff" * 64),
    )
    assert of(findings, "0000:43:00.0").verdict is FAIL


def test_nvml_that_lists_no_gpu_of_pci_fails():
    (finding,) = found("gpu-count", lambda tree: tree.update("nvml_health", gpus=[]))
    assert finding.verdict is FAIL and "NVML lists 0" in finding.message


@pytest.mark.parametrize(
    "hidden",
    [in_container, environment(NVIDIA_VISIBLE_DEVICES="0"), environment(SLURM_JOB_GPUS="0")],
)
def test_gpus_that_a_container_or_job_hides_are_unknown(hidden):
    (finding,) = found("gpu-count", hidden, lambda tree: tree.update("nvml_health", gpus=[]))
    assert (
        finding.verdict is UNKNOWN
        and "may hide them" in finding.message
        and "on the host" in finding.fix
    )


ENUMERATED = "pci 0000:1b:00.0: [10de:2330] type 00 class 0x030200 PCIe Endpoint"


@pytest.mark.parametrize(
    ("changes", "gpus", "verdict", "optional"),
    [
        ([], 8, PASS, False),
        ([], 7, FAIL, False),
        ([], 4, FAIL, False),
        # A virtual machine with part of a board gets at most 3 of its NVSwitches.
        ([on_qemu], 7, FAIL, False),
        ([on_qemu, without_a_switch], 4, UNKNOWN, True),
        ([on_qemu, without_a_switch, logged(ENUMERATED)], 4, PASS, False),
        ([in_container], 4, UNKNOWN, True),
        ([lambda tree: tree.drop("/sys/bus/pci/devices")], 8, UNKNOWN, True),
        # Blackwell's NVSwitches are not on PCI; a tray of an NVL72 has 4 GPUs.
        ([without_switches, all_changed(name="NVIDIA B200")], 7, FAIL, False),
        ([without_switches, all_changed(name="NVIDIA GB200")], 4, UNKNOWN, True),
    ],
)
def test_gpus_that_a_board_should_have(changes, gpus, verdict, optional):
    (finding,) = found("gpu-missing", *changes, tree=healthy(gpus=gpus))
    assert (finding.verdict, finding.optional) == (verdict, optional)


@pytest.mark.parametrize(
    "line",
    [
        # virtual functions of a GPU, of vGPU
        "pci 0000:3b:00.4: [10de:20f1] type 00 class 0x030200 PCIe Endpoint",
        "pci 0000:3b:01.0: [10de:20f1] type 00 class 0x030200 PCIe Endpoint",
        # the sound device of a GPU
        "pci 0000:3b:00.0: [10de:1aef] type 00 class 0x040300 PCIe Endpoint",
        "nvidia-nvswitch 0000:3b:00.0: enabling device (0000 -> 0002)",
    ],
)
def test_devices_that_are_not_gpus_are_not_missed(line):
    (finding,) = found("gpu-missing", logged(line))
    assert finding.verdict is PASS


@pytest.mark.parametrize(
    ("change", "verdict"), [(lambda tree: tree, FAIL), (in_container, UNKNOWN)]
)
def test_gpus_with_a_device_file_are_missed_on_the_host(change, verdict):
    files = {f"nvidia{index}": "" for index in range(8)}
    pcie = all_changed(links=[], name="NVIDIA L40S")
    (finding,) = found(
        "gpu-missing",
        without_switches,
        pcie,
        lambda tree: tree.files("/dev", **files),
        change,
        tree=healthy(gpus=6),
    )
    assert finding.verdict is verdict
    assert (
        verdict is UNKNOWN
        or finding.message == "8 GPUs of this boot have a device file, PCI shows 6"
    )


def test_a_jetson_has_no_gpu_on_pci():
    tree = healthy(gpus=0).file(
        "/proc/device-tree/compatible", "nvidia,p3737-0000+p3701-0000 nvidia,tegra234"
    )
    (finding,) = found("gpu-missing", without_switches, tree=tree)
    assert finding.verdict is SKIP


def test_gpus_of_nvml_without_pci_are_not_counted():
    (finding,) = found("gpu-count", lambda tree: tree.drop("/sys/bus/pci/devices"))
    assert finding.verdict is UNKNOWN


def test_driver_updated_without_reboot_fails():
    (finding,) = found(
        "gpu-driver",
        lambda tree: tree.failing("nvml_health", "RM has detected an NVML/RM version mismatch."),
    )
    assert finding.verdict is FAIL and "reboot" in finding.fix


@pytest.mark.parametrize(
    ("line", "flavor"),
    [
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.158.01  Release Build",
            "open",
        ),
        (
            (
                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.158.01  Mon Jan 1 00:00:00 UTC"
                " 2026"
            ),
            "proprietary",
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  570.158.01  Release Build",
            "open",
        ),
    ],
)
def test_flavor_of_the_kernel_module(line, flavor):
    (finding,) = found("gpu-driver", lambda tree: tree.file("/proc/driver/nvidia/version", line))
    assert finding.verdict is PASS and flavor in finding.message


def test_driver_without_its_proc_file_is_unknown():
    (finding,) = found("gpu-driver", lambda tree: tree.drop("/proc/driver/nvidia/version"))
    assert finding.verdict is UNKNOWN


def test_nouveau_in_place_of_the_driver_fails():
    (finding,) = found(
        "gpu-nouveau", lambda tree: tree.file("/proc/modules", "nouveau 1 0 - Live 0x0")
    )
    assert finding.verdict is FAIL


def test_uvm_device_missing_in_a_container_fails():
    (finding,) = found(
        "gpu-uvm", in_container, lambda tree: tree.drop("/dev/nvidia-uvm").file("/dev/nvidia0", "")
    )
    assert finding.verdict is FAIL and "--gpus all" in finding.fix


def test_windows_subsystem_needs_no_uvm_device_and_lists_no_processes():
    wsl = lambda tree: tree.drop("/dev/nvidia-uvm").file("/dev/dxg", "")  # noqa: E731
    (finding,) = found("gpu-uvm", wsl)
    assert finding.verdict is SKIP
    used = of(found("gpu-memory-in-use", wsl, changed(2, used_bytes=2 << 30)), "GPU 2")
    assert (used.verdict, used.optional) == (UNKNOWN, True)


def test_uvm_device_in_a_dev_that_cannot_be_listed_is_unknown():
    (finding,) = found("gpu-uvm", lambda tree: tree.drop("/dev"))
    assert finding.verdict is UNKNOWN


@pytest.mark.parametrize(
    ("cuda", "verdict"), [(11080, FAIL), (12000, PASS), (13000, PASS), (None, UNKNOWN)]
)
def test_cuda_of_the_driver_against_nccl(cuda, verdict):
    (finding,) = found("gpu-cuda-driver", lambda tree: tree.update("nvml_health", cuda=cuda))
    assert finding.verdict is verdict


def test_without_a_package_of_nccl_its_cuda_is_skipped():
    (finding,) = found("gpu-cuda-driver", lambda tree: tree.call("nccl_packages", json.dumps([])))
    assert finding.verdict is SKIP


@pytest.mark.parametrize(
    ("change", "unknown"),
    [
        (changed(3, temperature_c="N/A"), {"gpu-temperature"}),
        (changed(3, links="N/A"), {"nvlink-links", "nvlink-speed", "nvlink-errors"}),
        (changed(3, uncorrected={"dram": None}), {"gpu-ecc-uncorrected"}),
        (lambda tree: tree.update("nvml_health", cuda="12.8"), {"gpu-cuda-driver"}),
    ],
)
def test_a_value_of_nvml_that_is_not_understood_is_unknown_and_all_others_are_judged(
    change, unknown
):
    tree = healthy()
    change(tree)
    findings = examine(tree.source()).findings
    assert {finding.name for finding in findings if finding.verdict not in (PASS, SKIP)} == unknown


def test_what_only_names_gpus_does_without_nvml():
    findings = examine(healthy().call("nvml_health", "<html>").source()).findings
    unknown = {finding.layer for finding in findings if finding.verdict not in (PASS, SKIP)}
    assert unknown == {"GPU", "NVLink"}
