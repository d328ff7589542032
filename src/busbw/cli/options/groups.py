"""The groups in which the help of commands with many options lists them, what matters first.

A group is a heading, and the names of the parameters under it. Parameters that every command has,
such as -v, are in none, and stand at the end. Manual pages and the reference show the same groups.
"""

Group = tuple[str, tuple[str, ...]]
Groups = tuple[Group, ...]

MOST_USED = "Most used"  # the heading of the first group, which -h shows alone
_SLURM: Group = ("Slurm", ("slurm", "nodes", "ntasks_per_node", "gpus_per_node", "slurm_args"))
_GPT = ("params", "recompute", "gpu_memory")

RUN: Groups = (
    (
        MOST_USED,
        (
            "ranks",
            "hosts",
            "min_bytes",
            "max_bytes",
            "datatype",
            "op",
            "engine",
            "json_name",
            "format_name",
            "min_percent",
        ),
    ),
    ("Ranks and hosts", ("hostfile", "ifname", "net", "nccl", "wheels", "dry_run", "env_format")),
    _SLURM,
    (
        "What to measure",
        ("step_factor", "step_bytes", "root", "counts", "unalign", "simulation", "inject"),
    ),
    (
        "How precisely",
        (
            "timing",
            "precision",
            "confidence",
            "max_time",
            "tail",
            "iters",
            "warmup_iters",
            "run_cycles",
            "repeats",
        ),
    ),
    ("Verification", ("check", "soak_s")),
    (
        "Output",
        (
            "ran",
            "brief",
            "fail_on",
            "force",
            "html_name",
            "history",
            "ideal",
            "min_busbw",
            "share_of",
            "reference_file",
            "watch",
            "memory",
            "report_timestamps",
        ),
    ),
    ("Limits", ("limit_s", "launch_limit_s", "timeout")),
    (
        "NCCL's calls, as in nccl-tests",
        ("agg_iters", "local_register", "cta_policy", "stream_null"),
    ),
    (
        "Only with --timing classic, as in nccl-tests",
        ("average", "blocking", "cudagraph", "report_cputime", "per_iter_timing", "per_iter_skip"),
    ),
)
MOE: Groups = (
    (MOST_USED, ("ranks", "hosts", "tokens", "experts", "top_k", "hidden", "json_name")),
    ("Ranks and hosts", ("hostfile", "ifname", "net", "dry_run")),
    _SLURM,
    ("What to measure", ("backends", "routing", "seed", "datatype", "max_time")),
    ("What the links allow, without a measurement", ("system", "nics")),
    ("Output", ("format_name", "force", "history")),
    ("Limits", ("limit_s", "launch_limit_s")),
)
LINK: Groups = (
    (MOST_USED, ("hosts", "method", "seconds", "suspect", "json_name", "html")),
    ("Hosts and networks", ("hostfile", "rails", "line_rate")),
    ("How to measure", ("both", "streams", "size", "rounds")),
    ("RDMA, with --test perftest", ("gpu", "gid_index")),
    ("Search for slow hosts, with --suspect", ("collective", "engine")),
    ("Output", ("format_name", "fail_on", "force")),
    ("Limits", ("limit_s", "launch_limit_s")),
)
TRAIN: Groups = (
    (MOST_USED, ("compare", "accel", "ranks", "hosts", "batch_size", "json_name")),
    ("Ranks and hosts", ("hostfile", "ifname", "net", "dry_run")),
    _SLURM,
    ("What to train", ("sequence", "precision", "bucket_mb")),
    ("A gpt of any size", (*_GPT, "offload", "largest")),
    ("How precisely", ("rounds", "iters", "steps", "warmup")),
    ("Output", ("format_name", "force", "history")),
    ("Limits", ("limit_s", "launch_limit_s")),
)
PLAN: Groups = (
    (
        MOST_USED,
        ("ranks", "hosts", "compare", "transports", "network", "pattern_file", "json_name"),
    ),
    (
        "A training of yours, as -- COMMAND",
        ("losses", "tolerance", "capture_steps", "capture_limit_s", "folder"),
    ),
    ("Ranks and hosts", ("hostfile", "ifname")),
    _SLURM,
    ("A model of busbw's", ("batch_size", "sequence", "precision", "bucket_mb")),
    ("How precisely", ("target", "check", "rounds", "iters", "steps", "warmup")),
    (
        "A gpt of any size, with --memory-plan",
        ("memory", *_GPT, "host_memory", "tflops", "pcie", "adam_rate", "system", "max_norm"),
    ),
    ("Output", ("format_name", "force", "history")),
    ("Limits", ("limit_s", "launch_limit_s")),
)
TUNE: Groups = (
    (MOST_USED, ("ranks", "hosts", "min_bytes", "max_bytes", "file", "checked")),
    ("Ranks and hosts", ("hostfile", "ifname", "net", "engine", "simulation")),
    _SLURM,
    ("What to measure", ("step_factor", "step_bytes", "datatype", "op")),
    ("Search", ("seconds", "rounds", "settings", "variables")),
    ("Output", ("format_name", "force")),
    ("Limits", ("limit_s", "launch_limit_s")),
)
BACKENDS: Groups = (
    (MOST_USED, ("ranks", "hosts", "names", "min_bytes", "max_bytes", "json_name")),
    ("Ranks and hosts", ("hostfile", "rails", "ifname", "net", "dry_run")),
    _SLURM,
    ("What to measure", ("datatype", "step_factor", "in_graph", "copies", "blocks", "max_time_s")),
    ("Output", ("format_name", "force", "history")),
    ("Limits", ("limit_s", "launch_limit_s")),
)
OVERLAP: Groups = (
    (MOST_USED, ("ranks", "hosts", "load", "ctas", "min_bytes", "max_bytes", "json_name")),
    ("Ranks and hosts", ("hostfile", "ifname", "net", "dry_run")),
    _SLURM,
    ("What to measure", ("datatype", "step_factor", "rounds")),
    ("Output", ("format_name", "force", "history")),
    ("Limits", ("limit_s", "launch_limit_s")),
)
CHECK: Groups = (
    (MOST_USED, ("hosts", "only", "skip", "layer", "files", "expect", "everything")),
    ("Machines", ("hostfile", "differences", "save", "force")),
    ("Readings", ("load_s", "watch_s", "since")),
    ("What a node should have", ("learn", "accept_faults")),
    ("Output", ("format_name", "output", "brief", "fail_on", "listed")),
    ("Limits", ("limit_s",)),
)

PREDICT: Groups = (
    (MOST_USED, ("system", "nics", "nodes", "smallest", "largest", "pattern_file")),
    ("System", ("topo", "fabric", "cpu", "gpus", "rails_lost")),
    ("The network above the leaf switches", ("oversubscription", "hosts_per_leaf", "uplinks")),
    ("What to predict", ("factor", "datatype", "counts", "scale", "together")),
    ("NCCL's choice, and corrections", ("nccl", "algo", "proto", "sharp", "ctas", "results")),
    ("Output", ("format_name",)),
)
REPLAY: Groups = (
    (MOST_USED, ("ranks", "hosts", "engine", "repeats", "json_name")),
    ("Ranks and hosts", ("hostfile", "ifname", "net", "dry_run")),
    _SLURM,
    ("What to replay", ("scale", "choice")),
    ("Output", ("format_name", "rows", "ran", "force", "history")),
    ("Limits", ("limit_s", "launch_limit_s")),
)

HOROVODRUN: Groups = (
    ("Ranks and hosts", ("ranks", "host_list", "hostfile", "ifname", "mpi_args", "dry_run")),
    (
        "Elastic jobs",
        (
            "min_np",
            "max_np",
            "script",
            "slots_per_host",
            "elastic_timeout",
            "reset_limit",
            "blacklist_cooldown_range",
        ),
    ),
    (
        "Horovod's variables",
        (
            "timeline_filename",
            "timeline_mark_cycles",
            "fusion_threshold_mb",
            "cycle_time_ms",
            "cache_capacity",
            "no_stall_check",
            "stall_check_warning_time_seconds",
            "stall_check_shutdown_time_seconds",
            "gloo_timeout_seconds",
            "hierarchical_allreduce",
            "torus_allreduce",
        ),
    ),
    ("Build", ("check_build", "gloo", "mpi")),
)
