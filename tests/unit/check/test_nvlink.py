"""Checks of NVLink: models with and without it, and sources of the fabric's state."""

import pytest
from healthy import healthy
from healthy_gpu import SERVICES, all_changed, changed, links
from looking import found, of
from rack import IMEX, rack
from tree import Tree

from busbw.core.finding import Verdict

PASS, WARN, FAIL, SKIP, UNKNOWN = (
    Verdict.PASS,
    Verdict.WARN,
    Verdict.FAIL,
    Verdict.SKIP,
    Verdict.UNKNOWN,
)


def gpus_named(name, active, listed=18, *, gpus=8, remote=2, **values) -> Tree:
    """A server of one model; its links go to NVSwitch."""
    tree = healthy(gpus=gpus)
    gpu_links = [
        {**link, "active": link["number"] < active, "remote": remote, "errors": {"recovery": 0}}
        for link in links(listed)
    ]
    all_changed(name=name, links=gpu_links, **values)(tree)
    return tree


@pytest.mark.parametrize(
    ("name", "active", "listed", "gpus", "verdict"),
    [
        ("NVIDIA H100 80GB HBM3", 18, 18, 8, PASS),
        ("NVIDIA H100 80GB HBM3", 17, 18, 8, FAIL),
        ("NVIDIA H100 80GB HBM3", 0, 18, 8, FAIL),
        ("NVIDIA H100 80GB HBM3", 0, 18, 1, SKIP),
        ("NVIDIA H100 PCIe", 0, 18, 8, SKIP),
        ("NVIDIA H100 NVL", 12, 18, 8, SKIP),
        ("NVIDIA A100-SXM4-80GB", 12, 12, 8, PASS),
        ("NVIDIA A100-PCIE-40GB", 0, 12, 8, SKIP),
        ("NVIDIA A800-SXM4-80GB", 8, 12, 8, PASS),
        ("NVIDIA H20", 16, 18, 8, FAIL),
        ("Tesla V100-SXM2-32GB", 6, 6, 8, PASS),
        ("NVIDIA L40S", 0, 0, 8, SKIP),
        ("NVIDIA X999", 20, 24, 8, UNKNOWN),
        ("NVIDIA X999", 24, 24, 8, PASS),
    ],
)
def test_active_links_by_model(name, active, listed, gpus, verdict):
    assert (
        of(found("nvlink-links", tree=gpus_named(name, active, listed, gpus=gpus)), "GPU 0").verdict
        is verdict
    )


def test_links_out_of_a_virtual_machine_are_unknown():
    tree = gpus_named("Tesla V100-SXM2-32GB", 4, 6, gpus=4, remote=0).files(
        "/sys/class/dmi/id", sys_vendor="QEMU"
    )
    assert of(found("nvlink-links", tree=tree), "GPU 0").verdict is UNKNOWN


@pytest.mark.parametrize("name", ["speed", "errors", "fabric", "fabric-manager-version", "imex"])
def test_cards_without_nvlink_are_skipped(name):
    assert {
        finding.verdict for finding in found(f"nvlink-{name}", tree=gpus_named("NVIDIA L40S", 0, 0))
    } == {SKIP}


def test_slow_link_is_named_with_both_rates():
    finding = of(found("nvlink-speed", changed(links=links(speed_mbps=13281))), "GPU 2")
    assert finding.message == "1 link slower than 25 GB/s: link 3: 12.5 GB/s"


def test_links_without_a_speed_are_unknown():
    assert (
        of(
            found("nvlink-speed", changed(links=links(speed_mbps=None, version=None))), "GPU 2"
        ).verdict
        is UNKNOWN
    )


@pytest.mark.parametrize(
    ("errors", "verdict"),
    [
        ({"recovery": 0, "crc_flit": 9}, PASS),
        ({"crc_flit": 10}, WARN),
        ({"recovery": 1}, WARN),
        ({}, UNKNOWN),
    ],
)
def test_link_that_differs_from_the_others(errors, verdict):
    assert (
        of(found("nvlink-errors", changed(links=links(errors=errors))), "GPU 2").verdict is verdict
    )


def test_error_of_one_link_outweighs_the_silence_of_another():
    noisy = [{**link, "errors": {"recovery": 2} if link["number"] == 3 else {}} for link in links()]
    finding = of(found("nvlink-errors", changed(links=noisy)), "GPU 2")
    assert (
        finding.verdict is WARN
        and finding.message == "link 3 has 2 recoveries since the driver was loaded"
    )


def test_errors_that_all_links_have_are_not_outliers():
    noisy = [{**link, "errors": {"replay": 40}} for link in links()]
    assert {finding.verdict for finding in found("nvlink-errors", all_changed(links=noisy))} == {
        PASS
    }


@pytest.mark.parametrize(
    ("fabric", "verdict"),
    [
        ({"state": 3, "status": 0}, PASS),
        ({"state": 3, "status": 0, "health_mask": 0x01}, WARN),
        ({"state": 3, "status": 999}, FAIL),
        ({"state": 1, "status": 0}, FAIL),
    ],
)
def test_fabric_state(fabric, verdict):
    assert of(found("nvlink-fabric", changed(fabric=fabric)), "GPU 2").verdict is verdict


def test_fabric_that_is_not_set_up_names_the_cuda_error():
    assert (
        "802"
        in of(found("nvlink-fabric", changed(fabric={"state": 2, "status": 0})), "GPU 2").message
    )


@pytest.mark.parametrize(
    ("state", "vendor", "verdict"),
    [
        ("active", "Supermicro", PASS),
        ("failed", "Supermicro", FAIL),
        ("inactive", "QEMU", UNKNOWN),
        ("", "Supermicro", UNKNOWN),
    ],
)
def test_service_speaks_for_gpus_without_a_fabric_state(state, vendor, verdict):
    tree = gpus_named("NVIDIA A100-SXM4-80GB", 12, 12, fabric=None).files(
        "/sys/class/dmi/id", sys_vendor=vendor
    )
    (
        tree.call("nvidia_services", SERVICES.replace("=active", f"={state}"))
        if state
        else tree.failing("nvidia_services", "no systemd")
    )
    assert of(found("nvlink-fabric", tree=tree), "").verdict is verdict


@pytest.mark.parametrize(
    ("state", "verdict"), [("failed", {PASS, FAIL}), ("inactive", {PASS}), ("active", {PASS})]
)
def test_a_fabric_manager_that_failed_after_the_gpus_joined(state, verdict):
    findings = found(
        "nvlink-fabric",
        lambda tree: tree.call("nvidia_services", SERVICES.replace("=active", f"={state}")),
    )
    assert {finding.verdict for finding in findings} == verdict and (
        FAIL not in verdict or "failed after the GPUs joined" in of(findings, "").message
    )


def test_a_fabric_manager_that_failed_before_the_gpus_joined():
    findings = found(
        "nvlink-fabric",
        all_changed(fabric={"state": 1, "status": 0}),
        lambda tree: tree.call("nvidia_services", SERVICES.replace("=active", "=failed")),
    )
    finding = of(findings, "")
    assert "failed before the GPUs joined" in finding.message and "drain" not in finding.fix


def test_absent_fabric_manager_is_unknown_but_outside_of_a_vm():
    def absent(tree):
        tree.failing("fabricmanager_version", "nv-fabricmanager is not installed")

    (metal,) = found("nvlink-fabric-manager-version", absent)
    (virtual,) = found(
        "nvlink-fabric-manager-version",
        absent,
        lambda tree: tree.files("/sys/class/dmi/id", sys_vendor="QEMU"),
    )
    assert (metal.verdict, virtual.verdict) == (UNKNOWN, SKIP)


def test_fabric_manager_of_a_rack_may_run_outside():
    tree = rack().failing("fabricmanager_version", "nv-fabricmanager is not installed")
    (finding,) = found("nvlink-fabric-manager-version", tree=tree)
    assert finding.verdict is SKIP


def test_one_host_alone_needs_no_imex():
    (finding,) = found("nvlink-imex")
    assert finding.verdict is SKIP


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        (lambda tree: tree.drop("/dev/nvidia-caps-imex-channels/channel0"), WARN),
        (lambda tree: tree.call("imex", IMEX.replace("State: UP", "State: DEGRADED")), WARN),
        (lambda tree: tree.failing("imex", "nvidia-imex-ctl is not installed"), UNKNOWN),
        (lambda tree: tree.call("imex", "something else"), UNKNOWN),
    ],
)
def test_imex_of_a_rack(change, verdict):
    assert {finding.verdict for finding in found("nvlink-imex", change, tree=rack())} == {
        PASS,
        verdict,
    }


def test_links_that_mig_switches_off_are_not_a_fault():
    tree = gpus_named("NVIDIA A100-SXM4-40GB", 0, 12, mig=True)
    assert {finding.verdict for finding in found("nvlink-links", tree=tree)} == {SKIP}


def test_card_with_one_slot_has_no_links():
    assert {
        finding.verdict
        for finding in found("nvlink-links", tree=gpus_named("Tesla V100-FHHL-16GB", 0, 6))
    } == {SKIP}


def test_fabric_manager_without_a_service_may_be_in_a_container():
    tree = gpus_named("NVIDIA A100-SXM4-80GB", 12, 12, fabric=None)
    tree.call(
        "nvidia_services",
        SERVICES.replace(
            "LoadState=loaded\nActiveState=active", "LoadState=not-found\nActiveState=inactive"
        ),
    )
    assert of(found("nvlink-fabric", tree=tree), "").verdict is UNKNOWN


def test_fabric_manager_of_a_rack_is_not_on_the_host():
    tree = rack()
    all_changed(fabric={"state": 2, "status": 0})(tree)
    assert all(
        finding.verdict is FAIL and "switch tray" in finding.fix
        for finding in found("nvlink-fabric", tree=tree)
    )


def test_imex_that_cannot_be_asked_is_not_restarted():
    tree = rack().failing("imex", "nvidia-imex-ctl is not installed")
    (finding,) = [
        finding for finding in found("nvlink-imex", tree=tree) if finding.verdict is UNKNOWN
    ]
    assert "restart" not in finding.fix
