"""Further command lines: values at the limits, and machines that start them."""

from command_lines import PERF, machine

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
