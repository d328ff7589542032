"""An MPIJob of the Kubeflow MPI Operator (kubeflow.org/v2beta1): a launcher pod that runs the command, and a worker pod on each host.

The operator (v0.6.0) adds ssh keys in sshAuthMountPath, /etc/mpi/hostfile with a line `NAME slots=N` per worker, and in the launcher
OMPI_MCA_orte_default_hostfile, OMPI_MCA_orte_set_default_slots, OMPI_MCA_orte_keep_fqdn_hostnames, OMPI_MCA_plm_rsh_args.
"""

from dataclasses import dataclass
from typing import Any

from busbw.launch.manifest import kubernetes
from busbw.launch.manifest.plan import Plan, flag_given

HOSTFILE = "/etc/mpi/hostfile"
# Host keys are generated at startup: everyone with the image would know keys in it.
SSHD = 'keys=$(mktemp -d) && ssh-keygen -q -t ed25519 -N "" -f "$keys/host_key" && exec /usr/sbin/sshd -De -h "$keys/host_key" -p "$0"'
_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
# MPI only starts the ranks and uses TCP; NCCL is what is measured.
_TCP = ("--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "coll", "^hcoll")


@dataclass(frozen=True, slots=True)
class Pods:
    """Settings of the pods. `rdma` is a resource of each worker, such as `rdma/hca=1`; '' for none."""

    image: str
    namespace: str = ""
    rdma: str = ""
    ssh_directory: str = "/home/busbw/.ssh"
    ssh_port: int = 2222


def text(plan: Plan, pods: Pods) -> str:
    """The manifest as JSON, which kubectl reads. Raises UsageError for a name or resource that Kubernetes would reject."""
    job = {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": kubernetes.metadata(plan.name, pods.namespace, longest=f"{plan.name}-worker-{plan.hosts - 1}"),
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
    return kubernetes.dump(job)


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
    resources = kubernetes.resources(plan.gpus_per_host, pods.rdma)
    container: dict[str, Any] = {
        "name": "worker",
        "image": pods.image,
        "command": ["sh", "-c", SSHD, str(pods.ssh_port)],
        "readinessProbe": {"tcpSocket": {"port": pods.ssh_port}, "periodSeconds": 1},
        # RDMA pins memory.
        "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
        "volumeMounts": [{"name": "shm", "mountPath": kubernetes.SHM}],
    }
    if resources:
        container["resources"] = {"limits": resources}
    return {
        # Two workers on one host would measure that host's internal links.
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}},
        "containers": [container],
        "volumes": [kubernetes.memory("shm")],
    }
