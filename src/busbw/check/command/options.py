"""Options of launchers that take a value, so that the program can be found behind them."""

OPEN_MPI = ("mpirun", "mpiexec", "orterun", "prterun")
TORCHRUN = ("torchrun", "torch.distributed.run", "torch.distributed.launch")
# Values that follow each option, where it is not one.
TWO = frozenset({"mca", "gmca", "omca", "gomca", "prtemca", "gprtemca", "pmixmca", "gpmixmca"})
_OPEN_MPI_ONE = (
    "n np c N npernode ppn npersocket H host hostfile machinefile default-hostfile x am tune wdir wd path prefix map-by rank-by bind-to "
    "cpu-set cpu-list output-filename output timeout report-uri report-pid rankfile rf personality preload-files slot-list stdin app "
    "max-restarts dvm-uri dvm display runtime-options launch-agent tmpdir xterm cpus-per-proc cpus-per-rank ompi-server"
)
_SRUN_ONE = (
    "n N p A t w x c G J o e i m C d q D r M ntasks nodes partition account time nodelist exclude cpus-per-task gpus job-name output error "
    "input distribution constraint dependency qos chdir relative cluster clusters ntasks-per-node ntasks-per-gpu ntasks-per-socket "
    "gpus-per-node gpus-per-task gres mem mem-per-gpu mem-per-cpu mpi export cpu-bind gpu-bind mem-bind container-image container-mounts "
    "container-name container-workdir container-env jobid het-group reservation network nice kill-on-bad-exit wait"
)
_TORCHRUN_ONE = (
    "nnodes nproc-per-node rdzv-backend rdzv-endpoint rdzv-id rdzv-conf max-restarts monitor-interval start-method role log-dir redirects "
    "tee node-rank master-addr master-port local-addr logs-specs duplicate-stdout-filters"
)
ONE = {"mpirun": frozenset(_OPEN_MPI_ONE.split()), "srun": frozenset(_SRUN_ONE.split()), "torchrun": frozenset(_TORCHRUN_ONE.split())}
