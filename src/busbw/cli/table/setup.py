"""Rows of the table of commands: set up a lab, a shell or a cluster."""

from busbw.cli.table.row import SET_UP, Row

ROWS = (
    Row(
        "lab",
        SET_UP,
        "Emulate several hosts on this machine.",
        (
            ("two hosts with 1 Gbit/s between them", "busbw lab up --hosts 2 --rate 1Gbit/s"),
            (
                "measure over them, from the first",
                "busbw lab exec h1 -- busbw run all_reduce --hosts h1:1,h2:1 -e 16M",
            ),
            ("remove them", "busbw lab down"),
        ),
        {
            "up": (
                ("two hosts", "busbw lab up"),
                (
                    "four hosts on a slow and lossy network",
                    "busbw lab up --hosts 4 --rate 25Gbit/s --delay 50us --loss 0.01%",
                ),
                ("a second lab", "busbw lab up --name second"),
            ),
            "exec": (
                ("a command on one host", "busbw lab exec h1 -- ip address"),
                ("on every host", "busbw lab exec --all -- hostname"),
                (
                    "a run from the first host over ssh",
                    "busbw lab exec h1 -- busbw run all_reduce --hosts h1:1,h2:1 -e 16M",
                ),
            ),
            "status": (
                ("all labs", "busbw lab status"),
                ("one lab", "busbw lab status --name second"),
                ("as JSON", "busbw lab status --format json"),
            ),
            "down": (
                ("the lab of this machine", "busbw lab down"),
                ("another lab", "busbw lab down --name two"),
                ("what is left of a lab whose up was killed", "busbw lab down --name second"),
            ),
        },
    ),
    Row(
        "deploy",
        SET_UP,
        "Copy busbw to other hosts as a single file.",
        (
            ("to three hosts", "busbw deploy --hosts h1,h2,h3"),
            (
                "a file of a release, to a path that each host has",
                "busbw deploy --hosts h1,h2,h3 --file busbw.pyz --to /opt/busbw.pyz",
            ),
            (
                "hosts with another Python",
                "busbw deploy --hostfile hosts.txt --python /opt/python/bin/python3.12",
            ),
        ),
    ),
    Row(
        "completion",
        SET_UP,
        "Print the script that makes bash, zsh or fish complete busbw's command lines.",
        (
            ("print the script for zsh", "busbw completion zsh"),
            (
                "bash, in every shell",
                "busbw completion bash > ~/.local/share/bash-completion/completions/busbw",
            ),
            (
                "fish, in every shell",
                "busbw completion fish > ~/.config/fish/completions/busbw.fish",
            ),
        ),
        tables=False,
    ),
    Row(
        "manifest",
        SET_UP,
        "Print a job for Kubernetes or Slurm, or files that check and monitor nodes.",
        (
            (
                "a Slurm job on two nodes",
                "busbw manifest slurm --hosts 2 --gpus-per-host 8 > job.sh",
            ),
            (
                "an MPIJob for Kubernetes",
                "busbw manifest mpijob --image registry/busbw:cuda13 | kubectl apply -f -",
            ),
            ("a prolog that drains faulty nodes", "busbw manifest prolog > busbw-prolog.sh"),
        ),
        {
            "daemonset": (
                (
                    "check and watch each GPU node",
                    "busbw manifest daemonset --image registry/busbw:cuda13 | kubectl apply -f -",
                ),
                (
                    "in a namespace, checked every hour",
                    "busbw manifest daemonset --image registry/busbw --namespace gpu --every 3600",
                ),
                (
                    "only the checks of the network",
                    "busbw manifest daemonset --image registry/busbw --check '--layer NIC'",
                ),
            ),
            "grafana-dashboard": (
                ("a file to import", "busbw manifest grafana-dashboard > busbw.json"),
                (
                    "a file that Grafana loads at its start",
                    "busbw manifest grafana-dashboard > /var/lib/grafana/dashboards/busbw.json",
                ),
                (
                    "list its queries",
                    "busbw manifest grafana-dashboard | jq -r '.panels[].targets[]?.expr'",
                ),
            ),
            "mpijob": (
                (
                    "busbw run on two hosts of 8 GPUs",
                    "busbw manifest mpijob --image registry/busbw:cuda13 | kubectl apply -f -",
                ),
                (
                    "with RDMA",
                    "busbw manifest mpijob --image registry/busbw:cuda13 --rdma rdma/hca=1",
                ),
                (
                    "another command, started once per rank",
                    "busbw manifest mpijob --image registry/busbw -- all_reduce_perf -b 8 -e 8G",
                ),
            ),
            "preflight": (
                (
                    "a patch for the pods of a job",
                    "busbw manifest preflight --image registry/busbw > preflight.json",
                ),
                (
                    "only some checks",
                    "busbw manifest preflight --image registry/busbw --check '--layer GPU'",
                ),
                (
                    "also a run that must reach a busbw",
                    "busbw manifest preflight --image registry/busbw --least 'all_reduce -e 1G'",
                ),
            ),
            "prometheus-rules": (
                (
                    "a file for rule_files of prometheus.yml",
                    "busbw manifest prometheus-rules > busbw-rules.yml",
                ),
                (
                    "check them",
                    "busbw manifest prometheus-rules > r.yml && promtool check rules r.yml",
                ),
                (
                    "for hosts that are checked every hour",
                    "busbw manifest prometheus-rules --every 3600 > busbw-rules.yml",
                ),
            ),
            "prolog": (
                ("drain nodes that fail a check", "busbw manifest prolog > busbw-prolog.sh"),
                (
                    "only checks of GPUs and ports",
                    "busbw manifest prolog --check '--layer GPU --layer NIC'",
                ),
                (
                    "also a run that must reach a busbw",
                    "busbw manifest prolog --least 'all_reduce -b 1G -e 1G --min-percent 80%'",
                ),
            ),
            "slurm": (
                ("busbw run on two nodes of 8 GPUs", "busbw manifest slurm > job.sh"),
                (
                    "in a partition, for at most an hour",
                    "busbw manifest slurm --hosts 16 --partition gpu --time 01:00:00",
                ),
                (
                    "another command, started once per rank",
                    "busbw manifest slurm --hosts 2 -- all_reduce_perf -b 8 -e 8G",
                ),
            ),
            "systemd": (
                ("print the units of this host", "busbw manifest systemd"),
                ("install them", "busbw manifest systemd --into /etc/systemd/system"),
                (
                    "serve metrics to other hosts",
                    "busbw manifest systemd --listen 0.0.0.0:28729 --token-file /etc/busbw/token",
                ),
            ),
        },
        tables=False,
    ),
)
