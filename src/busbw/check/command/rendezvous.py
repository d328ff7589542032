"""torchrun on hosts that cannot find each other."""

from collections.abc import Iterator

from busbw.check.base import failed, passed, skipped
from busbw.check.command.base import STAYS, Rule
from busbw.check.command.line import Line, inner, parse
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer

LOCAL = ("localhost", "127.", "0.0.0.0", "[::1]", "::1")

ROW = CheckRow(
    id="BW231",
    name="line-torchrun",
    layer=Layer.LAUNCHER,
    title="torchrun rendezvous",
    right="--rdzv-endpoint with the name of one host, the same on all; or --master-addr and --node-rank",
    why="Without it each torchrun waits at its own localhost for the other hosts, until it times out. --standalone also sets the "
    "endpoint to localhost.",
    fix="--rdzv-backend=c10d --rdzv-endpoint=HOST1:29500",
    stays=STAYS,
    reads=("the command line",),
    sources=("PyTorch documentation, torchrun",),
)


def look(line: Line) -> Iterator[Found]:
    """The options, for several hosts; also of a torchrun that srun starts."""
    line = parse(inner(line.program)) if line.launcher == "srun" else line
    if any(name.startswith("PET_") for name, _ in line.variables):
        yield skipped("PET_ variables set torchrun's options")
        return
    if line.launcher != "torchrun" or line.nodes == 1:
        yield skipped("not a torchrun line for several hosts")
        return
    hosts = line.value("nnodes") or ""
    address = line.value("rdzv-endpoint") or line.value("master-addr")
    static = line.value("rdzv-backend") in (None, "static")
    evidence = [Evidence("--nnodes", hosts), Evidence("--rdzv-endpoint or --master-addr", address or "not given", "a host's name")]
    if line.has("standalone"):
        yield failed("", f"--standalone with --nnodes {hosts}: each host waits at its own localhost", *evidence, fix=ROW.fix)
    elif address is None or address.startswith(LOCAL):
        where = f"at {address}" if address else "at localhost, as no address is given"
        yield failed("", f"each of {hosts} hosts waits {where}", *evidence, fix=ROW.fix)
    elif static and not line.has("node-rank"):
        rank = Evidence("--node-rank", "not given", "a different number on each host")
        yield failed(
            "", "without --node-rank all hosts are host 0", *evidence, rank, fix="--node-rank=$SLURM_NODEID, or --rdzv-backend=c10d"
        )
    else:
        yield passed("", f"{hosts} hosts meet at {address}", *evidence)


CHECK = Rule(ROW, look)
