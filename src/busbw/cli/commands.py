"""The table of commands: purpose, one line of help, and examples. `--help`, the man page and the
reference are made from it.

A new command is one row here and a module of its name, whose `command` is what click runs.
"""

from dataclasses import dataclass, field

import click

MEASURE = "Measure"
MODEL = "Explain and predict"
CHECK = "Check and watch"
TRAIN = "Applications, training and tuning"
RESULTS = "Results"
SET_UP = "Set up"
PURPOSES = (MEASURE, MODEL, CHECK, TRAIN, RESULTS, SET_UP)  # in the order of --help

Examples = tuple[tuple[str, str], ...]  # what it does, and the command to type


@dataclass(frozen=True, slots=True)
class Row:
    """One command. `parts` has the examples of its subcommands, by their name."""

    name: str
    purpose: str
    help: str
    examples: Examples
    parts: dict[str, Examples] = field(default_factory=dict)

    def examples_of(self, part: str) -> Examples:
        """The examples of the command itself ('') or of a subcommand."""
        return self.parts[part] if part else self.examples


COMMANDS: tuple[Row, ...] = (
    Row(
        "run",
        MEASURE,
        "Measure a collective and verify its data.",
        (
            ("all sizes from 8 B to 8 GiB, on all GPUs of this machine", "busbw run all_reduce"),
            (
                "sizes from 1 MiB to 1 GiB on two hosts, with the result in a file",
                "busbw run all_gather --hosts h1:8,h2:8 -b 1M -e 1G --json result.json",
            ),
            (
                "fail where the links carry less than 80 % of what they could",
                "busbw run all_reduce -b 1G -e 1G --min-percent 80%",
            ),
        ),
    ),
    Row(
        "link",
        MEASURE,
        "Measure the links between hosts, and name slow hosts and pairs.",
        (
            ("every pair of three hosts over TCP", "busbw link --hosts h1,h2,h3"),
            (
                "RDMA with perftest, with a page of heat maps",
                "busbw link --hosts h1,h2,h3,h4 --test perftest --html links.html",
            ),
            (
                "find slow hosts with few runs of all_reduce",
                "busbw link --hosts h1:8,h2:8,h3:8,h4:8 --suspect hosts",
            ),
        ),
    ),
    Row(
        "compat",
        MEASURE,
        "Install commands named all_reduce_perf, ... that behave like nccl-tests.",
        (
            ("install them in a directory", "busbw compat ~/nccl-tests"),
            (
                "then run one as you would run that of nccl-tests",
                "all_reduce_perf -b 8 -e 128M -f 2 -g 8",
            ),
            ("print its output again in another format", "busbw show run.log --format csv"),
        ),
    ),
    Row(
        "ideal",
        MODEL,
        "Print how fast a collective could be on a system, by algorithm.",
        (
            ("this machine", "busbw ideal all_reduce"),
            (
                "two hosts of 8 H100 with eight 400 Gbit/s ports each",
                "busbw ideal all_reduce --system h100x8 --nodes 2 --nics 8x400G",
            ),
            (
                "alltoallv with uneven bytes, as JSON",
                "busbw ideal alltoallv --system h100x8 --counts zipf:1.05 --format json",
            ),
        ),
    ),
    Row(
        "predict",
        MODEL,
        "Predict times by size, number of hosts, or recorded application.",
        (
            (
                "on 1, 16 and 128 hosts",
                "busbw predict all_reduce --system h100x8 --nodes 1,16,128 --nics 8x400G",
            ),
            (
                "corrected by a result of such a system",
                (
                    "busbw predict all_reduce --system h100x8 --nics 8x400G --nodes 4 --calibrate"
                    " r.json"
                ),
            ),
            (
                "a recorded application on 32 hosts",
                "busbw predict --pattern run1 --system h100x8 --nodes 32 --nics 8x400G",
            ),
        ),
    ),
    Row(
        "explain",
        MODEL,
        "Name the algorithm behind a busbw, and the load of each link.",
        (
            ("a result of busbw or nccl-tests", "busbw explain result.json"),
            (
                "a log that does not say what it ran on",
                "busbw explain run.log --system h100x8 --nics 8x400G --nodes 2",
            ),
            ("the page of a check", "busbw explain BW070"),
        ),
    ),
    Row(
        "check",
        CHECK,
        "Check that a machine, or every node of a cluster, is set up right.",
        (
            ("this machine", "busbw check"),
            (
                "several hosts over ssh, and what differs between them",
                "busbw check --hosts h1,h2,h3",
            ),
            ("snapshots of other machines", "busbw check --from '*.jsonl'"),
        ),
        {
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
                    "hosts of a file, without GPUs",
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
        "snapshot",
        CHECK,
        "Save what the checks read, for support and for other machines.",
        (
            ("write it to a file", "busbw snapshot -o h5.jsonl"),
            ("check it on another machine", "busbw check --from h5.jsonl"),
            ("from another host over ssh", "ssh h5 busbw snapshot > h5.jsonl"),
        ),
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
            ("serve metrics to Prometheus", "busbw watch --listen 127.0.0.1:9400"),
        ),
    ),
    Row(
        "capture",
        TRAIN,
        "Record what an application sends.",
        (
            (
                "every rank of a training",
                "busbw capture -o run1 -- torchrun --nproc-per-node 8 train.py",
            ),
            (
                "with times, under mpirun",
                "busbw capture -o run1 --timed -- mpirun -n 8 python train.py",
            ),
            ("print what it sent", "busbw pattern run1"),
        ),
    ),
    Row(
        "pattern",
        TRAIN,
        "Print what an application sent: read NCCL logs, traces and dumps.",
        (
            ("a directory of logs", "busbw pattern logs/"),
            ("the ten rows with the largest share", "busbw pattern run1 --rows 10"),
            (
                "as a record that busbw replay reads",
                "busbw pattern logs/ --format jsonl -o pattern.jsonl",
            ),
        ),
    ),
    Row(
        "replay",
        TRAIN,
        "Run what an application sends, without the application.",
        (
            ("a capture, on the GPUs of this machine", "busbw replay run1/pattern.jsonl"),
            ("on two hosts", "busbw replay run1/pattern.jsonl --hosts h1:8,h2:8"),
            ("with the result in a file", "busbw replay run1/pattern.jsonl --json replay.json"),
        ),
    ),
    Row(
        "train",
        TRAIN,
        "Train a model on synthetic samples, alone and with each method of gradient exchange.",
        (
            (
                "plain DDP and two methods in turn",
                "busbw train vgg16 --compare none,torch-powersgd,int8",
            ),
            (
                "two hosts of one GPU",
                "busbw train gpt2 --batch-size 8 --precision bf16 --hosts h1:1,h2:1",
            ),
            ("a model larger than the GPU", "busbw train gpt --params 8B --batch-size 8 --offload"),
        ),
    ),
    Row(
        "plan",
        TRAIN,
        "Recommend the gradient exchange that hides the network and loses least.",
        (
            (
                "the exchange between two hosts",
                "busbw plan vgg16 --batch-size 128 --hosts h1:1,h2:1",
            ),
            (
                "only these methods, and 90 % of a rank's own rate",
                "busbw plan gpt2 --compare none,int8,2d+int8 --target 90%",
            ),
            (
                "whether a model fits, and where to keep its states",
                "busbw plan gpt --params 13B --batch-size 8 --memory",
            ),
        ),
    ),
    Row(
        "tune",
        TRAIN,
        "Find faster algorithms, protocols and channels for NCCL, by size.",
        (
            ("on the GPUs of this machine", "busbw tune all_reduce"),
            (
                "on two hosts; the rules are added to busbw-tuner.table",
                "busbw tune all_gather --hosts h1:8,h2:8",
            ),
            (
                "measure a table against NCCL's choice again",
                "busbw tune --check busbw-tuner.table --hosts h1:8,h2:8",
            ),
        ),
    ),
    Row(
        "horovodrun",
        TRAIN,
        "Start a Horovod script on several ranks, like horovodrun.",
        (
            ("four ranks on this machine", "busbw horovodrun -np 4 python train.py --epochs 10"),
            ("two hosts", "busbw horovodrun -np 16 -H h1:8,h2:8 python train.py"),
            ("hosts of a file", "busbw horovodrun -np 16 --hostfile hosts.txt python train.py"),
        ),
    ),
    Row(
        "env",
        TRAIN,
        "Print the variables that make any NCCL program use busbw's plugins.",
        (
            ("print them", "busbw env net"),
            ("set them in this shell", "busbw env net > net.sh && . ./net.sh"),
            (
                "measure with the plugin; busbw run sets them itself",
                "busbw run all_reduce --hosts h1:8,h2:8 --net busbw",
            ),
        ),
        {
            "net": (
                ("print them", "busbw env net"),
                ("set them in this shell", "busbw env net > net.sh && . ./net.sh"),
                (
                    "measure with the plugin; busbw run sets them itself",
                    "busbw run all_reduce --hosts h1:8,h2:8 --net busbw",
                ),
            )
        },
    ),
    Row(
        "show",
        RESULTS,
        "Print any file that busbw wrote, or output of nccl-tests, in any format.",
        (
            ("a result as a table", "busbw show result.json"),
            ("a log of nccl-tests as CSV", "busbw show run.log --format csv"),
            (
                "from stdin, for a comment on GitHub",
                "ssh h1 cat result.json | busbw show - --format markdown",
            ),
        ),
    ),
    Row(
        "compare",
        RESULTS,
        "Compare two results: same, slower, faster or ambiguous.",
        (
            ("two files", "busbw compare before.json after.json"),
            ("two directories of repeated runs", "busbw compare before/ after/ --tolerance 3%"),
            (
                "measure both in turn, and compare",
                "busbw compare --run '--net ib' --run '--net socket' -- all_reduce -b 1M -e 1G",
            ),
        ),
    ),
    Row(
        "history",
        RESULTS,
        "Keep results, list and plot them, and check a run against earlier ones.",
        (
            ("add a result", "busbw history add result.json"),
            ("list all runs", "busbw history list"),
            ("is today's run slower than the last ones?", "busbw history check today.json"),
        ),
        {
            "add": (
                ("one result", "busbw history add result.json"),
                ("all of a directory", "busbw history add results/*.json"),
                (
                    "an export of another machine",
                    "ssh h1 busbw history export | busbw history add -",
                ),
            ),
            "check": (
                (
                    "is it slower than the last runs of its machine?",
                    "busbw history check today.json",
                ),
                ("with fewer false alarms", "busbw history check today.json --confidence 99%"),
                ("measure and check", "busbw run all_reduce --json - | busbw history check -"),
            ),
            "export": (
                ("everything, one result per line", "busbw history export > history.jsonl"),
                ("two runs as files", "busbw history export 12 13 -d results"),
                (
                    "one machine's runs, to another history",
                    "busbw history export --machine h1 | busbw history add - --db h1.sqlite",
                ),
            ),
            "list": (
                ("all runs", "busbw history list"),
                ("one collective", "busbw history list --collective all_reduce"),
                ("one machine", "busbw history list --machine h1"),
            ),
            "plot": (
                ("busbw at 1 GiB over the last 30 runs", "busbw history plot --size 1G"),
                ("over the last 100", "busbw history plot --size 1G --last 100"),
                (
                    "one collective on one machine",
                    "busbw history plot --size 64M --collective all_gather --machine h1",
                ),
            ),
            "rm": (
                ("remove a run, after a question", "busbw history rm 12"),
                ("remove several without a question", "busbw history rm 12 13 14 --yes"),
                ("keep a copy before", "busbw history export 12 -d removed"),
            ),
            "show": (
                ("a run as a table", "busbw history show 12"),
                ("as JSON, as busbw run wrote it", "busbw history show 12 --format json"),
                ("as Markdown", "busbw history show 12 --format markdown"),
            ),
        },
    ),
    Row(
        "report",
        RESULTS,
        "Write results as one HTML page: plots, tables, machines, findings.",
        (
            ("one result", "busbw report result.json"),
            ("before and after, compared", "busbw report before.json after.json -o change.html"),
            ("every result in a directory", "busbw report results/ -o results.html"),
        ),
    ),
    Row(
        "lab",
        SET_UP,
        "Emulate several hosts on this machine.",
        (
            ("two hosts with 1 Gbit/s between them", "busbw lab up --hosts 2 --rate 1gbit"),
            (
                "measure over them, from the first",
                "busbw lab exec h1 -- busbw run all_reduce --hosts h1:1,h2:1",
            ),
            ("remove them", "busbw lab down"),
        ),
        {
            "up": (
                ("two hosts", "busbw lab up"),
                (
                    "four hosts on a slow and lossy network",
                    "busbw lab up --hosts 4 --rate 25gbit --delay 50us --loss 0.01%",
                ),
                ("a second lab", "busbw lab up --name second"),
            ),
            "exec": (
                ("a command on one host", "busbw lab exec h1 -- ip address"),
                ("on every host", "busbw lab exec --all -- hostname"),
                (
                    "a run from the first host over ssh",
                    "busbw lab exec h1 -- busbw run all_reduce --hosts h1:1,h2:1",
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
        "engines",
        SET_UP,
        "List the engines, and what the unavailable ones need.",
        (
            ("what can run here", "busbw engines"),
            ("use one", "busbw run all_reduce --engine mpi -n 4 -e 1M"),
            (
                "simulate ranks, without MPI or GPUs",
                "busbw run all_reduce --engine sim -n 8 --sim alpha_us=5,gbps=370",
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
    ),
    Row(
        "manifest",
        SET_UP,
        "Print a job for Kubernetes or Slurm, or what checks and watches their nodes.",
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
        },
    ),
)
BY_NAME: dict[str, Row] = {row.name: row for row in COMMANDS}


def with_examples(command: click.Command, row: Row) -> click.Command:
    """The command of this row, with the examples at the end of its help and of its subcommands'."""
    command.epilog = examples_text(row.examples)
    for name, part in command.commands.items() if isinstance(command, click.Group) else ():
        part.epilog = examples_text(row.examples_of(name))
    return command


def examples_text(examples: Examples) -> str:
    """The examples as lines that click does not wrap: what each does as a comment, then the
    command.
    """
    return "\b\nExamples:\n" + "\n".join(
        f"  # {meaning}\n  {command}" for meaning, command in examples
    )
