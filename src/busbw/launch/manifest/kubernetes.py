"""Values of Kubernetes objects: names, resources and node labels, checked as Kubernetes does."""

import re
from typing import Any

from busbw.core.errors import UsageError

_LABEL = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")  # RFC 1035, which a Service's name obeys
_LABEL_LENGTH = 63  # RFC 1123
_RESOURCE = re.compile(
    r"([a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)(?:=([1-9][0-9]*))?"
)
_NODE_LABEL = re.compile(
    r"((?:[a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)"
    r"=([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?"
)


def metadata(name: str, namespace: str, longest: str = "") -> dict[str, Any]:
    """Name and namespace of an object.

    `longest` is the longest name derived from `name`. UsageError for what Kubernetes would reject.
    """
    _check_name("--name", name, longest or name)
    if not namespace:
        return {"name": name}
    _check_name("--namespace", namespace, namespace)
    return {"name": name, "namespace": namespace}


def resources(gpus: int, rdma: str = "") -> dict[str, Any]:
    """Limits of a container with GPUs and an RDMA resource such as `rdma/hca=1`; UsageError if
    that is not a resource.
    """
    found: dict[str, Any] = {"nvidia.com/gpu": gpus} if gpus else {}
    if rdma:
        match = _RESOURCE.fullmatch(rdma)
        if match is None:
            raise UsageError(
                f"--rdma {rdma}: not a resource name",
                "use the form rdma/hca=1; kubectl describe node lists resources",
            )
        found[match.group(1)] = int(match.group(4) or 1)
    return found


def node_selector(text: str) -> dict[str, str]:
    """The label of `nvidia.com/gpu.present=true`; UsageError for anything else."""
    match = _NODE_LABEL.fullmatch(text)
    if match is None:
        raise UsageError(
            f"--node-selector {text}: not a label",
            "use the form KEY=VALUE; kubectl get nodes --show-labels lists labels",
        )
    return {match.group(1): match.group(4) or ""}


def _check_name(option: str, name: str, longest: str) -> None:
    if not _LABEL.fullmatch(name):
        raise UsageError(
            f"{option} {name}: not a DNS label",
            "use lower-case letters, digits and '-', starting with a letter",
        )
    if len(longest) > _LABEL_LENGTH:
        raise UsageError(
            f"{option} {name}: {longest} has {len(longest)} characters, the limit is"
            f" {_LABEL_LENGTH}",
            "choose a shorter name",
        )
