"""How ranks find each other: srun's PMIx and torchrun's rendezvous."""

from collections.abc import Iterator

from busbw.check.base import failed, passed, skipped, unknown, warned
from busbw.check.command.line import CHANGE_SCRIPT, CommandLine, inner, needs_shell, rule
from busbw.check.command.nccl_tests import perf
from busbw.check.command.parse_line import parse
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer

VARIABLE = "SLURM_MPI_TYPE"

SRUN_MPI = CheckRow(
    id="BW230",
    name="line-srun-mpi",
    layer=Layer.LAUNCHER,
    title="srun's --mpi for MPI programs",
    right="pmix",
    why=(
        "Open MPI 5 ranks find each other only through PMIx. Open MPI 4 uses PMIx or, if built with"
        " it, PMI2. MPICH uses PMI2. Without --mpi, srun uses the default of slurm.conf. If that is"
        " none, each rank runs as a job of size one and prints its own table."
    ),
    fix="srun --mpi=pmix",
    stays=f"{CHANGE_SCRIPT}; MpiDefault=pmix in slurm.conf makes it the default",
    reads=("the command line", f"${VARIABLE}"),
    sources=("Slurm, MPI users guide",),
)
LOCAL = ("localhost", "127.", "0.0.0.0", "[::1]", "::1")


@rule(SRUN_MPI)
def check_srun_mpi(line: CommandLine) -> Iterator[Finding]:
    """The option --mpi on a line that runs nccl-tests."""
    if line.launcher != "srun" or perf(line) is None or line.ranks == 1:
        yield skipped("not a line of srun with several ranks of nccl-tests")
        return
    mpi_type = line.value("mpi") or (line.environment or {}).get(VARIABLE)
    evidence = Evidence("--mpi", mpi_type or "not given", "pmix")
    if mpi_type is None:
        yield unknown(
            "",
            "srun without --mpi uses the default of slurm.conf (MpiDefault)",
            evidence,
            fix=SRUN_MPI.fix,
        )
    elif mpi_type in ("none", "openmpi"):
        yield failed(
            "",
            f"--mpi={mpi_type} starts each rank as a separate job of size one",
            evidence,
            fix=SRUN_MPI.fix,
        )
    elif not mpi_type.startswith("pmix"):
        bad = warned if line.major >= 5 else unknown
        yield bad(
            "",
            f"--mpi={mpi_type} does not work with Open MPI 5, which supports only PMIx",
            evidence,
            fix=SRUN_MPI.fix,
        )
    else:
        yield passed("", f"--mpi={mpi_type}", evidence)


TORCHRUN = CheckRow(
    id="BW231",
    name="line-torchrun",
    layer=Layer.LAUNCHER,
    title="torchrun rendezvous",
    right=(
        "--rdzv-endpoint with the name of one host, the same on all; or --master-addr and"
        " --node-rank"
    ),
    why=(
        "Without it each torchrun waits at its own localhost for the other hosts, until it times "
        "out. --standalone also sets the endpoint to localhost."
    ),
    fix="--rdzv-backend=c10d --rdzv-endpoint=HOST1:29500",
    stays=CHANGE_SCRIPT,
    reads=("the command line",),
    sources=("PyTorch documentation, torchrun",),
)


@rule(TORCHRUN)
def check_torchrun(line: CommandLine) -> Iterator[Finding]:
    """The options of torchrun for several hosts, also of one that srun starts."""
    variables, environment = line.variables, line.environment or {}
    line = parse(inner(line.program)) if line.launcher == "srun" else line
    names = [name for name, _ in (*variables, *line.variables)]
    if any(name.startswith("PET_") for name in (*names, *environment)):
        yield skipped("PET_ variables set torchrun's options")
        return
    if line.launcher != "torchrun" or line.nodes == 1:
        yield skipped("not a torchrun line for several hosts")
        return
    hosts = line.value("nnodes") or ""
    bad = warned if needs_shell(hosts) else failed  # it may be one host
    address = line.value("rdzv-endpoint") or line.value("master-addr")
    static = line.value("rdzv-backend") in (None, "static")
    evidence = [
        Evidence("--nnodes", hosts),
        Evidence("--rdzv-endpoint or --master-addr", address or "not given", "a host's name"),
    ]
    if line.has("standalone"):
        yield bad(
            "",
            f"--standalone with --nnodes {hosts}: each host waits at its own localhost",
            *evidence,
            fix=TORCHRUN.fix,
        )
    elif static and line.value("node-rank") == "0":  # its own store, which listens on all addresses
        yield passed("", f"host 0 of {hosts}, where the others meet", *evidence)
    elif address is None or address.startswith(LOCAL):
        where = f"at {address}" if address else "at localhost, as no address is given"
        yield bad("", f"each of {hosts} hosts waits {where}", *evidence, fix=TORCHRUN.fix)
    elif static and not line.has("node-rank"):
        rank = Evidence("--node-rank", "not given", "a different number on each host")
        yield bad(
            "",
            "without --node-rank all hosts are host 0",
            *evidence,
            rank,
            fix="--node-rank=$SLURM_NODEID, or --rdzv-backend=c10d",
        )
    else:
        yield passed("", f"{hosts} hosts meet at {address}", *evidence)
