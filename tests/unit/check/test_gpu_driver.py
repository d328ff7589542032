"""Checks of GPUs where the driver, a job or a container decides what is there."""

from healthy import healthy
from healthy_gpu import changed
from looking import found, of
from tree import environment

from busbw.core.finding import Verdict

PASS, WARN, FAIL, SKIP, UNKNOWN = (
    Verdict.PASS,
    Verdict.WARN,
    Verdict.FAIL,
    Verdict.SKIP,
    Verdict.UNKNOWN,
)


def in_container(tree):
    tree.file("/.dockerenv", "")


def test_driver_that_is_not_loaded_fails():
    (finding,) = found(
        "gpu-driver",
        lambda tree: tree.file("/proc/modules", "mlx5_core 1 0 - Live 0x0").failing(
            "nvml_health", "Driver Not Loaded"
        ),
    )
    assert finding.verdict is FAIL and finding.fix.startswith("modprobe nvidia")


def test_card_for_a_screen_needs_no_driver_for_cuda():
    tree = (
        healthy(gpus=1)
        .file("/sys/bus/pci/devices/0000:1b:00.0/class", "0x030000")
        .file("/proc/modules", "nouveau 1 0 - Live 0x0")
    )
    tree.failing("nvml_health", "Driver Not Loaded")
    assert [found(name, tree=tree)[0].verdict for name in ("gpu-driver", "gpu-nouveau")] == [
        UNKNOWN,
        WARN,
    ]


def test_job_of_slurm_without_gpus_misses_none():
    (finding,) = found(
        "gpu-count", environment(SLURM_JOB_ID="7"), lambda tree: tree.update("nvml_health", gpus=[])
    )
    assert finding.verdict is UNKNOWN


def test_prolog_of_slurm_sees_all_gpus():
    job = environment(SLURM_JOB_ID="7", SLURM_JOB_GPUS="0", SLURM_SCRIPT_CONTEXT="prolog_slurmd")
    (finding,) = found("gpu-count", job, lambda tree: tree.update("nvml_health", gpus=[]))
    assert finding.verdict is FAIL


def test_job_of_slurm_may_make_the_uvm_device():
    (finding,) = found(
        "gpu-uvm",
        environment(SLURM_JOB_GPUS="0"),
        lambda tree: tree.drop("/dev/nvidia-uvm").file("/dev/nvidia0", ""),
    )
    assert finding.verdict is WARN


def test_no_process_is_to_be_killed_by_a_number_of_another_namespace():
    finding = of(
        found(
            "gpu-memory-in-use", in_container, changed(processes=[{"pid": 1}], used_bytes=3 << 30)
        ),
        "GPU 2",
    )
    assert finding.verdict is WARN and "kill" not in finding.fix


def test_memory_of_a_gpu_that_is_a_numa_node_may_hold_files():
    assert (
        of(
            found("gpu-memory-in-use", changed(name="NVIDIA GB200", used_bytes=9 << 30)), "GPU 2"
        ).verdict
        is UNKNOWN
    )


def test_cards_without_peer_access_are_skipped():
    tree = healthy(gpus=2)
    (finding,) = found(
        "gpu-p2p", lambda tree: tree.update("nvml_health", peers=[[0, 1, 2]]), tree=tree
    )
    assert finding.verdict is SKIP


def test_container_without_gpus_is_to_be_started_with_them():
    (finding,) = found(
        "gpu-mig",
        in_container,
        lambda tree: tree.failing("nvml_health", "NVML Shared Library Not Found"),
    )
    assert finding.verdict is UNKNOWN and "--gpus all" in finding.fix
