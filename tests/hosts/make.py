"""Writes the recorded hosts beside it: `python tests/hosts/make.py`.

Each is a machine as sysfs and NVML describe it, by hand.
"""

import json
from pathlib import Path

Entries = list[dict[str, object]]
HERE = Path(__file__).parent


def files(entries: dict[str, str]) -> Entries:
    return [{"path": path, "text": f"{text}\n"} for path, text in entries.items()]


def machine(hostname: str, cpus: str, memory_kib: int) -> Entries:
    return files(
        {
            "/proc/sys/kernel/hostname": hostname,
            "/proc/sys/kernel/random/boot_id": "5f0c2b1e-8d4a-4a57-9b53-0d3c6e1f7a20",
            "/proc/sys/kernel/osrelease": "5.15.0-105-generic",
            "/sys/devices/system/cpu/online": cpus,
            "/proc/sys/net/ipv4/tcp_congestion_control": "cubic",
            "/proc/meminfo": f"MemTotal:       {memory_kib} kB\nMemFree:        1000 kB",
        }
    )


def interface(
    name: str, speed: int, mtu: int, device: str | None, numa: int = 0, state: str = "up"
) -> Entries:
    base = f"/sys/class/net/{name}"
    entries = files(
        {
            f"{base}/speed": str(speed),
            f"{base}/operstate": state,
            f"{base}/mtu": str(mtu),
            f"{base}/dev_port": "0",
        }
    )
    if device is not None:
        entries += [
            {"path": f"{base}/device", "link": f"../../../{device}"},
            *files({f"{base}/device/numa_node": str(numa)}),
        ]
    return entries


def rdma(
    name: str,
    rate: str,
    layer: str,
    netdevs: list[str],
    device: str,
    numa: int,
    state: str = "4: ACTIVE",
) -> Entries:
    base = f"/sys/class/infiniband/{name}"
    port = {"rate": rate, "link_layer": layer, "state": state, "phys_state": "5: LinkUp"}
    entries = files({f"{base}/ports/1/{key}": value for key, value in port.items()})
    entries += [
        {"path": f"{base}/device", "link": f"../../../{device}"},
        *files({f"{base}/device/numa_node": str(numa)}),
    ]
    entries.append({"path": f"{base}/device/net", "names": netdevs})
    return entries + [
        {"path": f"/sys/class/net/{netdev}/device/infiniband", "names": [name]}
        for netdev in netdevs
    ]


def gpu(
    index: int, name: str, bus: str, links: int, mbps: int | None, version: int, numa: int
) -> tuple[dict[str, object], Entries]:
    bus_id = f"0000{bus}".upper()
    link = {"state": 1, "version": version, "remote": 2, "speed_mbps": mbps}
    entry: dict[str, object] = {
        "index": index,
        "name": name,
        "bus_id": bus_id,
        "compute_capability": [9, 0],
        "memory_bytes": 85520809984,
        "pcie_gen": 1,
        "pcie_gen_max": 5,
        "pcie_width": 16,
        "pcie_width_max": 16,
        "nvlink_speed_mbps": None,
        "nvlink": [{"link": number, **link} for number in range(links)],
    }
    base = f"/sys/bus/pci/devices/{bus}"
    return entry, files(
        {f"{base}/vendor": "0x10de", f"{base}/class": "0x030200", f"{base}/numa_node": str(numa)}
    )


def nvml(gpus: list[dict[str, object]]) -> Entries:
    return [{"call": "nvml", "text": json.dumps({"driver": "550.54.15", "gpus": gpus})}]


def h100x8_ib() -> Entries:
    """8 H100, one 400 Gbit/s InfiniBand port beside each, and a 25 Gbit/s management port; the
    GPUs idle at PCIe Gen1.
    """
    entries, gpus = machine("gpu-a", "0-207", 2113390140), []
    for index, bus in enumerate(("1b", "43", "52", "61", "9d", "c3", "d1", "df")):
        device, name, numa = f"0000:{bus}:00.0", f"mlx5_{index}", index // 4
        entry, pci = gpu(index, "NVIDIA H100 80GB HBM3", device, 18, 26562, 7, numa)
        gpus.append(entry)
        entries += pci + rdma(
            name, "400 Gb/sec (4X NDR)", "InfiniBand", [f"ib{index}"], f"0000:{bus}:01.0", numa
        )
        entries += interface(f"ib{index}", 400000, 4092, f"0000:{bus}:01.0", numa)
    return (
        entries
        + interface("eno1", 25000, 1500, "0000:31:00.0")
        + interface("docker0", 10000, 1500, None)
        + nvml(gpus)
    )


def roce_bond() -> Entries:
    """Two 100 Gbit/s slaves under one RDMA device; its own rate file shows one slave's."""
    entries = machine("sccgn", "0-127", 1056461824)
    entries += interface("eth1", 100000, 1500, "0000:c5:00.0", 1) + interface(
        "eth2", 100000, 1500, "0000:c5:00.1", 1
    )
    entries += interface("bond0", 200000, 1500, None)
    entries += files(
        {
            "/sys/class/net/bond0/bonding/slaves": "eth1 eth2",
            "/sys/class/net/bond0/bonding/mode": "802.3ad 4",
        }
    )
    entries += [
        {"path": f"/sys/class/net/{slave}/master", "link": "../bond0"} for slave in ("eth1", "eth2")
    ]
    entries += rdma(
        "mlx5_bond_0", "100 Gb/sec (4X EDR)", "Ethernet", ["eth1", "eth2"], "0000:c5:00.0", 1
    )
    return entries + files({"/sys/class/infiniband/mlx5_bond_0/ports/1/gid_attrs/ndevs/0": "eth1"})


def vm_veth() -> Entries:
    """A virtual machine whose only interfaces have no hardware; a PCI GPU without a driver."""
    entries = (
        machine("h1", "0-1", 24684096)
        + interface("veth0", 10000, 9000, None)
        + interface("br0", -1, 1500, None)
    )
    _, pci = gpu(0, "", "0000:00:06.0", 0, None, 0, -1)
    return [
        *entries,
        *pci,
        {"call": "nvml", "error": "the Python package nvidia-ml-py is not installed"},
    ]


def no_nic() -> Entries:
    """Nothing but loopback, and NVML that lists one GPU and lost another."""
    entry, pci = gpu(0, "NVIDIA H100 PCIe", "0000:17:00.0", 0, None, 0, 0)
    lost: dict[str, object] = {"index": 1, "error": "GPU is lost"}
    return (
        machine("lone", "0-3,8", 16384000)
        + interface("lo", -1, 65536, None)
        + pci
        + nvml([entry, lost])
    )


HOSTS = {"h100x8-ib": h100x8_ib, "roce-bond": roce_bond, "vm-veth": vm_veth, "no-nic": no_nic}


def archive(name: str) -> str:
    return "".join(
        json.dumps(entry) + "\n" for entry in [{"schema": "busbw.host/1"}, *HOSTS[name]()]
    )


if __name__ == "__main__":
    for name in HOSTS:
        (HERE / f"{name}.jsonl").write_text(archive(name))
