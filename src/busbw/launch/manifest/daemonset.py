"""A DaemonSet that watches the links of each GPU node for Prometheus.

Its pod is ready while `busbw check` finds no fault on the node.
"""

from dataclasses import dataclass

from busbw.core.check_row import Layer
from busbw.launch.manifest import kubernetes
from busbw.launch.manifest.filler import fill_json

# Layers that look the same from a pod as on the node: limits, shared memory and device files are
# the pod's own.
LAYERS = (Layer.GPU, Layer.NVLINK, Layer.PCIE, Layer.NIC, Layer.ROCE)
CHECK = tuple(word for layer in LAYERS for word in ("--layer", layer.value))


@dataclass(frozen=True, slots=True)
class Node:
    """Settings of the pod on each node.

    `secret` is a Secret with the key `token`; `every_s` is the time between two checks. `selector`
    is a label, `key=value`; '' for all nodes. A `runtime_class` of '' is the cluster's default.
    """

    name: str
    image: str
    namespace: str = ""
    secret: str = "busbw-watch"
    port: int = 9400
    every_s: int = 300
    runtime_class: str = "nvidia"
    selector: str = "nvidia.com/gpu.present=true"
    check: tuple[str, ...] = CHECK


def text(node: Node) -> str:
    """The DaemonSet as JSON. UsageError for a name or label that Kubernetes would reject."""
    labels = {"app.kubernetes.io/name": "busbw", "app.kubernetes.io/instance": node.name}
    values = {
        "metadata": {**kubernetes.metadata(node.name, node.namespace), "labels": labels},
        "labels": labels,
        "runtime_class": node.runtime_class or None,
        "node_selector": kubernetes.node_selector(node.selector) if node.selector else None,
        "image": node.image,
        "port": node.port,
        "check": ["busbw", "check", *node.check],
        "every_s": node.every_s,
        "secret": node.secret,
    }
    return fill_json("daemonset.json", values)
