"""An MPIJob of the Kubeflow MPI Operator (kubeflow.org/v2beta1): a launcher pod that runs the command, and a worker pod on each host.

The operator (v0.6.0) adds ssh keys in sshAuthMountPath, /etc/mpi/hostfile with a line `NAME slots=N` per worker, and in the launcher
OMPI_MCA_orte_default_hostfile, OMPI_MCA_orte_set_default_slots, OMPI_MCA_orte_keep_fqdn_hostnames, OMPI_MCA_plm_rsh_args.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

from busbw.core.errors import UsageError
from busbw.launch.manifest.plan import Plan, flag_given

HOSTFILE = "/etc/mpi/hostfile"
_LABEL = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")  # RFC 1035, which a Service's name obeys
_LABEL_LENGTH = 63  # RFC 1123
_RESOURCE = re.compile(r"([a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)(?:=([1-9][0-9]*))?")
_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
# MPI only starts the ranks and uses TCP; NCCL is what is measured.
_TCP = ("--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "coll", "^hcoll")


@dataclass(frozen=True, slots=True)
class Pods:
    """Settings of the pods. `rdma` is a resource of each worker, such as `rdma/hca=1`; '' for none."""

    image: str
    namespace: str = ""
    rdma: str = ""
    ssh_directory: str = "/root/.ssh"
    ssh_port: int = 22


def text(plan: Plan, pods: Pods) -> str:
    """The manifest as JSON, which kubectl reads. Raises UsageError for a name or resource that Kubernetes would reject."""
    _check_name("--name", plan.name, f"{plan.name}-worker-{plan.hosts - 1}")
    if pods.namespace:
        _check_name("--namespace", pods.namespace, pods.namespace)
    job = {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": plan.name, **({"namespace": pods.namespace} if pods.namespace else {})},
        "spec": {
            "slotsPerWorker": plan.ranks_per_host,
            # A launcher that starts before the workers' names resolve fails.
            "launcherCreationPolicy": "WaitForWorkersReady",
            "mpiImplementation": "OpenMPI",
            "sshAuthMountPath": pods.ssh_directory,
            # A failed measurement is not repeated silently.
            "runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": 0},
            "mpiReplicaSpecs": {"Launcher": _replicas(1, _launcher(plan, pods)), "Worker": _replicas(plan.hosts, _worker(plan, pods))},
        },
    }
    return json.dumps(job, indent=2) + "\n"


def command(plan: Plan) -> list[str]:
    """The launcher's command: `busbw run` on the operator's hosts, or mpirun with any other command."""
    if not plan.starts_itself:
        # Open MPI 5 ignores the operator's orte_ variables, so the hostfile is given explicitly.
        hosts = ["--hostfile", HOSTFILE, "-n", str(plan.ranks), "--bind-to", "none"]
        return ["mpirun", *hosts, *_TCP, "-x", "PATH", "-x", "LD_LIBRARY_PATH", *plan.command]
    # The launcher pod has no GPU, so the engine cannot be chosen automatically there.
    engine = [] if flag_given(plan.command, "--engine") else ["--engine", "nccl" if plan.gpus_per_host else "mpi"]
    return [*plan.command, "--hostfile", HOSTFILE, *engine]


def _replicas(count: int, pod: dict[str, Any]) -> dict[str, Any]:
    return {"replicas": count, "restartPolicy": "Never", "template": {"spec": pod}}


def _launcher(plan: Plan, pods: Pods) -> dict[str, Any]:
    environment = [{"name": name, "value": value} for name, value in _ROOT.items()]
    return {"containers": [{"name": "launcher", "image": pods.image, "command": command(plan), "env": environment}]}


def _worker(plan: Plan, pods: Pods) -> dict[str, Any]:
    labels = {"training.kubeflow.org/job-name": plan.name, "training.kubeflow.org/job-role": "worker"}
    apart = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
    resources = _resources(plan, pods)
    container: dict[str, Any] = {
        "name": "worker",
        "image": pods.image,
        "command": ["/usr/sbin/sshd", "-De", "-p", str(pods.ssh_port)],
        "readinessProbe": {"tcpSocket": {"port": pods.ssh_port}, "periodSeconds": 1},
        # RDMA pins memory.
        "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
    }
    if resources:
        container["resources"] = {"limits": resources}
    return {
        # Two workers on one host would measure that host's internal links.
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}},
        "containers": [container],
        # The default of 64 MiB is too small for NCCL and MPI.
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
    }


def _resources(plan: Plan, pods: Pods) -> dict[str, Any]:
    resources: dict[str, Any] = {"nvidia.com/gpu": plan.gpus_per_host} if plan.gpus_per_host else {}
    if pods.rdma:
        match = _RESOURCE.fullmatch(pods.rdma)
        if match is None:
            raise UsageError(f"--rdma {pods.rdma}: not a resource name", "use the form rdma/hca=1; kubectl describe node lists resources")
        resources[match.group(1)] = int(match.group(4) or 1)
    return resources


def _check_name(option: str, name: str, longest: str) -> None:
    if not _LABEL.fullmatch(name):
        raise UsageError(f"{option} {name}: not a DNS label", "use lower-case letters, digits and '-', starting with a letter")
    if len(longest) > _LABEL_LENGTH:
        raise UsageError(f"{option} {name}: {longest} has {len(longest)} characters, the limit is {_LABEL_LENGTH}", "choose a shorter name")
