"""An MPIJob of the Kubeflow MPI Operator (kubeflow.org/v2beta1).

A launcher pod runs the command, with a worker pod on each host. The operator (v0.6.0) adds ssh keys
in sshAuthMountPath, /etc/mpi/hostfile with a line `NAME slots=N` per worker, and in the launcher
OMPI_MCA_orte_default_hostfile, OMPI_MCA_orte_set_default_slots, OMPI_MCA_orte_keep_fqdn_hostnames
and OMPI_MCA_plm_rsh_args.
"""

from dataclasses import dataclass

from busbw.launch.manifest import kubernetes
from busbw.launch.manifest.filler import fill_json
from busbw.launch.manifest.plan import Plan, flag_given

HOSTFILE = "/etc/mpi/hostfile"
# Host keys are generated at startup: everyone with the image would know keys in it.
SSHD = (
    'keys=$(mktemp -d) && ssh-keygen -q -t ed25519 -N "" -f "$keys/host_key" && exec /usr/sbin/sshd'
    ' -De -h "$keys/host_key" -p "$0"'
)
# MPI only starts the ranks and uses TCP; NCCL is what is measured.
_TCP = ("--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "coll", "^hcoll")


@dataclass(frozen=True, slots=True)
class Pods:
    """Settings of the pods. `rdma` is a resource of each worker, as `rdma/hca=1`; '' for none."""

    image: str
    namespace: str = ""
    rdma: str = ""
    ssh_directory: str = "/home/busbw/.ssh"
    ssh_port: int = 2222


def text(plan: Plan, pods: Pods) -> str:
    """The manifest as JSON. UsageError for a name or resource that Kubernetes would reject."""
    last_worker = f"{plan.name}-worker-{plan.hosts - 1}"
    limits = kubernetes.resources(plan.gpus_per_host, pods.rdma)
    values = {
        "metadata": kubernetes.metadata(plan.name, pods.namespace, longest=last_worker),
        "name": plan.name,
        "hosts": plan.hosts,
        "ranks_per_host": plan.ranks_per_host,
        "image": pods.image,
        "command": command(plan),
        "ssh_directory": pods.ssh_directory,
        "sshd": SSHD,
        "ssh_port": pods.ssh_port,
        "ssh_port_word": str(pods.ssh_port),
        "resources": {"limits": limits} if limits else None,
    }
    return fill_json("mpijob.json", values)


def command(plan: Plan) -> list[str]:
    """The launcher's command: `busbw run` on the operator's hosts, or mpirun with the command."""
    if not plan.starts_itself:
        # Open MPI 5 ignores the operator's orte_ variables, so the hostfile is given explicitly.
        hosts = ["--hostfile", HOSTFILE, "-n", str(plan.ranks), "--bind-to", "none"]
        return ["mpirun", *hosts, *_TCP, "-x", "PATH", "-x", "LD_LIBRARY_PATH", *plan.command]
    # The launcher pod has no GPU, so the engine cannot be chosen automatically there.
    engine = "nccl" if plan.gpus_per_host else "mpi"
    options = [] if flag_given(plan.command, "--engine") else ["--engine", engine]
    return [*plan.command, "--hostfile", HOSTFILE, *options]
