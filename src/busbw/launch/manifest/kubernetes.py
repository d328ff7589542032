"""Kubernetes objects, and what judges a node before a job.

Names, resources and node labels are checked as Kubernetes checks them. `text` is a DaemonSet that
watches the links of each GPU node for Prometheus; its pod is ready while `busbw check` finds no
fault on the node. A node is judged by a Slurm prolog or epilog, or by an init container with the
same steps.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from busbw.core.errors import Exit, UsageError
from busbw.core.finding import Layer
from busbw.core.link_samples import METRICS_PORT
from busbw.launch.manifest.filler import ShellSyntax, fill_json, fill_script
from busbw.launch.manifest.plan import flag_given

_LABEL = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")  # RFC 1035, which a Service's name obeys
_LABEL_LENGTH = 63  # RFC 1123
_RESOURCE = re.compile(
    r"([a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)(?:=([1-9][0-9]*))?"
)
_NODE_LABEL = re.compile(
    r"((?:[a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)"
    r"=([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?"
)
# Layers that look the same from a pod as on the node: limits, shared memory and device files are
# the pod's own.
LAYERS = (Layer.GPU, Layer.NVLINK, Layer.PCIE, Layer.NIC, Layer.ROCE)
# What is judged while jobs run, which use the memory of GPUs and of the host.
BESIDE_JOBS = ("--skip", "gpu-memory-in-use", "--skip", "mem-free")
CHECK = (*(word for layer in LAYERS for word in ("--layer", layer.value)), *BESIDE_JOBS)


def metadata(name: str, namespace: str, longest: str = "") -> dict[str, Any]:
    """Name and namespace of an object.

    `longest` is the longest name derived from `name`. UsageError for a name that Kubernetes would
    reject.
    """
    _check_name("--name", name, longest or name)
    if not namespace:
        return {"name": name}
    _check_name("--namespace", namespace, namespace)
    return {"name": name, "namespace": namespace}


def resources(gpus: int, rdma: str = "") -> dict[str, Any]:
    """Limits of a container with GPUs and an RDMA resource such as `rdma/hca=1`.

    UsageError if `rdma` is not a resource.
    """
    limits: dict[str, Any] = {"nvidia.com/gpu": gpus} if gpus else {}
    if rdma:
        match = _RESOURCE.fullmatch(rdma)
        if match is None:
            raise UsageError(
                f"--rdma {rdma}: not a resource name",
                "use the form rdma/hca=1; kubectl describe node lists resources",
            )
        limits[match.group(1)] = int(match.group(4) or 1)
    return limits


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


@dataclass(frozen=True, slots=True)
class PodSettings:
    """Settings of the pod on each node."""

    name: str
    image: str
    namespace: str = ""
    secret: str = "busbw-watch"  # a Secret with the key `token`
    port: int = METRICS_PORT
    every_s: int = 300  # time between two checks
    runtime_class: str = "nvidia"  # '' is the cluster's default
    selector: str = "nvidia.com/gpu.present=true"  # a label, `key=value`; '' for all nodes
    check: tuple[str, ...] = CHECK


def text(node: PodSettings) -> str:
    """The DaemonSet as JSON. UsageError for a name or label that Kubernetes would reject."""
    labels = {"app.kubernetes.io/name": "busbw", "app.kubernetes.io/instance": node.name}
    values = {
        "metadata": {**metadata(node.name, node.namespace), "labels": labels},
        "labels": labels,
        "runtime_class": node.runtime_class or None,
        "node_selector": node_selector(node.selector) if node.selector else None,
        "image": node.image,
        "port": node.port,
        "check": ["busbw", "check", *node.check],
        "every_s": node.every_s,
        "secret": node.secret,
    }
    return fill_json("daemonset.json", values)


_EXPECT = "--expect"
# Exit codes of a step that could not judge the node; the shell has 126 and 127 if it cannot start.
_NOT_JUDGED = (Exit.USAGE, Exit.UNKNOWN, Exit.BUG, 126, 127)


@dataclass(frozen=True, slots=True)
class CheckSteps:
    """The steps: `busbw check`, then a run that must reach a busbw.

    `check` are options of `busbw check`. `least` is a run with --min-busbw or --min-percent, empty
    for none. `limit_s` ends a step. A step that fails or hangs, as on a broken GPU, keeps the job
    away; with `strict` also one that could not judge the node, but never a warning. Else a node
    whose file of --expect cannot be read is checked without it. `program` is busbw on the node:
    Slurm gives a prolog no PATH.
    """

    check: Sequence[str]
    least: Sequence[str]
    limit_s: int
    strict: bool = False
    program: str = "busbw"

    def values(self) -> dict[str, Any]:
        """The placeholders of prolog.sh and preflight.sh; `bad` are exit codes for a `case`."""
        bad = [Exit.BAD, *_NOT_JUDGED] if self.strict else [Exit.BAD]
        check = [self.program, "check", "--wide"]
        fallback = not self.strict and flag_given(self.check, _EXPECT)
        return {
            "limit_s": self.limit_s,
            "bad": ShellSyntax("|".join(str(int(code)) for code in bad)),
            "check": [*check, *self.check],
            "without_file": [*check, *_without_file(self.check)] if fallback else None,
            "least": [self.program, "run", *self.least, "--brief"] if self.least else None,
        }


def _without_file(words: Sequence[str]) -> Iterator[str]:
    """The options without --expect FILE and --expect=FILE."""
    left = iter(words)
    for word in left:
        if word == _EXPECT:
            next(left, None)
        elif not flag_given([word], _EXPECT):
            yield word


def prolog(steps: CheckSteps) -> str:
    """A script for Slurm that drains a node that fails before a job."""
    when = "before a job: Prolog=/etc/slurm/busbw-prolog.sh in slurm.conf, PrologFlags=Alloc."
    return _slurm_script(steps, "busbw-prolog", when)


def epilog(steps: CheckSteps) -> str:
    """As `prolog`, but after each job."""
    when = "after each job: Epilog=/etc/slurm/busbw-epilog.sh in slurm.conf."
    return _slurm_script(steps, "busbw-epilog", when)


def _slurm_script(steps: CheckSteps, tag: str, when: str) -> str:
    """`tag` is that of its lines in the system log."""
    return fill_script("prolog.sh", steps.values() | {"tag": tag, "when": ShellSyntax(when)})


def preflight_script(steps: CheckSteps) -> str:
    """The init container's script; what it prints is the container's log."""
    return fill_script("preflight.sh", steps.values())


def preflight(image: str, limits: dict[str, Any], steps: CheckSteps) -> str:
    """A patch that adds the init container to objects with a pod template (Job, StatefulSet).

    It is JSON for `kubectl patch --patch-file`. `limits` are the container's devices, for example
    `{"nvidia.com/gpu": 8}`, which the pod's containers get afterwards.
    """
    values = {"image": image, "limits": limits, "script": preflight_script(steps)}
    return fill_json("preflight.json", values)
