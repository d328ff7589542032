"""Checks of values that NVML reports of GPUs: memory, clocks, temperature, modes."""

import pytest
from healthy import healthy
from healthy_gpu import all_changed, changed
from looking import found, of

from busbw.core.finding import Verdict

PASS, WARN, FAIL, SKIP, UNKNOWN = (
    Verdict.PASS,
    Verdict.WARN,
    Verdict.FAIL,
    Verdict.SKIP,
    Verdict.UNKNOWN,
)


def worst(findings):
    """The verdicts that are not pass."""
    return {finding.verdict for finding in findings} - {PASS}


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
    finding = of(found("gpu-memory-in-use", changed(used_bytes=1 << 30)), "GPU 2")
    assert finding.verdict is WARN and "fuser -v /dev/nvidia2" in finding.fix


def test_a_process_that_holds_memory_is_named():
    finding = of(
        found(
            "gpu-memory-in-use",
            changed(processes=[{"pid": 4711, "name": "python"}], used_bytes=3 << 30),
        ),
        "GPU 2",
    )
    assert "4711 python" in finding.message and "kill 4711" in finding.fix


def test_memory_that_nvml_does_not_report_is_unknown():
    assert of(found("gpu-memory-in-use", changed(used_bytes=None)), "GPU 2").verdict is UNKNOWN


def test_prohibited_compute_mode_fails():
    assert of(found("gpu-compute-mode", changed(compute_mode=2)), "GPU 2").verdict is FAIL


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
def test_unsupported_features_of_a_gpu_are_skipped(name, field):
    finding = of(found(f"gpu-{name}", changed(**{field: None, "unsupported": [field]})), "GPU 2")
    assert finding.verdict is SKIP and "not supported" in finding.message


def test_gpu_of_another_model_is_named():
    (finding,) = found("gpu-same-model", changed(name="NVIDIA H800"))
    assert finding.subject == "GPU 2" and "CUDA_VISIBLE_DEVICES" in finding.fix


def test_gpus_are_not_equal_if_one_reports_nothing():
    (finding,) = found("gpu-same-model", changed(vbios=None))
    assert finding.verdict is UNKNOWN and "GPU 2" in finding.message


def test_peer_access_that_nvml_does_not_know_is_unknown():
    tree = healthy(gpus=2)
    (finding,) = found(
        "gpu-p2p", lambda tree: tree.update("nvml_health", peers=[[0, 1, 6]]), tree=tree
    )
    assert finding.verdict is UNKNOWN and "GPU 0-1" in finding.message


def test_peer_access_of_some_pairs_is_not_that_of_all():
    (finding,) = found("gpu-p2p", lambda tree: tree.update("nvml_health", peers=[[0, 1, 0]]))
    assert finding.verdict is UNKNOWN and "27 of 28 pairs" in finding.message


def test_values_that_no_gpu_reports_never_pass():
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
    assert {finding.subject for finding in findings if finding.verdict is Verdict.FAIL} == {"GPU 2"}
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
    finding = of(found(name, changed(**{field: None})), "GPU 2")
    assert (finding.verdict, finding.optional) == (Verdict.UNKNOWN, True)


def test_inforom_of_one_gpu():
    findings = found("gpu-inforom", changed(inforom=False))
    assert {
        finding.subject: finding.verdict
        for finding in findings
        if finding.verdict is not Verdict.PASS
    } == {"GPU 2": Verdict.FAIL}
