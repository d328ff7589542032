"""What the GPUs of the healthy server do under load: 55 GB/s of 63, at generation 5 with 16
lanes in all samples.
"""

import json

from healthy import healthy
from healthy_pcie import gpu_bdf
from tree import Change, Tree

NUMBER = 40  # samples in each direction
DIRECTIONS = ("to the GPU", "from the GPU")


REDUCED = [
    {"id": "data", "verdict": "pass", "message": "no wrong element"},
    {
        "id": "bandwidth",
        "verdict": "pass",
        "message": (
            "busbw is 258 GB/s at 512 MiB out of place, 103 % of the published run of 1 x 2 H100"
        ),
        "evidence": "aiconfigurator h100 NCCL 2.27.3",
    },
]


def reducing(verdict: str, message: str, number: int = 1) -> Change:
    """A change of a finding on the all_reduce: of its bandwidth, or its data with number 0."""

    def change(tree: Tree) -> None:
        findings = [*REDUCED]
        findings[number] = REDUCED[number] | {"verdict": verdict, "message": message}
        tree.update("all_reduce_load", findings=findings)

    return change


def samples(**values: object) -> list[dict[str, object]]:
    """Those of one direction."""
    usual = {
        "gen": 5,
        "width": 16,
        "sm_mhz": 1980,
        "reasons": 0,
        "temperature_c": 35,
        "power_w": 160,
    }
    return [{"at_s": round(0.025 * number, 4), **usual, **values} for number in range(NUMBER)]


def loaded(gpus: int = 2) -> Tree:
    """The server after a load."""
    tree = healthy(gpus=gpus)
    copies = [
        {"direction": direction, "bytes_per_s": 55e9, "samples": samples()}
        for direction in DIRECTIONS
    ]
    usual = {
        "name": "NVIDIA H100 80GB HBM3",
        "gen_max": 5,
        "width_max": 16,
        "sm_max_mhz": 1980,
        "copies": copies,
    }
    loops = [
        {"port": f"mlx5_{index}", "gpu": index, "bytes_per_s": 390e9 / 8} for index in range(gpus)
    ]
    tree.call("gpudirect_loopback", json.dumps({"loops": loops}))
    tree.call("all_reduce_load", json.dumps({"gpus": gpus, "findings": REDUCED}))
    return tree.call(
        "gpu_load",
        json.dumps(
            {"gpus": [{"index": index, "bus_id": gpu_bdf(index), **usual} for index in range(gpus)]}
        ),
    )


def loading(*, rate: float = 55e9, first: int | None = None, **values: object) -> Change:
    """A change of the second GPU's copies to the GPU: their rate, and values of the sample
    number `first`, or of all.
    """

    def change(tree: Tree) -> None:
        load = json.loads(tree.calls["gpu_load"]["text"])
        copies = load["gpus"][1]["copies"][0]
        copies["bytes_per_s"] = rate
        copies["samples"] = [
            sample | values if first in (None, number) else sample
            for number, sample in enumerate(copies["samples"])
        ]
        tree.call("gpu_load", json.dumps(load))

    return change


def looping(**values: object) -> Change:
    """A change of the second port's test with the memory of its GPU."""

    def change(tree: Tree) -> None:
        loops = json.loads(tree.calls["gpudirect_loopback"]["text"])["loops"]
        tree.update("gpudirect_loopback", loops=[loops[0], loops[1] | values])

    return change
