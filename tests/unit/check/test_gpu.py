"""Checks of GPUs: what is judged how, and what is unknown or does not apply."""

import json
from pathlib import Path

import pytest
from healthy import healthy
from healthy_gpu import all_changed, changed, logged
from looking import found, of
from tree import Tree, environment

from busbw.check.machine import Machine
from busbw.check.registry import CHECKS
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


def worst(findings):
    """The verdicts that are not pass."""
    return {one.verdict for one in findings} - {PASS}


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
        assert {one.verdict for one in check.run(Machine(tree.source()))} == {SKIP}, check.row.name


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
            (one,) = check.run(machine)
            assert (
                one.verdict is UNKNOWN
                and "1 NVIDIA GPU on PCI" in one.message
                and "nvml_health" in one.message
            )


def test_nvml_without_its_package_names_the_package():
    (one,) = found(
        "gpu-mig",
        lambda tree: tree.failing(
            "nvml_health", "the Python package nvidia-ml-py is not installed"
        ),
    )
    assert one.fix == "pip install nvidia-ml-py"


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
    seen = found(
        "gpu-count",
        lambda tree: tree.data("/sys/bus/pci/devices/0000:43:00.0/config", b"\xff" * 64),
    )
    assert of(seen, "0000:43:00.0").verdict is FAIL


def test_nvml_that_lists_no_gpu_of_pci_fails():
    (one,) = found("gpu-count", lambda tree: tree.update("nvml_health", gpus=[]))
    assert one.verdict is FAIL and "NVML lists 0" in one.message


@pytest.mark.parametrize(
    "hidden",
    [in_container, environment(NVIDIA_VISIBLE_DEVICES="0"), environment(SLURM_JOB_GPUS="0")],
)
def test_gpus_that_a_container_or_job_hides_are_unknown(hidden):
    (one,) = found("gpu-count", hidden, lambda tree: tree.update("nvml_health", gpus=[]))
    assert one.verdict is UNKNOWN and "may hide them" in one.message and "on the host" in one.fix


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
    (one,) = found("gpu-missing", *changes, tree=healthy(gpus=gpus))
    assert (one.verdict, one.optional) == (verdict, optional)


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
def test_devices_that_are_no_gpu_are_not_missed(line):
    (one,) = found("gpu-missing", logged(line))
    assert one.verdict is PASS


@pytest.mark.parametrize(
    ("change", "verdict"), [(lambda tree: tree, FAIL), (in_container, UNKNOWN)]
)
def test_gpus_with_a_device_file_are_missed_on_the_host(change, verdict):
    files = {f"nvidia{index}": "" for index in range(8)}
    pcie = all_changed(links=[], name="NVIDIA L40S")
    (one,) = found(
        "gpu-missing",
        without_switches,
        pcie,
        lambda tree: tree.files("/dev", **files),
        change,
        tree=healthy(gpus=6),
    )
    assert one.verdict is verdict
    assert (
        verdict is UNKNOWN or one.message == "8 GPUs of this boot have a device file, PCI shows 6"
    )


def test_a_jetson_has_no_gpu_on_pci():
    tree = healthy(gpus=0).file(
        "/proc/device-tree/compatible", "nvidia,p3737-0000+p3701-0000 nvidia,tegra234"
    )
    (one,) = found("gpu-missing", without_switches, tree=tree)
    assert one.verdict is SKIP


def test_gpus_of_nvml_without_pci_are_not_counted():
    (one,) = found("gpu-count", lambda tree: tree.drop("/sys/bus/pci/devices"))
    assert one.verdict is UNKNOWN


def test_driver_updated_without_reboot_fails():
    (one,) = found(
        "gpu-driver",
        lambda tree: tree.failing("nvml_health", "RM has detected an NVML/RM version mismatch."),
    )
    assert one.verdict is FAIL and "reboot" in one.fix


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
    (one,) = found("gpu-driver", lambda tree: tree.file("/proc/driver/nvidia/version", line))
    assert one.verdict is PASS and flavor in one.message


def test_driver_without_its_proc_file_is_unknown():
    (one,) = found("gpu-driver", lambda tree: tree.drop("/proc/driver/nvidia/version"))
    assert one.verdict is UNKNOWN


def test_nouveau_in_place_of_the_driver_fails():
    (one,) = found("gpu-nouveau", lambda tree: tree.file("/proc/modules", "nouveau 1 0 - Live 0x0"))
    assert one.verdict is FAIL


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ({"ecc": False}, SKIP),
        ({"uncorrected": {}}, UNKNOWN),
        ({"uncorrected": {}, "unsupported": ["uncorrected"]}, SKIP),
        ({"uncorrected_ever": {"dram": 5, "sram": 0}}, PASS),
        ({"uncorrected_ever": {"dram": 0, "sram": 1}}, WARN),
        ({"sram_exceeded": True}, FAIL),
    ],
)
def test_uncorrected_errors(values, verdict):
    assert of(found("gpu-ecc-uncorrected", changed(**values)), "GPU 2").verdict is verdict


def test_ecc_that_goes_off_at_the_next_reset_warns():
    assert of(found("gpu-ecc-mode", changed(ecc_pending=False)), "GPU 2").verdict is WARN


@pytest.mark.parametrize(("pending", "verdict"), [(True, WARN), (False, PASS), (None, SKIP)])
def test_pages_retired_before_ampere(pending, verdict):
    change = changed(remapped=None, retired_pending=pending, unsupported=["remapped"])
    assert of(found("gpu-remap-pending", change), "GPU 2").verdict is verdict


@pytest.mark.parametrize(("rows", "verdict"), [(512, PASS), (513, FAIL)])
def test_rows_remapped_after_uncorrected_errors(rows, verdict):
    assert (
        of(found("gpu-remap-failed", changed(remapped=[3, rows, 0, 0])), "GPU 2").verdict is verdict
    )


@pytest.mark.parametrize(
    ("reasons", "verdict"),
    [
        (0x0, PASS),
        (0x1, SKIP),
        (0x4, PASS),
        (0x8, WARN),
        (0x20, WARN),
        (0x40, FAIL),
        (0x80, FAIL),
        (0x81, FAIL),
        (None, UNKNOWN),
    ],
)
def test_reasons_for_reduced_clocks(reasons, verdict):
    assert of(found("gpu-throttle", changed(reasons=reasons)), "GPU 2").verdict is verdict


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ({"boost_mhz": 1500}, WARN),
        ({"app_mhz": None}, PASS),
        ({"app_mhz": None, "boost_mhz": None}, UNKNOWN),
        ({"app_mhz": 1980, "app_default_mhz": 1410}, PASS),
    ],
)
def test_clocks_below_default(values, verdict):
    assert of(found("gpu-clocks-locked", changed(**values)), "GPU 2").verdict is verdict


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ({"margin_c": 1}, PASS),
        ({"margin_c": None, "temperature_c": 86}, PASS),
        ({"margin_c": None, "temperature_c": 87}, WARN),
        ({"margin_c": None, "gpu_max_c": None}, UNKNOWN),
        ({"temperature_c": None}, UNKNOWN),
    ],
)
def test_temperature_against_its_limit(values, verdict):
    assert of(found("gpu-temperature", changed(**values)), "GPU 2").verdict is verdict


def test_memory_in_use_without_a_process_warns():
    one = of(found("gpu-memory-in-use", changed(used_bytes=1 << 30)), "GPU 2")
    assert one.verdict is WARN and "fuser -v /dev/nvidia2" in one.fix


def test_a_process_that_holds_memory_is_named():
    one = of(
        found(
            "gpu-memory-in-use",
            changed(processes=[{"pid": 4711, "name": "python"}], used_bytes=3 << 30),
        ),
        "GPU 2",
    )
    assert "4711 python" in one.message and "kill 4711" in one.fix


def test_memory_that_nvml_does_not_tell_is_unknown():
    assert of(found("gpu-memory-in-use", changed(used_bytes=None)), "GPU 2").verdict is UNKNOWN


def test_prohibited_compute_mode_fails():
    assert of(found("gpu-compute-mode", changed(compute_mode=2)), "GPU 2").verdict is FAIL


def test_uvm_device_missing_in_a_container_fails():
    (one,) = found(
        "gpu-uvm", in_container, lambda tree: tree.drop("/dev/nvidia-uvm").file("/dev/nvidia0", "")
    )
    assert one.verdict is FAIL and "--gpus all" in one.fix


def test_windows_subsystem_needs_no_uvm_device_and_lists_no_processes():
    wsl = lambda tree: tree.drop("/dev/nvidia-uvm").file("/dev/dxg", "")  # noqa: E731
    (one,) = found("gpu-uvm", wsl)
    assert one.verdict is SKIP
    used = of(found("gpu-memory-in-use", wsl, changed(2, used_bytes=2 << 30)), "GPU 2")
    assert (used.verdict, used.optional) == (UNKNOWN, True)


def test_uvm_device_in_a_dev_that_cannot_be_listed_is_unknown():
    (one,) = found("gpu-uvm", lambda tree: tree.drop("/dev"))
    assert one.verdict is UNKNOWN


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("ecc-mode", "ecc"),
        ("mig", "mig"),
        ("persistence", "persistence"),
        ("power-limit", "power_limit_mw"),
        ("remap-failed", "remapped"),
    ],
)
def test_what_a_gpu_does_not_support_is_skipped(name, field):
    one = of(found(f"gpu-{name}", changed(**{field: None, "unsupported": [field]})), "GPU 2")
    assert one.verdict is SKIP and "not supported" in one.message


def test_gpu_of_another_model_is_named():
    (one,) = found("gpu-same-model", changed(name="NVIDIA H800"))
    assert one.subject == "GPU 2" and "CUDA_VISIBLE_DEVICES" in one.fix


def test_gpus_are_not_alike_if_one_tells_nothing():
    (one,) = found("gpu-same-model", changed(vbios=None))
    assert one.verdict is UNKNOWN and "GPU 2" in one.message


@pytest.mark.parametrize(
    ("cuda", "verdict"), [(11080, FAIL), (12000, PASS), (13000, PASS), (None, UNKNOWN)]
)
def test_cuda_of_the_driver_against_nccl(cuda, verdict):
    (one,) = found("gpu-cuda-driver", lambda tree: tree.update("nvml_health", cuda=cuda))
    assert one.verdict is verdict


def test_without_a_package_of_nccl_its_cuda_is_skipped():
    (one,) = found("gpu-cuda-driver", lambda tree: tree.call("nccl_packages", json.dumps([])))
    assert one.verdict is SKIP


def test_peer_access_that_nvml_does_not_know_is_unknown():
    tree = healthy(gpus=2)
    (one,) = found("gpu-p2p", lambda tree: tree.update("nvml_health", peers=[[0, 1, 6]]), tree=tree)
    assert one.verdict is UNKNOWN and "GPU 0-1" in one.message


def test_peer_access_of_some_pairs_is_not_that_of_all():
    (one,) = found("gpu-p2p", lambda tree: tree.update("nvml_health", peers=[[0, 1, 0]]))
    assert one.verdict is UNKNOWN and "27 of 28 pairs" in one.message


def test_values_that_no_gpu_tells_are_never_a_pass():
    unset = dict.fromkeys(
        (
            "persistence",
            "ecc",
            "mig",
            "compute_mode",
            "power_limit_mw",
            "reasons",
            "remapped",
            "links",
            "fabric",
        )
    )
    tree = healthy()
    all_changed(**unset)(tree)
    for name in (
        "persistence",
        "ecc-mode",
        "mig",
        "compute-mode",
        "power-limit",
        "throttle",
        "remap-failed",
    ):
        assert worst(found(f"gpu-{name}", tree=tree)) == {UNKNOWN}, name
    for name in ("links", "speed", "errors", "fabric", "fabric-manager-version", "imex"):
        assert worst(found(f"nvlink-{name}", tree=tree)) == {UNKNOWN}, name


def test_power_limit_without_a_default_is_skipped():
    assert (
        of(
            found(
                "gpu-power-limit", changed(power_default_mw=None, unsupported=["power_default_mw"])
            ),
            "GPU 2",
        ).verdict
        is SKIP
    )


@pytest.mark.parametrize(
    ("action", "steps"),
    [
        (1, "nvidia-smi -i 2 --gpu-reset"),
        (2, "reboot"),
        (3, "programs that use NVLink"),
        (4, "start no new job"),
        (5, "nvidia-imex"),
        (6, "bus"),
        (7, "power it off and on"),
        (99, "nvidia-smi -q -i 2"),
    ],
)
def test_recovery_that_the_driver_asks_for(action, steps):
    findings = found("gpu-recovery-action", changed(recovery_action=action))
    assert {one.subject for one in findings if one.verdict is Verdict.FAIL} == {"GPU 2"}
    assert steps in of(findings, "GPU 2").fix


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ({"memory_c": 94}, Verdict.PASS),
        ({"memory_c": 95}, Verdict.WARN),
        # Hopper: no limit in degrees
        ({"memory_c": 99, "memory_max_c": None, "memory_margin_c": 0, "margin_c": 3}, Verdict.PASS),
        ({"memory_c": 99, "memory_max_c": None, "memory_margin_c": 0, "margin_c": 0}, Verdict.WARN),
        (
            {"memory_c": 99, "memory_max_c": None, "memory_margin_c": -2, "margin_c": -1},
            Verdict.PASS,
        ),
        ({"memory_c": 99, "memory_max_c": None}, Verdict.UNKNOWN),
    ],
)
def test_memory_is_judged_by_its_own_limit(values, verdict):
    assert of(found("gpu-memory-temperature", changed(**values)), "GPU 2").verdict is verdict


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("gpu-recovery-action", "recovery_action"),
        ("gpu-inforom", "inforom"),
        ("gpu-memory-temperature", "memory_c"),
    ],
)
def test_value_that_older_drivers_and_snapshots_lack_is_not_offered(name, field):
    one = of(found(name, changed(**{field: None})), "GPU 2")
    assert (one.verdict, one.optional) == (Verdict.UNKNOWN, True)


def test_inforom_of_one_gpu():
    findings = found("gpu-inforom", changed(inforom=False))
    assert {one.subject: one.verdict for one in findings if one.verdict is not Verdict.PASS} == {
        "GPU 2": Verdict.FAIL
    }
