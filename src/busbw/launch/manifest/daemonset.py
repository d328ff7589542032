"""A DaemonSet that watches the links of each GPU node for Prometheus. Its pod is ready while `busbw check` finds no fault on the node."""

from dataclasses import dataclass
from typing import Any

from busbw.core.check_row import Layer
from busbw.launch.manifest import kubernetes

# Layers that look the same from a pod as on the node. Limits, shared memory and device files are the pod's own.
LAYERS = (Layer.GPU, Layer.NVLINK, Layer.PCIE, Layer.NIC, Layer.ROCE)
CHECK = tuple(word for layer in LAYERS for word in ("--layer", layer.value))
TOKEN = "/etc/busbw"
_CHECK_LIMIT_S = 60
_MEMORY = {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}}


@dataclass(frozen=True, slots=True)
class Node:
    """Settings of the pod on each node. `secret` is a Secret with the key `token`; `every_s` is the time between two checks.

    `selector` is a label, `key=value`; '' for all nodes. A `runtime_class` of '' is the cluster's default.
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
    """The DaemonSet as JSON. Raises UsageError for a name or label that Kubernetes would reject."""
    labels = {"app.kubernetes.io/name": "busbw", "app.kubernetes.io/instance": node.name}
    daemon = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {**kubernetes.metadata(node.name, node.namespace), "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            # A node that fails its check is never ready, and would block an update of the others.
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}},
            "template": {"metadata": {"labels": labels}, "spec": _pod(node)},
        },
    }
    return kubernetes.dump(daemon)


def _pod(node: Node) -> dict[str, Any]:
    return {
        # Interfaces, their counters and RoCE GIDs belong to the network namespace.
        "hostNetwork": True,
        "automountServiceAccountToken": False,
        **({"runtimeClassName": node.runtime_class} if node.runtime_class else {}),
        **({"nodeSelector": kubernetes.node_selector(node.selector)} if node.selector else {}),
        # Taints keep jobs off a broken node, but its counters matter.
        "tolerations": [{"operator": "Exists"}],
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [_watch(node)],
        "volumes": [{"name": "token", "secret": {"secretName": node.secret}}],
    }


def _watch(node: Node) -> dict[str, Any]:
    return {
        "name": "watch",
        "image": node.image,
        "command": ["busbw", "watch", "--listen", f"$(NODE_IP):{node.port}", "--token-file", f"{TOKEN}/token"],
        "env": [
            {"name": "NODE_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            # All GPUs are visible but none is requested, so jobs can get them all.
            {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
        ],
        "ports": [{"name": "metrics", "containerPort": node.port}],
        "livenessProbe": {"tcpSocket": {"port": node.port}, "periodSeconds": 30},
        "readinessProbe": {
            "exec": {"command": ["busbw", "check", *node.check]},
            "periodSeconds": node.every_s,
            "timeoutSeconds": _CHECK_LIMIT_S,
            "failureThreshold": 1,
        },
        "resources": _MEMORY,
        "securityContext": {**kubernetes.unprivileged(), "readOnlyRootFilesystem": True},
        "volumeMounts": [{"name": "token", "mountPath": TOKEN, "readOnly": True}],
    }
