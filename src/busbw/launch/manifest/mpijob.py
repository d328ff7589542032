"""An MPIJob of the Kubeflow MPI Operator (kubeflow.org/v2beta1): a launcher pod that runs the command, and a worker pod on each host.

What the operator adds itself, from its v0.6.0: ssh keys in sshAuthMountPath, /etc/mpi/hostfile with a line `NAME slots=N` per worker, and
in the launcher OMPI_MCA_orte_default_hostfile, OMPI_MCA_orte_set_default_slots, OMPI_MCA_orte_keep_fqdn_hostnames, OMPI_MCA_plm_rsh_args.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from busbw.core.errors import UsageError
from busbw.launch.manifest.plan import Plan, flag_given
from busbw.launch.manifest.yaml import Node, dump

HOSTFILE = "/etc/mpi/hostfile"
_LABEL = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")  # RFC 1035, which a Service's name obeys
_LABEL_LENGTH = 63  # RFC 1123
_RESOURCE = re.compile(r"([a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)(?:=([1-9][0-9]*))?")
_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
# MPI brings the ranks together; NCCL is what is measured.
_TCP = ("--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "coll", "^hcoll")


@dataclass(frozen=True, slots=True)
class Pods:
    """What the pods need beside the plan. `rdma` is a resource of each worker, like `rdma/hca=1`; '' for none."""

    image: str
    namespace: str = ""
    rdma: str = ""
    ssh_directory: str = "/root/.ssh"
    ssh_port: int = 22


def text(plan: Plan, pods: Pods) -> str:
    """The manifest as YAML; UsageError for a name or resource that Kubernetes would refuse."""
    _check_name("--name", plan.name, f"{plan.name}-worker-{plan.hosts - 1}")
    if pods.namespace:
        _check_name("--namespace", pods.namespace, pods.namespace)
    job: Mapping[str, Node] = {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": plan.name, **({"namespace": pods.namespace} if pods.namespace else {})},
        "spec": {
            "slotsPerWorker": plan.ranks_per_host,
            # A launcher that starts before the workers' names resolve fails.
            "launcherCreationPolicy": "WaitForWorkersReady",
            "mpiImplementation": "OpenMPI",
            "sshAuthMountPath": pods.ssh_directory,
            # A measurement that failed is not repeated behind the reader's back.
            "runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": 0},
            "mpiReplicaSpecs": {"Launcher": _replicas(1, _launcher(plan, pods)), "Worker": _replicas(plan.hosts, _worker(plan, pods))},
        },
    }
    return dump(job)


def command(plan: Plan) -> list[str]:
    """What the launcher runs: `busbw run` over the operator's hosts, or mpirun over any other command."""
    if not plan.starts_itself:
        # Open MPI 5 reads none of the operator's orte_ variables, so the hostfile is named.
        hosts = ["--hostfile", HOSTFILE, "-n", str(plan.ranks), "--bind-to", "none"]
        return ["mpirun", *hosts, *_TCP, "-x", "PATH", "-x", "LD_LIBRARY_PATH", *plan.command]
    # The launcher has no GPUs of its own to choose an engine by.
    engine = [] if flag_given(plan.command, "--engine") else ["--engine", "nccl" if plan.gpus_per_host else "mpi"]
    return [*plan.command, "--hostfile", HOSTFILE, *engine]


def _replicas(count: int, pod: Mapping[str, Node]) -> Node:
    return {"replicas": count, "restartPolicy": "Never", "template": {"spec": pod}}


def _launcher(plan: Plan, pods: Pods) -> Mapping[str, Node]:
    environment = [{"name": name, "value": value} for name, value in _ROOT.items()]
    return {"containers": [{"name": "launcher", "image": pods.image, "command": command(plan), "env": environment}]}


def _worker(plan: Plan, pods: Pods) -> Mapping[str, Node]:
    labels = {"training.kubeflow.org/job-name": plan.name, "training.kubeflow.org/job-role": "worker"}
    apart: Node = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
    resources = _resources(plan, pods)
    container: dict[str, Node] = {
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
        # Two workers on one host would measure its inner links.
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}},
        "containers": [container],
        # The default 64 MiB are too few for NCCL and MPI.
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
    }


def _resources(plan: Plan, pods: Pods) -> dict[str, Node]:
    resources: dict[str, Node] = {"nvidia.com/gpu": plan.gpus_per_host} if plan.gpus_per_host else {}
    if pods.rdma:
        match = _RESOURCE.fullmatch(pods.rdma)
        if match is None:
            raise UsageError(f"--rdma {pods.rdma}: it is no resource of a node", "write it like rdma/hca=1 (kubectl describe node)")
        resources[match.group(1)] = int(match.group(4) or 1)
    return resources


def _check_name(option: str, name: str, longest: str) -> None:
    if not _LABEL.fullmatch(name):
        raise UsageError(f"{option} {name}: it is no DNS label", "use small letters, digits and '-', a letter first")
    if len(longest) > _LABEL_LENGTH:
        raise UsageError(f"{option} {name}: {longest} has {len(longest)} letters, and a label {_LABEL_LENGTH}", "choose a shorter name")
