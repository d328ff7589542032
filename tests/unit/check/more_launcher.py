"""Variants of the layer launcher: values, versions and machines."""

from changes_nccl import set_to
from tree import Change, Tree, combine, environment


def unversioned(tree: Tree) -> None:
    """An mpirun that does not give its version."""
    tree.update("mpirun", version="", error="exit code 1")


def unread_mpirun(tree: Tree) -> None:
    tree.failing("mpirun", "not in the recording")


MORE_LAUNCHER: dict[str, dict[str, Change]] = {
    "hostname-loopback": {
        "its own name and others": lambda tree: tree.file(
            "/etc/hosts", "127.0.0.1 gpu-1 localhost gpu-1.cluster"
        ),
        "its own name last": lambda tree: tree.file("/etc/hosts", "127.0.0.1 localhost gpu-1"),
        "no address": lambda tree: tree.file("/etc/hosts", "gpu-1 gpu-1\n127.0.1.1 gpu-1"),
        "of IPv6": lambda tree: tree.file("/etc/hosts", "::1 gpu-1"),
        "another host": lambda tree: tree.file("/etc/hosts", "127.0.1.1 gpu-2\n10.1.0.1 gpu-1"),
        "none": lambda tree: tree.file("/etc/hosts", "127.0.0.1 localhost"),
    },
    "hostname-resolves": {
        "to loopback alone": lambda tree: tree.call(
            "own-addresses", "127.0.1.1 STREAM gpu-1\n::1 STREAM"
        ),
        "to loopback among others": lambda tree: tree.call(
            "own-addresses", "127.0.1.1 STREAM gpu-1\n10.1.0.1 STREAM"
        ),
        "to a local address": lambda tree: tree.call("own-addresses", "fe80::1%eth0 STREAM gpu-1"),
    },
    "mpi-interfaces": {
        "both lists": environment(
            OMPI_MCA_btl_tcp_if_include="eth0", OMPI_MCA_btl_tcp_if_exclude="lo"
        ),
        "exclude without loopback": environment(OMPI_MCA_btl_tcp_if_exclude="docker0"),
        "exclude with loopback": environment(OMPI_MCA_btl_tcp_if_exclude="docker0,lo"),
        "exclude of the daemons": environment(PRTE_MCA_prte_if_exclude="docker0"),
        "an interface that is there": environment(OMPI_MCA_btl_tcp_if_include="eth0"),
        "two of the daemons": environment(PRTE_MCA_prte_if_include="eth0,eth1"),
        "a network of loopback": environment(OMPI_MCA_btl_tcp_if_exclude="docker0,127.0.0.0/8"),
        "a snapshot without Open MPI": combine(
            environment(OMPI_MCA_btl_tcp_if_include="bond0"), unread_mpirun
        ),
        "Open MPI is not known": combine(
            environment(OMPI_MCA_btl_tcp_if_include="bond0"), unversioned
        ),
    },
    "mpi-transport": {
        **set_to("OMPI_MCA_coll", "hcoll", "^hcoll", "basic,hcoll", "basic"),
        **set_to("OMPI_MCA_coll_hcoll_enable", "1", "0", "FALSE"),
        **set_to("UCX_NET_DEVICES", "mlx5_0:1", "eth0", "eth0,mlx5_0:1"),
        **set_to("UCX_TLS", "tcp", "tcp,self", "rc", "tcp,rc"),
        "UCX over TCP": environment(OMPI_MCA_pml="ucx", UCX_TLS="tcp,self"),
        "UCX over an interface": environment(OMPI_MCA_pml="ucx", UCX_NET_DEVICES="eth0"),
        "UCX over a card": environment(OMPI_MCA_pml="ucx", UCX_NET_DEVICES="eth0,mlx5_0:1"),
    },
    "mpi-variables": {
        "one of Open MPI": environment(OMPI_MCA_pml="ob1"),
        "arguments of ssh": environment(OMPI_MCA_plm_rsh_args="-o A -o B"),
        "those of an MPIJob": environment(
            OMPI_MCA_orte_default_hostfile="/etc/mpi/hostfile", OMPI_MCA_plm_rsh_args="-o A"
        ),
        "one of version 4 and one of version 5": environment(
            OMPI_MCA_plm_rsh_agent="ssh", PRTE_MCA_plm_ssh_agent="ssh"
        ),
    },
    "mpirun-isolated": {
        "of Open MPI 4": combine(
            environment(OMPI_MCA_plm="isolated"),
            lambda tree: tree.update("mpirun", version="4.1.6"),
        ),
        "of the other version": environment(OMPI_MCA_plm="isolated"),
        "Open MPI is not known": combine(environment(OMPI_MCA_plm="isolated"), unversioned),
        "a snapshot without Open MPI": combine(environment(OMPI_MCA_plm="isolated"), unread_mpirun),
        "not isolated": environment(PRTE_MCA_plm="ssh"),
    },
    "reverse-lookup": {
        "at the limit": lambda tree: tree.update("reverse-lookups", **{"::ffff:10.1.0.1": 1.0}),
        "slow": lambda tree: tree.update(
            "reverse-lookups", **{"::ffff:10.1.0.1": 1.01, "::ffff:127.0.0.1": 2.0}
        ),
    },
}
