"""What record_node.py records of a machine: its steps, in the order in which they run.

A step is a command line. `busbw` and `torchrun` stand for the modules, and a word that names a file
of this folder for that file. Files that a command writes go to the record's folder, in which it
runs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from busbw.core.collectives import COLLECTIVES

LINK_GBIT = 25
ROUNDS = 4  # of the network plugin beside Socket
SWEEP = "-b 1K -e 4G -f 4 --timing classic --force"
NET_SWEEP = "-b 8 -e 256M -f 2 --timing classic --force"
TRAINING = "--compute-dtype bf16 --rounds 3 --iters 2 --warmup 3 --net busbw --force"
METHODS = "none,2d,int4+host,2d+int8"
TRAININGS = {"vgg16": 64, "gpt2": 16}  # samples of a rank
SMALL = "-b8 -e64K -f2 -c0"
VERSIONS = (
    "import platform, sys, torch; print('Python', sys.version.split()[0], 'PyTorch',"
    " torch.__version__, 'NCCL', torch.cuda.nccl.version(), platform.platform())"
)
PARTS = {
    "machine": "GPUs, cores and versions",
    "collectives": "every collective: a sweep, and `explain`; what the reference expected of all",
    "precise": "a precise sweep of all_reduce",
    "loop": "the loops of Python, busbw-native and C in one process per GPU",
    "tools": "whole commands of nccl-tests' names beside the C program, ranks bound to cores",
    "capture": "a captured training and its replay",
    "embedding": "steps of DynamicEmbedding",
    "tune": "NCCL tuned over the GPUs, and between emulated hosts",
    "net": "emulated hosts: the network plugin beside Socket",
    "train": "emulated hosts: trainings with and without compression",
}


@dataclass(frozen=True)
class Step:
    """A command of a part. Exit codes in `good` are results; 1 is often that of a finding. One
    that `summarizes` files of other steps runs in each call, as these may have changed.
    """

    part: str
    name: str
    command: str
    limit_s: float = 120.0
    good: tuple[int, ...] = (0,)
    summarizes: bool = False


@dataclass(frozen=True)
class Machine:
    """What is recorded. `layouts` are numbers of emulated hosts, and of the GPUs of each."""

    gpus: int
    cores: int
    layouts: Sequence[tuple[int, int]]


def layouts(gpus: int) -> list[tuple[int, int]]:
    """The layouts that are of interest. A single GPU is shared by two hosts."""
    if gpus == 1:
        return [(2, 1)]
    return [(hosts, gpus // hosts) for hosts in (2, 4) if gpus % hosts == 0]


def steps(machine: Machine, reference: str) -> Iterator[Step]:
    """All steps. `reference` is a command that prints nccl-tests' table, '' for none."""
    yield from _machine()
    yield from _collectives(machine.gpus)
    yield from _precise(machine.gpus)
    yield from _loops(machine, reference)
    yield from _applications(machine.gpus)
    if machine.gpus > 1:
        yield from _tune(machine.gpus)
    for hosts, own in machine.layouts:
        yield from _tune_hosts(hosts, own)
    for hosts, own in machine.layouts:
        yield from _net(hosts, own)
    for hosts, own in machine.layouts:
        yield from _train(hosts, own)


def _machine() -> Iterator[Step]:
    query = "--query-gpu=name,driver_version --format=csv,noheader"
    yield Step("machine", "gpus", f"nvidia-smi {query}")
    yield Step("machine", "links", "nvidia-smi topo -m")
    yield Step("machine", "cores", "lscpu")
    yield Step("machine", "versions", f'python3 -c "{VERSIONS}"')
    yield Step("machine", "mpi", "mpirun --version")


def _collectives(gpus: int) -> Iterator[Step]:
    rows = [row.name for row in COLLECTIVES if not row.ranks_power_of_two or not gpus & (gpus - 1)]
    for name in rows:
        file = f"collectives/{name}.json"
        command = f"busbw run {name} -np {gpus} --engine nccl --ran {SWEEP} --json {file}"
        yield Step("collectives", name, command, good=(0, 1))
        if gpus > 1:  # one GPU sends nothing
            yield _explain("collectives", f"explain_{name}", file)
    yield Step("collectives", "expected", "reference_blind.py collectives", summarizes=True)


def _explain(part: str, name: str, file: str) -> Step:
    return Step(part, name, f"busbw explain {file}", good=(0, 1), summarizes=True)


def _precise(gpus: int) -> Iterator[Step]:
    command = f"busbw run all_reduce -np {gpus} --engine nccl --force --json precise/sweep.json"
    yield Step("precise", "all_reduce", command, good=(0, 1))
    if gpus > 1:
        yield _explain("precise", "explain", "precise/sweep.json")


def _loops(machine: Machine, reference: str) -> Iterator[Step]:
    small, cores = f"small_sizes.py --ranks {machine.gpus}", machine.cores // machine.gpus
    for name, options in (("small", "--rounds 20"), ("large", "--rounds 5 --largest 256M")):
        command = f"{small} {options} --json loop/{name}.json"
        yield Step("loop", name, command, limit_s=240)
    places = f"--map-by slot:PE={max(1, min(8, cores))} --bind-to core"
    bound = f"mpirun --allow-run-as-root -np {{ranks}} {places}"
    compat = f"{bound} {{folder}}/{{collective}}_perf {SMALL}"
    command = f"{small} --rounds 0 --tools 4 --loops native --compat '{compat}'"
    if reference:
        command += f" --reference '{bound} {reference} {SMALL}'"
    yield Step("tools", "rounds", f"{command} --json tools/rounds.json", limit_s=480)


def _applications(gpus: int) -> Iterator[Step]:
    if gpus > 1:
        yield from _capture(gpus)
    counts = ",".join(str(1 << number) for number in range(gpus.bit_length()))
    command = f"embedding_ranks.py --ranks {counts} --out embedding/steps.json"
    yield Step("embedding", "steps", command, limit_s=240)


def _capture(gpus: int) -> Iterator[Step]:
    training = f"torchrun --nproc-per-node {gpus} capture_events_app.py steps capture/steps.json"
    command = f"busbw capture --timed --output capture/run -- {training}"
    yield Step("capture", "training", command, limit_s=180)
    replay = f"busbw replay capture/run/pattern.jsonl -np {gpus} --engine nccl --ran"
    yield Step("capture", "replay", replay, good=(0, 1))


def _tune(gpus: int) -> Iterator[Step]:
    command = f"busbw tune all_reduce -np {gpus} --engine nccl --max-time 3 --no-settings"
    yield Step("tune", "links", f"{command} --output tune/links.table", limit_s=240)


def _tune_hosts(hosts: int, own: int) -> Iterator[Step]:
    name = f"{hosts}x{own}"
    command = f"gpu_hosts.py -n {hosts} -p {own} {LINK_GBIT} tune all_reduce --net socket"
    options = f"--max-time 3 --no-settings --output tune/{name}.table"
    yield Step("tune", name, f"{command} {options}", limit_s=300)


def _net(hosts: int, own: int) -> Iterator[Step]:
    layout = f"{hosts}x{own}"
    for number in range(ROUNDS):
        nets = ("socket", "busbw") if number % 2 else ("busbw", "socket")
        for net in nets:
            file = f"net/{layout}/{net}/{number}.json"
            command = f"gpu_hosts.py -n {hosts} -p {own} 0 run all_reduce --engine nccl --ran"
            options = f"{NET_SWEEP} --net {net} --json {file}"
            yield Step("net", f"{layout}_{net}_{number}", f"{command} {options}", good=(0, 1))
    command = f"busbw compare net/{layout}/socket net/{layout}/busbw"
    yield Step("net", f"{layout}_compared", command, good=(0, 1), summarizes=True)


def _train(hosts: int, own: int) -> Iterator[Step]:
    for model, samples in TRAININGS.items():
        name = f"{hosts}x{own}_{model}"
        command = f"gpu_hosts.py -n {hosts} -p {own} {LINK_GBIT} train {model}"
        options = f"--batch-size {samples} --compare {METHODS} {TRAINING} --json train/{name}.json"
        yield Step("train", name, f"{command} {options}", limit_s=240, good=(0, 3))
