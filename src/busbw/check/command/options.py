"""Launcher options that take a value, needed to find the program after them."""

LAUNCHERS = {
    **dict.fromkeys(
        ("mpirun", "mpiexec", "orterun", "prterun", "mpirun.openmpi", "mpiexec.openmpi"), "mpirun"
    ),
    **dict.fromkeys(("mpirun.mpich", "mpiexec.mpich", "mpiexec.hydra"), "hydra"),
    "srun": "srun",
    **dict.fromkeys(("torchrun", "torch.distributed.run", "torch.distributed.launch"), "torchrun"),
}
# Options of MPICH's and Intel MPI's mpirun that Open MPI does not have.
_HYDRA_ALONE = (
    "genv genvall genvlist genvnone envall envlist envnone hosts ppn perhost f iface bootstrap rmk"
    " launcher"
)
HYDRA = frozenset(_HYDRA_ALONE.split())
_OPEN_MPI_ONE = (
    "n np c N npernode npersocket H host hostfile machinefile default-hostfile x am tune wdir wd "
    "path prefix map-by rank-by bind-to cpu-set cpu-list output-filename output timeout "
    "report-uri report-pid rankfile rf personality preload-files slot-list stdin app max-restarts "
    "dvm-uri dvm display runtime-options launch-agent tmpdir xterm cpus-per-proc cpus-per-rank "
    "ompi-server"
)
_HYDRA_ONE = (
    "n np ppn perhost hosts host hostlist f machinefile iface genvlist envlist bootstrap launcher "
    "launcher-exec rmk wdir bind-to map-by demux outfile-pattern errfile-pattern configfile"
)
_SRUN_ONE = (
    "n N p A t w x c G J o e i m C d q D r M B F L S T W b accel-bind account acctg-freq bb bbf "
    "begin chdir cluster cluster-constraint clusters comment constraint container container-env "
    "container-image container-mounts container-name container-save container-workdir "
    "core-spec cores-per-socket cpu-bind cpu-freq cpus-per-gpu cpus-per-task deadline delay-boot "
    "dependency distribution epilog error exclude export extra-node-info gid gpu-bind gpu-freq "
    "gpus gpus-per-node gpus-per-socket gpus-per-task gres gres-flags het-group hint input "
    "job-name jobid licenses mail-type mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu "
    "mincpus mpi msg-timeout network nodefile nodelist nodes ntasks ntasks-per-core "
    "ntasks-per-gpu ntasks-per-node ntasks-per-socket open-mode output partition power prefer "
    "priority profile prolog qos relative reservation signal slurmd-debug sockets-per-node "
    "switches task-epilog task-prolog thread-spec threads threads-per-core time time-min tmp "
    "tres-bind tres-per-task uid wait wckey"
)
_TORCHRUN_ONE = (
    "nnodes nproc-per-node rdzv-backend rdzv-endpoint rdzv-id rdzv-conf max-restarts "
    "monitor-interval start-method role log-dir redirects tee r t node-rank master-addr "
    "master-port local-addr logs-specs log-line-prefix-template local-ranks-filter "
    "event-log-handler duplicate-stdout-filters duplicate-stderr-filters numa-binding "
    "signals-to-handle"
)
OPTIONS_WITH_ONE_VALUE = {
    "mpirun": frozenset(_OPEN_MPI_ONE.split()),
    "hydra": frozenset(_HYDRA_ONE.split()),
    "srun": frozenset(_SRUN_ONE.split()),
    "torchrun": frozenset(_TORCHRUN_ONE.split()),
}
# Options that take two values.
OPTIONS_WITH_TWO_VALUES = {
    "mpirun": frozenset(
        ["mca", "gmca", "omca", "gomca", "prtemca", "gprtemca", "pmixmca", "gpmixmca"]
    ),
    "hydra": frozenset(["genv", "env"]),
    "srun": frozenset[str](),
    "torchrun": frozenset[str](),
}
# Options without a value. Single letters that programs share, like -v and -u, are not here.
_FLAGS = {
    "mpirun": (
        "allow-run-as-root tag-output timestamp-output report-bindings display-map"
        " display-allocation oversubscribe nooversubscribe pernode bynode byslot bycore bysocket"
        " bind-to-none bind-to-core use-hwthread-cpus nolocal merge-stderr-to-stdout"
        " enable-recovery noprefix"
    ),
    "hydra": "genvall genvnone envall envnone print-rank-map prepend-rank",
    "srun": (
        "l label unbuffered overlap kill-on-bad-exit exact no-kill pty contiguous overcommit"
        " container-mount-home container-remap-root container-writable container-readonly"
        " container-entrypoint no-container-mount-home no-container-remap-root"
        " no-container-entrypoint"
    ),
    "torchrun": "standalone",
}
KNOWN_OPTIONS = {
    launcher: OPTIONS_WITH_ONE_VALUE[launcher]
    | OPTIONS_WITH_TWO_VALUES[launcher]
    | frozenset(flags.split())
    for launcher, flags in _FLAGS.items()
}
