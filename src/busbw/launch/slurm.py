"""Builds srun's command line, and interprets srun's own lines on stderr.

srun starts the ranks as one job step with PMIx. Checked against Slurm 22.05.8 with PMIx 4.2 and
Open MPI 5.0.11: srun forwards lines of any length and adds none to stdout.
"""

import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from busbw.core.errors import NoMeasurement, UsageError
from busbw.launch import interfaces

LIST_LIMIT_S = 20.0
WITHOUT_PMIX = (
    "start the ranks by ssh inside an allocation: salloc -N 2 busbw run ... --hosts h1:8,h2:8; or"
    " install Slurm's mpi/pmix plugin"
)
# A failing rank ends the step. NCCL's threads need more than one core, and NCCL must see all GPUs
# of its host.
TASKS = ("--export=ALL", "--kill-on-bad-exit=1", "--cpu-bind=none", "--gpu-bind=none")
_PMIX = re.compile(r"\bpmix(?:_v\d+)?\b")
_HINT_ARGS = (
    "give only options other than the numbers of ranks, like --slurm-args '-p gpu -A team -t 10'"
)
# Results arrive on the ranks' stdout as whole lines without labels.
_OUTPUT = (
    "-l",
    "--label",
    "-o",
    "--output",
    "-e",
    "--error",
    "--pty",
    "-i",
    "--input",
    "-u",
    "--unbuffered",
)
_NUMBERS = ("-n", "--ntasks", "-N", "--nodes", "--ntasks-per-node", "--gpus-per-node")
_SRUN_LINE = re.compile(
    r"slurmstepd|srun: (error:|launch/slurm|Force Terminated|forcing job termination|Job step"
    r" aborted|cluster configuration lacks)"
)
# MPI must not use the network that NCCL is about to measure. The user's settings are kept.
_BETWEEN_HOSTS = {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "tcp,self", "OMPI_MCA_coll": "^hcoll"}


@dataclass(frozen=True, slots=True)
class JobStep:
    """The requested job step.

    Slurm or the allocation decides about a number that is None. `arguments` are extra arguments of
    srun.
    """

    ranks: int | None = None
    nodes: int | None = None
    ranks_per_node: int | None = None
    gpus_per_node: int | None = None
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Srun:
    """An installed srun, and the name of its PMIx plugin."""

    path: str
    pmix: str


class Queue:
    """Tracks from srun's messages whether the job waits for resources.

    Queue time is not launch time.
    """

    def __init__(self) -> None:
        self.waiting = False

    def take(self, line: str) -> None:
        """Take a line of srun's stderr."""
        if line.startswith("srun: ") and "queued and waiting for resources" in line:
            self.waiting = True
        elif line.startswith("srun: ") and "has been allocated resources" in line:
            self.waiting = False


def own_line(line: str) -> bool:
    """Whether a line of stderr is srun's report of how a step ended.

    It matters only after a failure.
    """
    return _SRUN_LINE.match(line) is not None


def split(text: str) -> tuple[str, ...]:
    """The arguments in the text of --slurm-args.

    UsageError for an unclosed quote, and for options that busbw sets or that change the output.
    """
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(f"--slurm-args {text}: {str(error).lower()}", _HINT_ARGS) from error
    for word in words:
        if _is_option(word, _OUTPUT):
            raise UsageError(
                f"--slurm-args {text}: {word} would change the ranks' output, which busbw reads",
                _HINT_ARGS,
            )
        if _is_option(word, _NUMBERS):
            raise UsageError(
                f"--slurm-args {text}: busbw sets {word} itself",
                "busbw run ... --slurm --nodes 2 --ntasks-per-node 8",
            )
    return words


def _is_option(word: str, names: Sequence[str]) -> bool:
    """Whether `word` is one of the options: `--name`, `--name=value`, `-x` or `-xvalue`."""
    is_short = word[:1] == "-" and word[1:2] != "-"
    return word.partition("=")[0] in names or (is_short and word[:2] in names)


def with_defaults(step: JobStep, env: Mapping[str, str]) -> JobStep:
    """The step with all numbers set.

    Missing numbers follow from the GPUs and from the allocation in `env`: one rank per GPU, and the
    same number on every node if it divides. UsageError for missing or contradictory numbers.
    """
    nodes = step.nodes or _number(env, "SLURM_JOB_NUM_NODES")
    ranks, per_node = step.ranks, step.ranks_per_node
    if ranks is None and per_node is None:
        ranks, per_node = _default_ranks(step, nodes, env)
    if per_node is None and ranks:
        if nodes:
            per_node = ranks // nodes if ranks % nodes == 0 else None
        elif step.gpus_per_node and ranks % step.gpus_per_node == 0:
            per_node = step.gpus_per_node
    if per_node is not None:
        nodes = nodes or (-(-ranks // per_node) if ranks else 1)
        if ranks not in (None, nodes * per_node):
            raise UsageError(
                f"--ranks {ranks}: {nodes} nodes with {per_node} each are {nodes * per_node}",
                "leave out --ranks, or --ntasks-per-node",
            )
        ranks = nodes * per_node
    if ranks == 1:
        raise UsageError(
            "--slurm: a single rank has no peer",
            "busbw run ... --slurm --nodes 2 --ntasks-per-node 8",
        )
    return replace(step, ranks=ranks, nodes=nodes, ranks_per_node=per_node)


def _default_ranks(
    step: JobStep, nodes: int | None, env: Mapping[str, str]
) -> tuple[int | None, int | None]:
    """Ranks in total, or else ranks per node, of a step that requests neither."""
    if step.gpus_per_node is not None:
        return None, step.gpus_per_node
    ranks = _number(env, "SLURM_NTASKS") if step.nodes is None else None
    if ranks is not None:
        return ranks, None
    per_node = _gpus_per_node(env) or (1 if nodes else None)
    if per_node is None:
        raise UsageError(
            "--slurm: neither ranks nor nodes are given, and this is not an allocation",
            "give the nodes: --slurm --nodes 2 --gpus-per-node 8",
        )
    return None, per_node


def find() -> Srun:
    """The srun on PATH and its PMIx plugin.

    NoMeasurement if srun is missing, does not respond, or has no PMIx.
    """
    path = shutil.which("srun")
    if path is None:
        raise NoMeasurement(
            "no srun on PATH",
            "busbw run ... --hosts h1:8,h2:8, or add Slurm's bin directory to PATH",
        )
    try:
        done = subprocess.run(
            [path, "--mpi=list"],
            capture_output=True,
            text=True,
            timeout=LIST_LIMIT_S,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise NoMeasurement(
            f"{path} --mpi=list did not finish within {LIST_LIMIT_S:g} s", "scontrol ping"
        ) from error
    except OSError as error:
        raise NoMeasurement(f"{path} cannot be run: {error.strerror}", "srun --version") from error
    text = done.stdout + done.stderr  # releases differ in the stream
    if done.returncode:
        raise NoMeasurement(
            f"{path} --mpi=list exited with {done.returncode}: {_last_line(text)}",
            "scontrol ping   (is slurm.conf present?)",
        )
    return Srun(path, pmix(text))


def pmix(listing: str) -> str:
    """`pmix`, or the newest `pmix_vN`, in the output of `srun --mpi=list`.

    Raises NoMeasurement if there is neither.
    """
    names: set[str] = set(_PMIX.findall(listing))
    if "pmix" in names:
        return "pmix"
    if names:
        return max(names, key=lambda name: int(name.removeprefix("pmix_v")))
    plugins = [
        line.strip().removeprefix("srun: ")
        for line in listing.splitlines()
        if line.strip() and "are..." not in line
    ]
    raise NoMeasurement(
        "this Slurm has no PMIx, which the ranks need to find each other; it has"
        f" {', '.join(plugins)}",
        WITHOUT_PMIX,
    )


def command(
    srun: Srun, program: Sequence[str], step: JobStep, ifname: str, env: Mapping[str, str]
) -> list[str]:
    """The command line that runs `program` as the ranks of `step`, which `settle` has completed.

    `ifname` is the user's --ifname, `env` the environment of this process. Raises UsageError for an
    invalid interface.
    """
    words = [srun.path]
    if not any(word.startswith("--mpi=") for word in step.arguments):
        words.append(f"--mpi={srun.pmix}")
    numbers = (
        ("--ntasks", step.ranks),
        ("--nodes", step.nodes),
        ("--ntasks-per-node", step.ranks_per_node),
        ("--gpus-per-node", step.gpus_per_node),
    )
    words += [f"{name}={number}" for name, number in numbers if number is not None]
    words += [*TASKS, *step.arguments]
    variables = _variables(step, ifname, env)
    if variables:
        # Variables pass through env(1): --export cannot carry values with commas.
        words += ["env", *(f"{name}={value}" for name, value in variables.items())]
    return [*words, *program]


def _variables(step: JobStep, ifname: str, env: Mapping[str, str]) -> dict[str, str]:
    variables = {}
    if step.nodes != 1:
        variables = {name: value for name, value in _BETWEEN_HOSTS.items() if name not in env}
        if ifname:
            # A login node may have no interface in the network that all nodes share, so a CIDR is
            # not resolved here.
            selected = ifname
            if not interfaces.is_cidr(ifname):
                selected = interfaces.for_mpi(ifname, interfaces.local())
            variables["OMPI_MCA_btl_tcp_if_include"] = selected
    return variables | interfaces.variables(ifname)


def _number(env: Mapping[str, str], name: str) -> int | None:
    value = env.get(name, "")
    return int(value) if value.isascii() and value.isdigit() and int(value) else None


def _gpus_per_node(env: Mapping[str, str]) -> int | None:
    """GPUs per node of the allocation.

    They are in SLURM_GPUS_ON_NODE, else in SLURM_GPUS_PER_NODE, which is `8` or `h100:8`.
    """
    count = env.get("SLURM_GPUS_PER_NODE", "").rpartition(":")[2]
    return _number(env, "SLURM_GPUS_ON_NODE") or _number({"": count}, "")


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].removeprefix("srun: ") if lines else "no message"
