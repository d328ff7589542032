"""Cases of the layers NCCL and launcher."""

import json

from healthy import healthy
from healthy_nccl import HOME, MISSING, library
from loads import loaded, reducing
from tree import Tree, environment

from busbw.host.nccl_libraries import PATH


def with_variable(name: str, value: str, *, call: str = "", answer: str = ""):
    """A variable, and the answer of a call."""

    def change(tree: Tree) -> Tree:
        environment(**{name: value})(tree)
        return tree.call(call, answer) if call else tree

    return change


def two_libraries(tree: Tree) -> Tree:
    libraries = [
        library("/opt/venv/lib/libnccl.so.2", "2.27.7"),
        library("/opt/nccl/lib/libnccl.so.2", "2.21.5", PATH),
    ]
    return tree.call("nccl-libraries", json.dumps(libraries))


def bonded(tree: Tree) -> Tree:
    tree.file("/sys/class/net/bond0/bonding/slaves", "eth0 eth9").file(
        "/sys/class/net/eth9/operstate", "up"
    )
    return tree.link("/sys/class/net/eth0/master", "../bond0")


def traffic_class(tree: Tree) -> Tree:
    environment(NCCL_IB_TC="41")(tree)
    for index in range(8):
        tree.file(f"/sys/class/infiniband/mlx5_{index}/tc/1/traffic_class", "Global tclass=106")
    return tree


NCCL = {
    "nccl-gid-index": environment(NCCL_IB_GID_INDEX="3"),
    "nccl-ib-hca": environment(NCCL_IB_HCA="mlx5_0,mlx5_9"),
    "nccl-ib-disable": environment(NCCL_IB_DISABLE="1"),
    "nccl-net-gdr-level": environment(NCCL_NET_GDR_LEVEL="2"),
    "nccl-socket-ifname": environment(NCCL_SOCKET_IFNAME="bond7"),
    "nccl-proto": environment(NCCL_PROTO="LL128"),
    "nccl-algo": environment(NCCL_ALGO="Ring"),
    "nccl-ib-timeout": environment(NCCL_IB_TIMEOUT="18"),
    "nccl-ib-tc": traffic_class,
    "nccl-socket-threads": environment(NCCL_SOCKET_NTHREADS="8", NCCL_NSOCKS_PERTHREAD="16"),
    "nccl-ib-qps": bonded,
    "nccl-ib-ece": environment(NCCL_IB_ECE_ENABLE="0"),
    "nccl-p2p-disable": environment(NCCL_P2P_DISABLE="1"),
    "nccl-shm-disable": environment(NCCL_SHM_DISABLE="1"),
    "nccl-nvls": environment(NCCL_NVLS_ENABLE="0"),
    "nccl-cross-nic": environment(NCCL_CROSS_NIC="1"),
    "nccl-tuning": environment(NCCL_BUFFSIZE="8388608", NCCL_MAX_NCHANNELS="4"),
    "nccl-debug": environment(NCCL_DEBUG="TRACE", NCCL_DEBUG_FILE="/tmp/nccl.log"),
    "nccl-libraries": two_libraries,
    "nccl-conf-files": lambda tree: tree.file("/etc/nccl.conf", "NCCL_IB_TC = 106"),
    "nccl-net-plugin": with_variable("NCCL_NET_PLUGIN", "ofi", call="nccl-plugin net ofi"),
    "nccl-tuner-plugin": with_variable(
        "NCCL_TUNER_PLUGIN", "/opt/tuner.so", call="nccl-plugin tuner /opt/tuner.so"
    ),
    "nccl-profiler-plugin": with_variable(
        "NCCL_PROFILER_PLUGIN", "inspector", call="nccl-plugin profiler inspector"
    ),
    "cuda-visible-devices": environment(CUDA_VISIBLE_DEVICES="0,1,2,3"),
    "nccl-collnet": environment(NCCL_COLLNET_ENABLE="1"),
    "gloo-socket-ifname": environment(GLOO_SOCKET_IFNAME="eno1", NCCL_SOCKET_IFNAME="eth0"),
    "torch-nccl-names": environment(NCCL_ASYNC_ERROR_HANDLING="1", TORCH_NCCL_BLOCKING_WAIT="1"),
    "nccl-names": environment(NCCL_IB_GID_INDX="3", NCCL_TIMEOUT="7200"),
    "nccl-values": environment(NCCL_P2P_DISABLE="true"),
    "nccl-topo-file": (
        lambda tree: environment(NCCL_TOPO_FILE=f"{HOME}/topo.xml")(tree).error(
            f"{HOME}/topo.xml", MISSING
        )
    ),
}


def mpi_job() -> Tree:
    """The healthy server as the launcher of an MPIJob with two workers."""
    tree = healthy().file(
        "/etc/mpi/hostfile", "job-worker-0.job.ns.svc slots=8\njob-worker-1.job.ns.svc slots=8"
    )
    environment(
        OMPI_MCA_orte_default_hostfile="/etc/mpi/hostfile",
        OMPI_MCA_orte_keep_fqdn_hostnames="true",
        OMPI_MCA_plm_rsh_args="-o ConnectionAttempts=10",
        OMPI_MCA_orte_set_default_slots="8",
    )(tree)
    return tree


NCCL |= {
    "nccl-load-all-reduce": (
        loaded(),
        reducing(
            "warn",
            "busbw is 150 GB/s at 512 MiB out of place, 60 % of the published run of 1 x 2 H100,"
            " below the expected 216 to 336 GB/s",
        ),
    ),
    "mpirun-version": lambda tree: tree.update("mpirun", version="5.0.5"),
    "mpirun-isolated": environment(PRTE_MCA_plm="isolated"),
    "hostname-loopback": lambda tree: tree.file(
        "/etc/hosts", "127.0.0.1 localhost\n127.0.1.1 gpu-1"
    ),
    "hostname-resolves": lambda tree: tree.call("own-addresses", ""),
    "reverse-lookup": lambda tree: tree.update("reverse-lookups", **{"::ffff:10.1.0.1": 5.01}),
    "ssh-keys": lambda tree: tree.update("ssh-login", keys={"id_rsa": 0o644}),
    "slurm-mpi": lambda tree: tree.call("srun-mpi", "MPI plugin types are...\n\tnone\n\tpmi2"),
    "mpi-interfaces": environment(OMPI_MCA_btl_tcp_if_include="bond0"),
    "mpi-variables": environment(OMPI_MCA_oob_tcp_if_include="bond0"),
    "mpijob": (mpi_job(), lambda tree: tree.error("/etc/mpi/hostfile", MISSING)),
    "mpi-transport": environment(OMPI_MCA_pml="ucx"),
}
