"""Each key of an expectations file by itself: met by the server that it was learned from, and by
no server that lost it.
"""

import json
import tomllib

import pytest
from equipped import LOSSES, equipped
from expecting_keys import bad, compared
from healthy_gpu import all_changed, changed
from healthy_pcie import gpu_bdf

from busbw.check.expect.learn import learn
from busbw.check.expect.text import text
from busbw.check.machine import Machine
from busbw.core.finding import Verdict

GOOD = tomllib.loads(text(learn(Machine(equipped().source())), ""))


def file_of_key(key):
    """A file with one key, plus a mount's path and a port's number, without which the key means
    nothing.
    """
    table, _, name = key.partition(".")
    values = GOOD[table] if isinstance(GOOD[table], dict) else GOOD[table][-1]
    head, section = (
        (f"[{table}]", "")
        if isinstance(GOOD[table], dict)
        else (f"[[{table}]]", "path = '/raid'\n" if table == "mounts" else "")
    )
    return (
        f"{head}\n{section}{name} = {json.dumps(values[name])}\n"
        if not section or name != "path"
        else f"{head}\n{section}"
    )


ONE = {
    "gpus.count": ("GPUs off PCI", [""]),
    "gpus.addresses": ("GPUs off PCI", [gpu_bdf(1), gpu_bdf(2)]),
    "gpus.model": ("model", ["GPU 2"]),
    "gpus.memory_bytes": ("GPU memory", ["GPU 3"]),
    "gpus.vbios": ("VBIOS", ["GPU 4"]),
    "gpus.serials": ("another GPU", ["GPU 4"]),
    "gpus.persistence": ("persistence", ["GPU 5"]),
    "gpus.ecc": ("ECC", ["GPU 6"]),
    "gpus.mig": ("MIG", ["GPU 0"]),
    "gpus.nvlinks": ("NVLinks", ["GPU 2"]),
    "gpus.nvlink_gb_s": ("NVLink rate", [f"GPU {gpu}" for gpu in range(8)]),
    "gpus.nvswitches": ("NVSwitch", [""]),
    "gpus.pcie_width": ("PCIe width", ["GPU 3"]),
    "gpus.pcie_gt_s": ("PCIe speed of all", [f"GPU {gpu}" for gpu in range(8)]),
    "ports.count": ("port", [""]),
    "ports.names": ("port", ["mlx5_3"]),
    "ports.link_layer": ("link layer", ["mlx5_4"]),
    "ports.state": ("port state", ["mlx5_4"]),
    "ports.rate_gbit_s": ("rate of a port", ["mlx5_5"]),
    "ports.firmware_min": ("firmware", [f"mlx5_{port}" for port in range(8)]),
    "ports.pcie_gt_s": ("PCIe speed of all", [f"mlx5_{port}" for port in range(8)]),
    "ports.pcie_width": ("PCIe width of a port", ["mlx5_2"]),
    "interfaces.count": ("interface", [""]),
    "interfaces.names": ("interface", ["eno1"]),
    "interfaces.rate_gbit_s": ("interface rate", ["eno1"]),
    "interfaces.mtu": ("MTU", ["eno1"]),
    "cpus.sockets": ("a socket", [""]),
    "cpus.online": ("CPUs", [""]),
    "cpus.numa_nodes": ("NUMA nodes", [""]),
    "memory.ram_bytes": ("a memory module", [""]),
    "memory.hugepages": ("huge pages", [""]),
    "versions.driver_min": ("driver", [""]),
    "versions.kernel_min": ("kernel", [""]),
    "versions.os": ("another system", [""]),
    "versions.os_min": ("system", [""]),
    "storage.nvme": ("NVMe drive", ["NVMe"]),
    "mounts.path": ("mount", ["/raid"]),
    "mounts.type": ("mount type", ["/raid"]),
    "mounts.min_bytes": ("size", ["/raid"]),
    "mounts.writable": ("read only", ["/raid"]),
}


@pytest.mark.parametrize("key", ONE)
def test_a_key_alone_is_met_and_its_loss_is_found(key):
    loss, subjects = ONE[key]
    toml, tree = file_of_key(key), equipped()
    findings = compared(toml, tree)
    assert {finding.verdict for finding in findings} == {Verdict.PASS, Verdict.SKIP}
    assert (
        len(
            {finding.id for finding in findings if finding.verdict is Verdict.PASS}
            - {"BW290", "BW293", "BW294"}
        )
        <= 1
    )
    LOSSES[loss].change(tree)
    (check,) = {finding[0] for finding in bad(toml, tree)}
    assert bad(toml, tree) == [(check, subject, "fail") for subject in subjects]
    last = toml.count("\n")
    for finding in (finding for finding in compared(toml, tree) if finding.verdict is Verdict.FAIL):
        assert (
            finding.fix
            and finding.stays
            and finding.evidence[0].expected.endswith(f"(node.toml line {last})")
        )


def test_there_is_a_row_here_for_every_learned_key():
    tables = {name: value if isinstance(value, dict) else value[-1] for name, value in GOOD.items()}
    assert {f"{name}.{key}" for name, table in tables.items() for key in table} == ONE.keys()


@pytest.mark.parametrize(
    ("toml", "change", "findings"),
    [
        pytest.param(
            "[[ports]]\nrate_gbit_s = 400",
            lambda t: t.file("/sys/class/infiniband/mlx5_1/ports/1/state", "1: DOWN"),
            [("BW293", "mlx5_1", "fail")],
            id="a port that is down has no rate",
        ),
        pytest.param(
            "[[ports]]\nlink_layer = 'InfiniBand'",
            lambda t: t.file("/sys/class/infiniband/mlx5_1/ports/1/state", "1: DOWN"),
            [],
            id="a port that may be down",
        ),
        pytest.param(
            "[versions]\nos_max = '20.04'",
            lambda t: t,
            [("BW291", "", "fail")],
            id="a newer system",
        ),
        pytest.param(
            "[versions]\nkernel_min = '5'",
            lambda t: t.file("/proc/sys/kernel/osrelease", "x"),
            [("BW291", "", "unknown")],
            id="a kernel without a number",
        ),
        pytest.param(
            "[gpus]\nserials = ['gpu-2 1', 'gpu-3 2']", lambda t: t, [], id="serials of other hosts"
        ),
        pytest.param(
            f"[gpus]\ncount = 8\naddresses = {[gpu_bdf(gpu) for gpu in range(8)]}",
            lambda t: [changed(1, bus_id=gpu_bdf(2))(t), changed(2, bus_id=gpu_bdf(1))(t)],
            [("BW290", "", "warn")],
            id="GPUs in another order",
        ),
        pytest.param(
            f"[gpus]\nserials = {[f'165372305273{gpu}' for gpu in (0, 2, 1, 3, 4, 5, 6, 7)]}",
            lambda t: t,
            [("BW290", "GPU 1", "fail"), ("BW290", "GPU 2", "fail")],
            id="two GPUs that changed places",
        ),
        pytest.param(
            "[gpus]\nserials = ['1']", lambda t: t, [], id="serials of another number of GPUs"
        ),
        pytest.param("[gpus]\ncount = 7", lambda t: t, [("BW290", "", "warn")], id="more GPUs"),
        pytest.param(
            "[gpus]\ncount = 0",
            lambda t: t,
            [("BW290", "", "warn")],
            id="GPUs where there should be none",
        ),
        pytest.param(
            "[gpus]\npcie_gt_s = 32",
            lambda t: t.call("nvml_load", json.dumps({gpu_bdf(1): 50})).file(
                f"/sys/bus/pci/devices/{gpu_bdf(1)}/current_link_speed", "8.0 GT/s PCIe"
            ),
            [("BW297", "GPU 1", "fail")],
            id="the slow link of a GPU that is in use",
        ),
        pytest.param(
            "[gpus]\npcie_gt_s = 32",
            lambda t: t.call("nvml_load", json.dumps({gpu_bdf(1): 49})).file(
                f"/sys/bus/pci/devices/{gpu_bdf(1)}/current_link_speed", "8.0 GT/s PCIe"
            ),
            [],
            id="the slow link of an idle GPU",
        ),
        pytest.param(
            "[gpus]\npcie_width = 16\npcie_gt_s = 64",
            lambda t: [
                t.drop(f"/sys/bus/pci/devices/{gpu_bdf(gpu)}/{limit}_link_{measure}")
                for gpu in range(8)
                for limit in ("current", "max")
                for measure in ("speed", "width")
            ],
            [("BW297", f"GPU {gpu}", "fail") for gpu in range(8)],
            id="links that only NVML shows",
        ),
        pytest.param(
            "[gpus]\nnvlink_gb_s = 25",
            all_changed(links=[]),
            [("BW292", f"GPU {gpu}", "unknown") for gpu in range(8)],
            id="the rate of no link",
        ),
        pytest.param(
            "[gpus]\nnvlinks = 18",
            lambda t: t.failing("nvml_health", "x").failing("nvml", "x"),
            [("BW292", "", "unknown")],
            id="NVLinks without NVML",
        ),
        pytest.param(
            "[gpus]\ncount = 8",
            lambda t: t.failing("nvml_health", "x").failing("nvml", "x"),
            [("BW290", "", "unknown")],
            id="GPUs without NVML",
        ),
        pytest.param(
            "[storage]\nnvme = 3",
            lambda t: [t.drop(path) for path in list(t.paths) if path.startswith("/sys/bus/pci")],
            [("BW298", "NVMe", "unknown")],
            id="drives without PCI",
        ),
        pytest.param("[[mounts]]\npath = '/raid/'", lambda t: t, [], id="a slash at the end"),
        pytest.param("[[mounts]]\npath = '/'", lambda t: t, [], id="the root"),
        pytest.param(
            "[[mounts]]\npath = '/data sets'\nwritable = false",
            lambda t: t,
            [],
            id="a mount that may be read-only",
        ),
        pytest.param(
            "[[mounts]]\npath = '/raid'\nmin_bytes = 1",
            lambda t: t.call("space /raid", "[]"),
            [("BW298", "/raid", "unknown")],
            id="a size that is none",
        ),
        pytest.param(
            "[memory]\nram_bytes = 2164111503361\nram_tolerance = 0.0",
            lambda t: t,
            [("BW296", "", "fail")],
            id="no tolerance",
        ),
        pytest.param(
            "[gpus]\nmodel = 'NVIDIA H100 80GB HBM3'",
            changed(7, error="x"),
            [("BW290", "GPU 7", "fail")],
            id="a silent GPU",
        ),
    ],
)
def test_single_keys(toml, change, findings):
    tree = equipped()
    change(tree)
    assert bad(toml, tree) == findings
