"""Command lines of launchers, and the verdict of a rule on each."""

from healthy import healthy

from busbw.check.machine import Machine
from busbw.core.finding import Verdict

PERF = "./build/all_reduce_perf -b 8 -e 8G -f 2 -g 1"


def machine(version="5.0.8", interfaces=(), host="gpu-1", euid="0", **variables):
    """The healthy server with a version of Open MPI, more interfaces, a name, and variables."""
    tree = (
        healthy()
        .update("mpirun", version=version)
        .update("environment", **variables)
        .file("/proc/sys/kernel/hostname", host)
    )
    tree.call("euid", euid)
    for name in interfaces:
        tree.file(f"/sys/class/net/{name}/operstate", "up")
    return Machine(tree.source())


ALONE = [
    ("line-hosts", f"mpirun -n 16 -H h1:h2 {PERF}", Verdict.FAIL),
    ("line-hosts", f"mpirun -n 16 -H h1:8:h2:8 {PERF}", Verdict.FAIL),
    ("line-hosts", f"mpirun -n 16 -H h1:8,h2:8 {PERF}", Verdict.PASS),
    ("line-hosts", f"mpirun -n 16 -H h1:*,h2:auto,h3:$N {PERF}", Verdict.PASS),
    ("line-hosts", f"mpirun -n 16 -H fd00::1,fd00::2 {PERF}", Verdict.PASS),
    ("line-hosts", f"mpirun -n 16 -H [fd00::1]:8,[fd00::2]:8 {PERF}", Verdict.PASS),
    ("line-hosts", f"mpirun -n 16 --hostfile hosts {PERF}", Verdict.SKIP),
    ("line-slots", f"mpirun -n 16 -H h1,h2 {PERF}", Verdict.FAIL),
    ("line-slots", f"mpirun -n 16 -H h1:8,h2:7 {PERF}", Verdict.FAIL),
    ("line-slots", f"mpirun -n 16 -H h1:8,h2:8 {PERF}", Verdict.PASS),
    ("line-slots", f"mpirun -npernode 8 -H h1,h2 {PERF}", Verdict.FAIL),
    ("line-slots", f"mpirun -n 16 --map-by ppr:8:node -H h1,h2 {PERF}", Verdict.FAIL),
    ("line-slots", f"mpirun -n 16 -H h1:*,h2:* {PERF}", Verdict.SKIP),
    ("line-slots", f"mpirun -n 16 -H $HOSTS {PERF}", Verdict.SKIP),
    ("line-slots", f"mpirun -n 16 --hostfile hosts -H h1,h2 {PERF}", Verdict.SKIP),
    ("line-slots", f"mpirun -n 1 -H h1 {PERF} : -n 2 -H h2:2 {PERF}", Verdict.SKIP),
    ("line-slots", f"mpirun -n 16 --oversubscribe -H h1,h2 {PERF}", Verdict.SKIP),
    ("line-slots", f"mpirun -n 16 --map-by :OVERSUBSCRIBE -H h1,h2 {PERF}", Verdict.SKIP),
    ("line-spread", f"mpirun -n 8 -H h1:8,h2:8 {PERF}", Verdict.WARN),
    ("line-spread", f"mpirun -n 8 --map-by node -H h1:8,h2:8 {PERF}", Verdict.PASS),
    ("line-spread", f"mpirun -n 16 -H h1:8,h2:8 {PERF}", Verdict.PASS),
    ("line-spread", f"srun -N 3 -n 16 --mpi=pmix {PERF}", Verdict.WARN),
    ("line-spread", f"mpirun -n 8 -H h1:8 {PERF}", Verdict.SKIP),
    ("line-spread", f"mpirun -n 8 --map-by ppr:2:socket -H h1:8,h2:8 {PERF}", Verdict.SKIP),
    ("line-export", f"mpirun -x NCCL_DEBUG {PERF}", Verdict.UNKNOWN),
    ("line-export", f"mpirun -x NCCL_DEBUG=WARN -x PATH {PERF}", Verdict.PASS),
    ("line-export", f"srun --export=NCCL_DEBUG=WARN {PERF}", Verdict.WARN),
    ("line-export", f"srun --export=ALL,NCCL_DEBUG=WARN {PERF}", Verdict.PASS),
    ("line-export", f"srun --export=NONE {PERF}", Verdict.WARN),
    ("line-export", f"srun --export=ALL,NCCL_IB_HCA=mlx5_0,mlx5_1 {PERF}", Verdict.WARN),
    ("line-export", f"NCCL_DEBUG=WARN mpirun -n 2 -H h1,h2 {PERF}", Verdict.WARN),
    ("line-export", f"NCCL_DEBUG=WARN mpirun -x NCCL_DEBUG -n 2 -H h1,h2 {PERF}", Verdict.PASS),
    ("line-export", f"NCCL_DEBUG=WARN mpirun -n 2 {PERF}", Verdict.PASS),
    ("line-export", f"NCCL_DEBUG=WARN srun -N 2 {PERF}", Verdict.PASS),
    (
        "line-interfaces",
        f"mpirun --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 {PERF}",
        Verdict.PASS,
    ),
    ("line-interfaces", f"mpirun --mca btl_tcp_if_include eth0 {PERF}", Verdict.WARN),
    ("line-interfaces", f"mpirun --mca btl_tcp_if_include eth0 -n 8 -H h1:8 {PERF}", Verdict.PASS),
    ("line-interfaces", f"mpirun --mca btl_openib_if_include mlx5_0:1 {PERF}", Verdict.SKIP),
    (
        "line-interfaces",
        f"mpirun -H h1,h2 --mca btl_tcp_if_exclude docker0 --mca oob_tcp_if_exclude docker0 {PERF}",
        Verdict.FAIL,
    ),
    ("line-interfaces", f"mpirun --prtemca prte_if_exclude docker0,lo {PERF}", Verdict.FAIL),
    (
        "line-interfaces",
        f"mpirun --prtemca prte_if_include 10.1.0.0/16,10.2.0.0/16 {PERF}",
        Verdict.PASS,
    ),
    (
        "line-interfaces",
        (
            "mpirun --mca btl_tcp_if_include a --mca btl_tcp_if_exclude lo --mca"
            f" oob_tcp_if_include a {PERF}"
        ),
        Verdict.FAIL,
    ),
    ("line-interfaces", f"mpirun {PERF}", Verdict.SKIP),
    ("line-mpi-version", f"mpirun --mca orte_base_help_aggregate 0 {PERF}", Verdict.PASS),
    ("line-mpi-version", f"mpirun --mca plm_ssh_args '-p 22' {PERF}", Verdict.UNKNOWN),
    ("line-mpi-version", f"mpirun --prtemca prte_if_include eth0 {PERF}", Verdict.PASS),
    ("line-mpi-version", f"mpirun --mca pml ob1 {PERF}", Verdict.PASS),
    ("line-root", f"mpirun {PERF}", Verdict.SKIP),
    ("line-binding", f"mpirun -n 2 {PERF}", Verdict.WARN),
    ("line-binding", f"mpirun -n 2 --bind-to none {PERF}", Verdict.PASS),
    ("line-binding", f"mpirun -n 16 --bind-to core {PERF}", Verdict.WARN),
    (
        "line-binding",
        "mpirun -n 16 --bind-to core:overload-allowed -x NCCL_DEBUG=WARN python3 train.py",
        Verdict.WARN,
    ),
    ("line-binding", f"mpirun -n 16 --map-by ppr:8:node:PE=8 --bind-to core {PERF}", Verdict.PASS),
    ("line-binding", f"mpirun -n 2 --mca hwloc_base_binding_policy none {PERF}", Verdict.PASS),
    ("line-binding", "mpirun -n 2 python3 script.py", Verdict.SKIP),
    ("line-binding", f"mpirun -n 3 {PERF}", Verdict.PASS),
    ("line-binding", "mpirun -n 2 hostname", Verdict.SKIP),
    (
        "line-visible-devices",
        f"mpirun -n 16 -H h1:8,h2:8 -x CUDA_VISIBLE_DEVICES=0,1 {PERF}",
        Verdict.FAIL,
    ),
    (
        "line-visible-devices",
        f"mpirun -n 4 -H h1:2,h2:2 -x CUDA_VISIBLE_DEVICES=0,1 {PERF}",
        Verdict.PASS,
    ),
    ("line-per-node", f"mpirun -n 17 -npernode 8 -H h1,h2 {PERF}", Verdict.FAIL),
    ("line-per-node", f"mpirun -n 15 -npernode 8 -H h1,h2 {PERF}", Verdict.PASS),
    ("line-per-node", f"mpirun -N 8 --map-by :OVERSUBSCRIBE -n 16 -H h1,h2 {PERF}", Verdict.PASS),
    ("line-per-node", f"mpirun -N 8 --map-by numa -n 16 -H h1,h2 {PERF}", Verdict.WARN),
    (
        "line-per-node",
        (
            "srun -N 2 --ntasks-per-node=8 torchrun --nnodes 2 --nproc-per-node 8"
            " --rdzv-endpoint=h1:29500 t.py"
        ),
        Verdict.FAIL,
    ),
    (
        "line-per-node",
        (
            "srun -N 2 --ntasks-per-node=1 torchrun --nnodes 2 --nproc-per-node 8"
            " --rdzv-endpoint=h1:29500 t.py"
        ),
        Verdict.PASS,
    ),
    ("line-per-node", f"mpirun -n 16 --map-by ppr:8:node -H h1,h2 {PERF}", Verdict.PASS),
    ("line-per-node", f"mpirun -npernode 4 --map-by ppr:8:node -H h1,h2 {PERF}", Verdict.FAIL),
    ("line-per-node", f"srun -N2 -n15 --ntasks-per-node=8 {PERF}", Verdict.PASS),
    ("line-per-node", f"srun -N2 -n17 --ntasks-per-node=8 {PERF}", Verdict.WARN),
    ("line-per-node", f"srun -N 2 -n 16 --ntasks-per-node 8 {PERF}", Verdict.PASS),
    ("line-srun-mpi", f"srun -N 2 {PERF}", Verdict.UNKNOWN),
    ("line-srun-mpi", f"srun --mpi=pmi2 {PERF}", Verdict.UNKNOWN),
    ("line-srun-mpi", f"srun -n 1 {PERF}", Verdict.SKIP),
    ("line-srun-mpi", f"srun --mpi=none {PERF}", Verdict.FAIL),
    ("line-srun-mpi", f"srun --mpi pmix_v4 {PERF}", Verdict.PASS),
    ("line-srun-mpi", "srun -N 2 python train.py", Verdict.SKIP),
    ("line-torchrun", "torchrun --nnodes 2 --nproc_per_node 8 train.py", Verdict.FAIL),
    (
        "line-torchrun",
        "torchrun --nnodes=2 --rdzv_endpoint=localhost:29500 --rdzv-backend=c10d train.py",
        Verdict.FAIL,
    ),
    ("line-torchrun", "torchrun --nnodes=2 --standalone train.py", Verdict.FAIL),
    ("line-torchrun", "torchrun --nnodes=2 --master-addr=h1 train.py", Verdict.FAIL),
    ("line-torchrun", "torchrun --nnodes=2 --master-addr=h1 --node-rank=1 train.py", Verdict.PASS),
    (
        "line-torchrun",
        (
            "python -m torch.distributed.run --nnodes=1:4 --rdzv-backend=c10d"
            " --rdzv-endpoint=h1:29500 t.py"
        ),
        Verdict.PASS,
    ),
    ("line-torchrun", "torchrun --nproc-per-node=8 train.py", Verdict.SKIP),
    ("line-torchrun", "srun -N 2 torchrun --nnodes 2 --nproc-per-node 8 train.py", Verdict.FAIL),
    ("line-sizes", "all_reduce_perf -b 32M -e 32M", Verdict.WARN),
    ("line-sizes", "all_reduce_perf", Verdict.WARN),
    ("line-sizes", "all_reduce_perf -b8 -e1G", Verdict.WARN),
    ("line-sizes", "all_reduce_perf -b 8 -e 1M -f 2", Verdict.PASS),
    ("line-sizes", "all_reduce_perf --minbytes=8 --maxbytes=64M --stepfactor 2", Verdict.PASS),
    ("line-gpus", f"mpirun -n 16 -H h1:8,h2:8 {PERF} -g 8", Verdict.WARN),
    ("line-gpus", f"mpirun -n 16 -H h1:8,h2:8 {PERF}", Verdict.PASS),
    ("line-gpus", f"mpirun -n 4 -H h1:2,h2:2 {PERF} -g 4", Verdict.PASS),
    ("line-repeated", f"mpirun -x NCCL_ALGO=Ring -x NCCL_ALGO=Tree {PERF}", Verdict.WARN),
    ("line-repeated", f"mpirun -x NCCL_ALGO=Ring -x NCCL_ALGO=Ring {PERF}", Verdict.PASS),
    ("line-btl", f"mpirun --mca btl tcp {PERF}", Verdict.FAIL),
    ("line-btl", f"mpirun --mca btl ^openib {PERF}", Verdict.PASS),
    ("line-btl", f"mpirun --mca btl tcp,self {PERF}", Verdict.PASS),
    ("line-btl", f"mpirun --mca pml ucx --mca btl tcp {PERF}", Verdict.SKIP),
    ("line-dashes", "mpirun \u2014np 1 \u2014\u2014allow-run-as-root train", Verdict.FAIL),
    ("line-dashes", f"mpirun -np 1 {PERF}", Verdict.PASS),
]


ON_A_MACHINE = [
    ("line-root", f"mpirun {PERF}", machine(), Verdict.FAIL),
    ("line-root", f"mpirun --allow-run-as-root {PERF}", machine(), Verdict.PASS),
    ("line-export", f"mpirun -x NCCL_DEBUG {PERF}", machine(), Verdict.WARN),
    ("line-export", f"mpirun -x NCCL_DEBUG {PERF}", machine(NCCL_DEBUG="WARN"), Verdict.PASS),
    (
        "line-root",
        f"mpirun -x OMPI_ALLOW_RUN_AS_ROOT=1 -x OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 {PERF}",
        machine(),
        Verdict.FAIL,
    ),
    (
        "line-root",
        f"OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun {PERF}",
        machine(),
        Verdict.PASS,
    ),
    ("line-root", f"OMPI_ALLOW_RUN_AS_ROOT=1 mpirun {PERF}", machine(), Verdict.FAIL),
    (
        "line-export",
        f"NCCL_DEBUG=WARN mpirun -n 2 -H h1,h2 {PERF}",
        machine(SLURM_JOB_ID="7"),
        Verdict.PASS,
    ),
    ("line-slots", f"mpirun -n 16 -H h1,h2 {PERF}", machine(SLURM_JOB_ID="7"), Verdict.SKIP),
    (
        "line-binding",
        f"mpirun -n 2 --mca hwloc_base_binding_policy none {PERF}",
        machine("5.0.11"),
        Verdict.WARN,
    ),
    ("line-per-node", f"mpirun -N 8 --map-by numa {PERF}", machine("5.0.11"), Verdict.FAIL),
    (
        "line-per-node",
        f"mpirun -N 8 --map-by numa -n 16 -H h1:8,h2:8 {PERF}",
        machine("4.1.8"),
        Verdict.PASS,
    ),
    ("line-gpus", f"mpirun -n 4 -H gpu-1:4 {PERF} -g 4", machine(), Verdict.FAIL),
    ("line-gpus", f"mpirun -n 4 -H other:4 {PERF} -g 4", machine(), Verdict.PASS),
    ("line-gpus", f"mpirun -n 8 -H gpu-1:4,gpu-2:4 {PERF} -g 4", machine(), Verdict.WARN),
    ("line-gpus", "all_reduce_perf -g 4 -t 2", machine(), Verdict.PASS),
    (
        "line-interfaces",
        "mpirun --mca btl_tcp_if_include 10.1.0.0/16 --mca oob_tcp_if_include 10.1.0.0/16 a",
        machine(),
        Verdict.PASS,
    ),
    (
        "line-interfaces",
        f"mpirun --mca btl_tcp_if_include bond9 --prtemca prte_if_include bond9 {PERF}",
        machine(),
        Verdict.FAIL,
    ),
    (
        "line-interfaces",
        f"mpirun --mca btl_tcp_if_include bond9 --prtemca prte_if_include eth0 -H h1,h2 {PERF}",
        machine("5.0.8", ["eth0"]),
        Verdict.PASS,
    ),
    (
        "line-interfaces",
        f"mpirun --mca oob_tcp_if_exclude docker0,lo {PERF}",
        machine("5.0.11"),
        Verdict.FAIL,
    ),
    (
        "line-interfaces",
        f"mpirun --mca oob_tcp_if_exclude docker0,lo {PERF}",
        machine("4.1.8"),
        Verdict.PASS,
    ),
    (
        "line-mpi-version",
        f"mpirun --prtemca prte_if_include eth0 {PERF}",
        machine("4.1.8"),
        Verdict.FAIL,
    ),
    (
        "line-mpi-version",
        f"mpirun --pmixmca ptl_tcp_if_include eth0 {PERF}",
        machine("4.1.8"),
        Verdict.FAIL,
    ),
    (
        "line-mpi-version",
        f"mpirun --mca plm_ssh_args '-p 22' {PERF}",
        machine("4.1.8"),
        Verdict.WARN,
    ),
    (
        "line-mpi-version",
        f"mpirun --prtemca plm_rsh_args '-p 22' {PERF}",
        machine("5.0.8"),
        Verdict.WARN,
    ),
    (
        "line-mpi-version",
        f"mpirun --mca plm_rsh_args '-p 22' {PERF}",
        machine("4.1.8"),
        Verdict.PASS,
    ),
    (
        "line-mpi-version",
        f"mpirun --mca plm_rsh_args '-p 22' {PERF}",
        machine("5.0.8"),
        Verdict.PASS,
    ),
    (
        "line-repeated",
        f"mpirun --mca btl tcp,self --mca btl sm,self {PERF}",
        machine("5.0.8"),
        Verdict.FAIL,
    ),
    (
        "line-repeated",
        f"mpirun --mca btl tcp,self --mca btl tcp,self {PERF}",
        machine("5.0.8"),
        Verdict.PASS,
    ),
    (
        "line-repeated",
        f"mpirun --mca btl tcp,self --mca btl tcp,self {PERF}",
        machine("4.1.8"),
        Verdict.FAIL,
    ),
    ("line-srun-mpi", f"srun --mpi=pmi2 {PERF}", machine(), Verdict.WARN),
    ("line-srun-mpi", f"srun {PERF}", machine(SLURM_MPI_TYPE="pmix"), Verdict.PASS),
]


# What else is said of them, which the golden file has.
MORE_ALONE = [
    ("line-sizes", "all_reduce_perf -b 64M -e 64M"),
    ("line-sizes", "all_reduce_perf -b 67108863 -e 67108863"),
    ("line-sizes", "all_reduce_perf -b 1M -e 201M"),
    ("line-sizes", "all_reduce_perf -b 1M -e 202M"),
    ("line-sizes", "all_reduce_perf -b 1M -e 202M -i 1048576"),
    ("line-sizes", "all_reduce_perf -b 16M -e"),
    ("line-sizes", "all_reduce_perf -e 32M --unknown 5 -b 33554433"),
    ("line-sizes", "hostname"),
    ("line-gpus", "all_reduce_perf -g 16"),
    ("line-gpus", "all_reduce_perf 2g 17"),
    ("line-gpus", "mpirun -n 3 -N 3 all_reduce_perf -g 6"),
    ("line-gpus", "all_reduce_perf -g 17"),
    ("line-gpus", "all_reduce_perf -g 3 -t 4"),
    ("line-gpus", f"mpirun {PERF}"),
    ("line-dashes", "mpirun \u2014np 1 \u2013a \u2010b \u2011c \u2012d a\u201cb \u2212e"),
    ("line-dashes", "mpirun -np 1 a\u2014b"),
    ("line-dashes", "mpirun -np 1 \u2018a\u2019"),
    ("line-root", f"srun {PERF}"),
    ("line-repeated", f"mpirun -x NCCL_ALGO=Ring -x NCCL_PROTO=LL {PERF}"),
    ("line-repeated", f"mpirun --mca btl tcp,self --mca btl tcp,self {PERF}"),
    ("line-repeated", f"mpirun {PERF}"),
    ("line-repeated", f"mpirun -ppn 8 -genv NCCL_ALGO Ring -genv NCCL_ALGO Tree {PERF}"),
    ("line-srun-mpi", f"srun --mpi=none --ntasks=2 {PERF}"),
    ("line-srun-mpi", f"srun -n 2 --mpi=openmpi {PERF}"),
    ("line-srun-mpi", f"mpirun -n 2 {PERF}"),
    ("line-visible-devices", f"mpirun -n 2 -H h1:2 -x CUDA_VISIBLE_DEVICES=0,1,2,3 {PERF} -g 2"),
    ("line-visible-devices", f"mpirun -n 2 -H h1:2 -x CUDA_VISIBLE_DEVICES=0,1,2 {PERF} -g 2"),
    ("line-visible-devices", f"mpirun -x CUDA_VISIBLE_DEVICES=0 {PERF}"),
    ("line-visible-devices", f"mpirun -x CUDA_VISIBLE_DEVICES=0, {PERF} -g 2"),
    ("line-visible-devices", f"mpirun -n 2 -x CUDA_VISIBLE_DEVICES=$DEVICES {PERF}"),
    ("line-visible-devices", "mpirun -n 2 -x CUDA_VISIBLE_DEVICES=0 python3 train.py"),
    ("line-visible-devices", f"mpirun -n 2 {PERF}"),
    (
        "line-mpi-version",
        f"mpirun --mca plm_ssh_args '-p 22' --mca orte_keep_fqdn_hostnames 1 {PERF}",
    ),
    (
        "line-mpi-version",
        f"mpirun --prtemca prte_if_include eth0 --mca plm_ssh_args '-p 22' {PERF}",
    ),
    (
        "line-mpi-version",
        f"mpirun --prtemca prte_if_include eth0 --mca oob_tcp_if_include eth0 {PERF}",
    ),
    ("line-mpi-version", f"srun -n 2 {PERF}"),
    ("line-mpi-version", f"mpirun {PERF}"),
    ("line-per-node", f"mpirun -n 16 -npernode 8 {PERF}"),
    ("line-per-node", f"mpirun -npernode 8 -H h1:h2 -n 17 {PERF}"),
    ("line-per-node", f"mpirun -n 17 -npernode 8 -H h1:8,h2:8,h3:1 {PERF}"),
    ("line-per-node", f"mpirun -npernode 8 --map-by ppr:8:node -n 16 -H h1,h2 {PERF}"),
    ("line-per-node", f"mpirun -pernode --map-by ppr:2:node -H h1,h2 {PERF}"),
    ("line-per-node", f"torchrun --nproc-per-node 8 {PERF}"),
    ("line-spread", f"mpirun -n 7 -H h1:8,h2:8 {PERF}"),
    ("line-spread", f"mpirun -n 1 -H h1:8,h2:8 {PERF}"),
    ("line-spread", f"mpirun -n 17 -H h1:8,h2:8 {PERF}"),
    ("line-spread", f"srun -N 3 -n 2 --mpi=pmix {PERF}"),
    ("line-slots", f"mpirun -n 15 -H h1:4,h2:4 {PERF}"),
    ("line-slots", f"mpirun -n 3 -H h1:2 {PERF}"),
    ("line-binding", "mpirun -n 2 -x NCCL_DEBUG=WARN python3 train.py"),
    (
        "line-binding",
        (
            "mpirun -n 2 --mca rmaps_default_binding_policy none --prtemca"
            f" hwloc_default_binding_policy none {PERF}"
        ),
    ),
    ("line-binding", f"srun -n 2 {PERF}"),
    ("line-btl", f"srun -n 2 {PERF}"),
    ("line-btl", f"mpirun {PERF}"),
    ("line-export", f"NCCL_DEBUG=WARN OMPI_MCA_pml=ob1 mpirun -n 2 -H h1,h2 {PERF}"),
    ("line-export", f"OMPI_MCA_pml=ob1 mpirun -n 2 -H h1,h2 {PERF}"),
    ("line-torchrun", "torchrun --nproc-per-node=8 --nnodes=$N --node-rank=0 train.py"),
    (
        "line-torchrun",
        "torchrun --nproc-per-node=8 --nnodes=2 --node-rank=0 --master-addr=127.0.0.1 train.py",
    ),
    ("line-torchrun", "torchrun --rdzv-backend=c10d train.py"),
    ("line-torchrun", "mpirun -n 2 train"),
    (
        "line-interfaces",
        (
            "mpirun -n 2 -H h1 --mca btl_tcp_if_exclude docker0 --mca oob_tcp_if_exclude docker0"
            f" {PERF}"
        ),
    ),
    (
        "line-interfaces",
        f"mpirun -n 2 --mca btl_tcp_if_exclude docker0 --mca oob_tcp_if_exclude docker0 {PERF}",
    ),
]
MORE_ON_A_MACHINE = [
    ("line-root", f"mpirun {PERF}", machine(euid="1000")),
    ("line-root", f"srun {PERF}", machine()),
    ("line-gpus", "all_reduce_perf -g 9", machine()),
    ("line-gpus", "all_reduce_perf -g 8", machine()),
    ("line-gpus", f"mpirun -n 2 -H gpu-1:2 {PERF} -g 8", machine()),
    ("line-gpus", f"mpirun -n 2 -H gpu-1:2 {PERF} -g 8 -t 2", machine()),
    ("line-gpus", f"mpirun -n 4 -H gpu-1:4 {PERF} -g 3", machine()),
    ("line-repeated", f"mpirun --mca btl tcp,self --mca btl tcp,self {PERF}", machine("5.0.0")),
    ("line-repeated", f"mpirun -x A=1 -x A=1 {PERF}", machine("4.1.8")),
    ("line-srun-mpi", f"srun --mpi=pmi2 {PERF}", machine("4.1.8")),
    ("line-srun-mpi", f"srun {PERF}", machine(SLURM_MPI_TYPE="none")),
    ("line-binding", f"mpirun -n 2 --mca hwloc_base_binding_policy none {PERF}", machine("4.1.8")),
    (
        "line-binding",
        f"mpirun -n 2 --mca rmaps_default_binding_policy none {PERF}",
        machine("5.0.8"),
    ),
    (
        "line-binding",
        f"mpirun -n 2 --prtemca hwloc_default_binding_policy none {PERF}",
        machine("5.0.8"),
    ),
    ("line-per-node", f"mpirun -npernode 8 --map-by node -n 16 -H h1,h2 {PERF}", machine("5.0.8")),
    (
        "line-per-node",
        f"mpirun -npernode 8 --map-by ppr:4:node -n 16 -H h1,h2 {PERF}",
        machine("4.1.8"),
    ),
    (
        "line-per-node",
        f"mpirun -npernode 8 --map-by ppr:8:node -n 16 -H h1,h2 {PERF}",
        machine("4.1.8"),
    ),
    (
        "line-root",
        f"OMPI_ALLOW_RUN_AS_ROOT=1 mpirun {PERF}",
        machine(OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1"),
    ),
    (
        "line-interfaces",
        f"mpirun --mca btl_tcp_if_include eth0 -H h1,h2 {PERF}",
        machine("4.1.8", ["eth0"]),
    ),
    (
        "line-interfaces",
        f"mpirun --mca btl_tcp_if_include eth0 -H h1,h2 {PERF}",
        machine("5.0.8", ["eth0"]),
    ),
    (
        "line-interfaces",
        f"mpirun --mca btl_tcp_if_exclude lo,docker0 -H h1,h2 {PERF}",
        machine("4.1.8", ["eth0"]),
    ),
    (
        "line-interfaces",
        f"mpirun --mca btl_tcp_if_exclude docker0 -n 2 {PERF}",
        machine("4.1.8", ["eth0"]),
    ),
]
