"""Rows of the table of commands: check machines and jobs, and watch links."""

from busbw.cli.table.row import CHECK, Row

ROWS = (
    Row(
        "check",
        CHECK,
        "Check that a machine, or every node of a cluster, is set up right.",
        (
            ("this machine", "busbw check"),
            (
                "several hosts over ssh, and what differs between them",
                "busbw check --hosts 'gpu[001-064]'",
            ),
            ("also save all that was read", "busbw check --save h5.jsonl"),
            ("check saved machines", "busbw check --from '*.jsonl'"),
        ),
        {
            "engines": (
                ("what can run here", "busbw check engines"),
                ("use one", "busbw run all_reduce --engine mpi -n 4 -e 1M"),
                (
                    "simulate ranks, without MPI or GPUs",
                    "busbw run all_reduce --engine sim -n 8 --sim alpha_us=5,gbps=370",
                ),
            ),
            "explain": (
                ("the page of a check", "busbw check explain BW070"),
                ("by its name", "busbw check explain gpu-persistence"),
                ("all ids and names", "busbw check --list"),
            ),
            "command": (
                (
                    "find faults in a command line without running it",
                    "busbw check command -- mpirun -np 16 -H h1:8,h2:8 all_reduce_perf -g 1",
                ),
                ("a batch script", "busbw check command job.sh"),
                (
                    "a line meant for other hosts, as JSON",
                    "busbw check command --no-machine --format json -- torchrun train.py",
                ),
            ),
            "config": (
                ("the settings in force", "busbw check config"),
                ("those of another file", "busbw check config --config cluster.toml"),
                ("for a program", "busbw check config --format json"),
            ),
            "job": (
                ("the job whose rank runs here", "busbw check job"),
                (
                    "a job on two hosts, with dumps of PyTorch's Flight Recorder",
                    "busbw check job --hosts h1,h2 --flight-recorder dumps/",
                ),
                (
                    "NCCL RAS on another port, samples 30 s apart",
                    "busbw check job --ras h1:28100 --seconds 30",
                ),
            ),
            "launch": (
                (
                    "find the first stage that fails on two hosts",
                    "busbw check launch --hosts h1:8,h2:8",
                ),
                (
                    "over the interfaces of one subnet",
                    "busbw check launch --hosts h1:8,h2:8 --ifname 10.1.0.0/16",
                ),
                (
                    "hosts of a file, as ranks on CPUs",
                    "busbw check launch --hostfile hosts.txt --engine mpi",
                ),
            ),
            "trend": (
                ("two snapshots of one host", "busbw check trend monday.jsonl friday.jsonl"),
                ("all snapshots of a cluster", "busbw check trend /shared/snapshots/*.jsonl"),
                ("the same as JSON", "busbw check trend --format json /shared/snapshots/*.jsonl"),
            ),
        },
    ),
    Row(
        "watch",
        CHECK,
        "Show what the links of this host carry, and what their counters say.",
        (
            ("all ports, NVLinks and PCIe slots, every second", "busbw watch"),
            (
                "two ports for a minute, ten times a second",
                "busbw watch -p mlx5_0 -p eth3 --interval 100ms --seconds 60",
            ),
            ("serve metrics to Prometheus", "busbw watch --listen"),
        ),
    ),
)
