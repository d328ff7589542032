"""Variants of the layer NVLink: what is named, in which order, and at which limit."""

from changes_links import containers
from healthy import healthy
from healthy_gpu import all_changed, health, links
from healthy_gpu import changed as gpu_changed
from healthy_pcie import gpu_bdf
from rack import IMEX, rack
from tree import Change, Tree, combine

NO_FABRIC_MANAGER = "bash: nv-fabricmanager: command not found"


def recovered(
    first: int, last: int, errors: dict[str, int], usual: int = 0
) -> list[dict[str, object]]:
    """Links of a GPU, of which some have errors."""
    return [
        {**link, "errors": errors if first <= number <= last else {"recovery": usual}}
        for number, link in enumerate(links())
    ]


def services(state: str) -> Change:
    """The state of the fabric manager."""
    text = f"Id=nvidia-fabricmanager.service\nLoadState=loaded\nActiveState={state}"
    return lambda tree: tree.call("nvidia_services", text)


def single_gpu(**values: object) -> Tree:
    """A server with one GPU."""
    tree = healthy(gpus=1)
    gpu_changed(0, **values)(tree)
    return tree


def fewer(tree: Tree) -> None:
    """The last GPU was not there."""
    tree.update("nvml_health", gpus=[health(index) for index in range(7)])


def imex(*nodes: str, domain: str = "UP") -> Change:
    """The state of each node, and of the domain."""
    lines = [
        f"Node #{number}   - 10.0.0.{number + 1}   - {state}   - Version: 570.172"
        for number, state in enumerate(nodes)
    ]
    start, _, _ = IMEX.partition("Node #0")
    end = f"\n\nDomain State: {domain}" if domain else ""
    return lambda tree: tree.call("imex", start + "\n".join(lines) + end)


def virtual(tree: Tree) -> Tree:
    return tree.files("/sys/class/dmi/id", sys_vendor="QEMU")


PEERS = [link | {"remote": 1} for link in links()]


MIXED = [link | {"remote": None} if link["number"] == 3 else link for link in PEERS]


UNSEEN = "NVML: Insufficient Permissions"


SWITCH = "/sys/bus/pci/devices/0000:0{}:00.0"


def of_a100(tree: Tree) -> None:
    """Six NVSwitches, one of which is missing, and no NVML."""
    for number in (5, 6, 7, 8, 9):
        tree.files(SWITCH.format(number), vendor="0x10de", **{"class": "0x068000"}, device="0x1af1")
    tree.failing("nvml_health", "x")


def without_switches(*numbers: int) -> Change:
    """NVSwitches that are missing."""
    return lambda tree: [tree.drop(SWITCH.format(number)) for number in numbers]


MORE_NVLINK = {
    "nvswitch-missing": {
        "one of six": of_a100,
        "none on PCI": without_switches(5, 6, 7, 8),
        "a model that is not known": combine(without_switches(5), all_changed(name="NVIDIA B200")),
        "part of a board in a virtual machine": combine(
            without_switches(5, 6, 7),
            lambda tree: tree.file("/sys/class/dmi/id/sys_vendor", "QEMU"),
            lambda tree: [tree.drop(f"/sys/bus/pci/devices/{gpu_bdf(gpu)}") for gpu in range(4)],
        ),
        "all GPUs in a virtual machine": combine(
            without_switches(5), lambda tree: tree.file("/sys/class/dmi/id/sys_vendor", "QEMU")
        ),
    },
    "nvlink-errors": {
        "three links": gpu_changed(links=recovered(2, 4, {"recovery": 1})),
        "five links": gpu_changed(links=recovered(2, 6, {"recovery": 2, "replay": 3})),
        "the most errors first": combine(
            gpu_changed(2, links=recovered(3, 3, {"recovery": 7})),
            gpu_changed(5, links=recovered(3, 3, {"recovery": 9})),
        ),
        "an outlier": gpu_changed(links=recovered(3, 3, {"recovery": 0, "ecc_data": 10})),
        "few errors": gpu_changed(links=recovered(3, 3, {"recovery": 0, "ecc_data": 9})),
        "many errors everywhere": all_changed(
            links=[{**link, "errors": {"crc_flit": 5}} for link in links()]
        ),
        "ten times as many as elsewhere": combine(
            all_changed(links=[{**link, "errors": {"crc_flit": 5}} for link in links()]),
            gpu_changed(links=links(errors={"crc_flit": 50})),
            gpu_changed(4, links=links(errors={"crc_flit": 51})),
        ),
        "no counters of a link": gpu_changed(links=links(errors={})),
        "more in a minute": (
            gpu_changed(links=links(errors={"recovery": 5})),
            gpu_changed(links=links(errors={"recovery": 7})),
        ),
        "none more in a minute": (
            gpu_changed(links=links(errors={"recovery": 5})),
            gpu_changed(links=links(errors={"recovery": 5})),
        ),
        "reset in the minute": (
            gpu_changed(links=links(errors={"recovery": 5})),
            gpu_changed(links=links(errors={"recovery": 2})),
        ),
        "a GPU that was not there": (
            combine(fewer),
            gpu_changed(links=links(errors={"recovery": 5})),
        ),
    },
    "nvlink-fabric": {
        **{
            f"state {state}": gpu_changed(fabric={"state": state, "status": 0})
            for state in range(6)
        },
        "joined with an error": gpu_changed(fabric={"state": 3, "status": 1}),
        "not supported with an error": gpu_changed(fabric={"state": 0, "status": 1}),
        "every problem": gpu_changed(fabric={"state": 3, "status": 0, "health_mask": 0x55}),
        "one problem": gpu_changed(fabric={"state": 3, "status": 0, "health_mask": 0x9A}),
        "no field": gpu_changed(fabric=None),
        "a rack": gpu_changed(name="NVIDIA GB200", fabric={"state": 1, "status": 0}),
        "a rack of another model": gpu_changed(
            fabric={"state": 1, "status": 0, "cluster": "6f0c" * 8, "clique": 1}
        ),
        "the service failed": services("failed"),
        "the service is elsewhere": services("inactive"),
        "no field, and the service failed": combine(gpu_changed(fabric=None), services("failed")),
        "no field, and no service": combine(
            gpu_changed(fabric=None), lambda tree: tree.call("nvidia_services", "")
        ),
        "no field, and the service failed in a virtual machine": combine(
            gpu_changed(fabric=None), services("failed"), virtual
        ),
        "no field, and the service failed in a container": combine(
            gpu_changed(fabric=None), services("failed"), containers
        ),
        "no field, and the services do not answer": combine(
            gpu_changed(fabric=None),
            lambda tree: tree.failing("nvidia_services", "systemctl did not answer within 5 s"),
        ),
        "GPUs that are joined directly": all_changed(links=PEERS),
        "one link that leads anywhere": combine(all_changed(links=PEERS), gpu_changed(links=MIXED)),
        "links that fail": combine(all_changed(links=PEERS), gpu_changed(links=None)),
        "one GPU that another user does not see": combine(
            all_changed(links=PEERS), gpu_changed(links=None, error=UNSEEN)
        ),
        "one GPU that fails": combine(
            all_changed(links=PEERS), gpu_changed(links=None, error="NVML: GPU is lost")
        ),
    },
    "nvlink-fabric-manager-version": {
        "none": lambda tree: tree.call("fabricmanager_version", NO_FABRIC_MANAGER),
        "none in a container": (
            lambda tree: containers(tree).call("fabricmanager_version", NO_FABRIC_MANAGER)
        ),
        "none in a virtual machine": (
            lambda tree: virtual(tree).call("fabricmanager_version", NO_FABRIC_MANAGER)
        ),
        "none in a rack": rack().call("fabricmanager_version", NO_FABRIC_MANAGER),
        "none, and one GPU of a rack": combine(
            gpu_changed(fabric={"state": 3, "status": 0, "cluster": "6f0c" * 8}),
            lambda tree: tree.call("fabricmanager_version", NO_FABRIC_MANAGER),
        ),
        "no driver": lambda tree: tree.update("nvml_health", driver=""),
    },
    "nvlink-imex": {
        "four channels": lambda tree: [
            tree.file(f"/dev/nvidia-caps-imex-channels/channel{number}", "") for number in range(4)
        ],
        "no channel": lambda tree: tree.drop("/dev/nvidia-caps-imex-channels"),
        "four nodes are not ready": imex(
            "READY", "UNAVAILABLE", "VERSION_MISMATCH", "INITIALIZING", "UNAVAILABLE"
        ),
        "the domain is degraded": imex("READY", "READY", domain="DEGRADED"),
        "no domain": imex("READY", domain=""),
        "no node": imex(),
        "neither": imex(domain=""),
        "no answer": lambda tree: tree.failing("imex", "nvidia-imex-ctl did not answer within 5 s"),
        "no fabric": all_changed(fabric=None),
    },
    "nvlink-links": {
        "two links are down": gpu_changed(
            links=[link | {"active": link["number"] not in (3, 7)} for link in links()]
        ),
        "all are down": gpu_changed(links=[link | {"active": False} for link in links()]),
        "all are down with MIG": gpu_changed(
            mig=True, links=[link | {"active": False} for link in links()]
        ),
        "one is down in a virtual machine": combine(
            virtual, gpu_changed(links=links(active=False))
        ),
        "one is down in a virtual machine without NVSwitch": combine(
            virtual,
            all_changed(links=PEERS),
            gpu_changed(links=[link | {"active": link["number"] != 3} for link in PEERS]),
        ),
        "a single GPU": single_gpu(links=[link | {"active": False} for link in links()]),
        "a model without NVLink": gpu_changed(name="NVIDIA L40S", links=[]),
        "a model that is not known": gpu_changed(name="NVIDIA X1"),
        "a model that is not known, with a link that is down": gpu_changed(
            name="NVIDIA X1", links=links(active=False)
        ),
        "cards with a bridge": gpu_changed(name="NVIDIA H100 NVL", links=links(active=False)),
        "a GPU that fails": gpu_changed(error="NVML: GPU is lost"),
        "links that fail": gpu_changed(links=None),
    },
    "nvlink-speed": {
        "two links": gpu_changed(
            links=[
                link | ({"speed_mbps": 13281} if link["number"] in (3, 7) else {})
                for link in links()
            ]
        ),
        "a speed that is not known": gpu_changed(links=links(speed_mbps=None, version=None)),
        "a model that is not known": gpu_changed(name="NVIDIA X1", links=links(speed_mbps=13281)),
        "no link": gpu_changed(links=[link | {"active": False} for link in links()]),
        "a GPU that fails": gpu_changed(error="NVML: GPU is lost"),
    },
}
