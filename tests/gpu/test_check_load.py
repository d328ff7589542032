"""`busbw check --load` on real GPUs: rates near those of the link, samples every 25 ms, and no
finding of its own process.
"""

import json

import pytest

from busbw.check.load import Loaded
from busbw.check.load.gpu_copies import CALL, UsableGpus
from busbw.check.load.gpu_copies_run import measure_gpus
from busbw.check.machine import Machine
from busbw.check.registry import find
from busbw.core.errors import BusbwError
from busbw.core.finding import Verdict
from busbw.engines.cuda_runtime import device_count
from busbw.host.gpu import pcie_rate
from busbw.host.nvml_health import read_health
from busbw.host.source import LiveMachine

pytestmark = pytest.mark.gpu
SECONDS = 2.0
CHECKS = ("pcie-load-rate", "pcie-load-link", "pcie-load-transitions", "gpu-load-throttle")


@pytest.fixture(scope="module")
def gpus() -> int:
    """GPUs that this process may use; skips where CUDA finds none. Copies need no NCCL."""
    try:
        return device_count() or pytest.skip("no GPU")
    except BusbwError as error:
        pytest.skip(error.message)


@pytest.fixture(scope="module")
def loaded(gpus: int) -> Loaded:
    return Loaded(SECONDS)


def test_every_gpu_copies_in_both_directions(gpus: int, loaded: Loaded, record_property) -> None:
    answer = json.loads(loaded.call(CALL, str).text or "")
    assert answer["reason"] == "" and len(answer["gpus"]) == gpus
    for gpu in answer["gpus"]:
        link = pcie_rate(gpu.get("gen_max"), gpu.get("width_max"))
        for copy in gpu["copies"]:
            print(
                f"GPU {gpu['index']} {copy['direction']}: {copy['bytes_per_s'] / 1e9:.1f} GB/s of"
                f" {(link or 0) / 1e9:g}"
            )
            record_property(f"gpu{gpu['index']} {copy['direction']}", copy["bytes_per_s"])
            assert 1e9 < copy["bytes_per_s"] < 1.0 * (link or 1e12)
            assert len(copy["samples"]) >= SECONDS / 2 / 0.025 / 2, (
                "half of the samples that were planned"
            )


def test_checks_have_a_finding_for_every_gpu(gpus: int, loaded: Loaded) -> None:
    machine = Machine(loaded)
    for name in CHECKS:
        findings = find(name).run(machine)
        for finding in findings:
            print(finding.verdict.value, name, finding.subject, finding.message)
        assert {finding.subject for finding in findings} == {
            f"GPU {index}" for index in range(gpus)
        }
        assert {finding.verdict for finding in findings} <= {
            Verdict.PASS,
            Verdict.WARN,
            Verdict.UNKNOWN,
        }


def test_memory_of_the_load_is_free_again(loaded: Loaded) -> None:
    loaded.call(CALL, str)
    assert not [
        finding
        for finding in find("gpu-memory-in-use").run(Machine(loaded))
        if "gpu_copies_run" in finding.message
    ]


def test_load_in_this_process_ends_too(gpus: int) -> None:
    measured: UsableGpus = measure_gpus(0.2)
    assert len(measured.gpus) == gpus and not measured.reason


def test_driver_gives_the_condition_of_every_gpu(gpus: int, record_property) -> None:
    """Recovery action (drivers from 570 on), InfoROM and the temperature of the memory."""
    machine = Machine(LiveMachine())
    findings_of = {
        name: find(name).run(machine)
        for name in ("gpu-recovery-action", "gpu-inforom", "gpu-memory-temperature")
    }
    record_property(
        "messages",
        {name: [finding.message for finding in findings] for name, findings in findings_of.items()},
    )
    for name, findings in findings_of.items():
        assert len(findings) >= gpus and {finding.verdict for finding in findings} <= {
            Verdict.PASS,
            Verdict.UNKNOWN,
        }, name
    for gpu in read_health(machine).gpus:
        assert gpu.inforom is not False and not gpu.recovery_action
        assert gpu.memory_c is None or 15 < gpu.memory_c < 110
