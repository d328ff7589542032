"""How many ranks the hosts of a line get."""

from collections.abc import Iterator

from busbw.check.base import failed, passed, skipped, warned
from busbw.check.command.line import CHANGE_SCRIPT, HOSTFILES, CommandLine, HostSlots, inner, rule
from busbw.check.command.parse_line import parse
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer
from busbw.core.sizes import counted

HOSTS = CheckRow(
    id="BW220",
    name="line-hosts",
    layer=Layer.LAUNCHER,
    title="hosts in mpirun's -H",
    right="hosts separated by commas; after a colon, a number of slots, * or auto",
    why=(
        "The colon separates a host from its slots. host1:host2 is only host1: mpirun 4.1.4 and"
        " 5.0.11 stop because its nodes are full. In 10.1.1.1:10.1.1.2 they read the first number"
        " as slots, and start up to 10 ranks on the first host and none on the second."
    ),
    fix="-H {hosts}",
    stays=CHANGE_SCRIPT,
    reads=("the command line",),
    sources=("Open MPI documentation, mpirun, --host",),
)


@rule(HOSTS)
def check_hosts(line: CommandLine) -> Iterator[Finding]:
    """Whether each host of -H has a number of slots, * or auto after its colon."""
    if not line.hosts:
        yield skipped("the line names no hosts")
        return
    wrong = [host for host in line.hosts if host.wrong]
    hosts = ",".join(line.values("H", "host"))
    slots = f":{line.per_node}" if line.per_node else ""
    if not wrong:
        yield passed("", f"{len(line.hosts)} hosts", Evidence("-H", hosts))
        return
    names: list[str] = []
    for host in line.hosts:
        names += _separated(host) if host.wrong else [_spelled(host)]
    with_slots = [name if ":" in name else name + slots for name in names]
    first = wrong[0]
    message = (
        f"{first.name}:{first.slots} is {first.name} with '{first.slots}' slots: a comma separates"
        " hosts"
    )
    yield failed(
        "",
        message,
        Evidence("-H", hosts, "h1:8,h2:8"),
        fix=filled("-H {hosts}", hosts=",".join(with_slots)),
    )


def _spelled(host: HostSlots) -> str:
    return f"{host.name}:{host.slots}" if host.slots else host.name


def _separated(host: HostSlots) -> list[str]:
    """The hosts that were meant, each with its slots: `h1:8` and `h2:8` for `h1:8:h2:8`."""
    names: list[str] = []
    for word in (host.name, *filter(None, host.slots.split(":"))):
        if word.isdecimal() and names and ":" not in names[-1]:
            names[-1] += f":{word}"
        else:
            names.append(word)
    return names


SLOTS = CheckRow(
    id="BW221",
    name="line-slots",
    layer=Layer.LAUNCHER,
    title="slots of the hosts, compared with the number of ranks",
    right="at least as many slots as ranks",
    why=(
        "A host in -H without a number has one slot, even with -npernode and ppr. mpirun then"
        " stops: there are not enough slots available."
    ),
    fix="-H {hosts}",
    stays=CHANGE_SCRIPT,
    reads=("the command line",),
    sources=("Open MPI documentation, mpirun, --host",),
)


@rule(SLOTS)
def check_slots(line: CommandLine) -> Iterator[Finding]:
    """The sum of the slots in -H, compared with the number of ranks."""
    ranks, by_host = line.ranks, line.slots
    if not by_host or ranks is None or line.has(*HOSTFILES) or line.allocated:
        yield skipped("the line does not give ranks and hosts with slots")
        return
    by_map = (line.value("map-by") or "").lower()
    if line.has("oversubscribe", "rankfile", "rf") or "oversubscribe" in by_map:
        yield skipped("more ranks than slots are allowed")
        return
    slots = sum(by_host.values())
    evidence = Evidence("-H", ",".join(line.values("H", "host")), f"{ranks} slots")
    if slots >= ranks:
        yield passed("", f"{ranks} ranks, {slots} slots", evidence)
        return
    per_host = line.per_node or -(-ranks // len(by_host))
    hosts = ",".join(f"{name}:{per_host}" for name in by_host)
    yield failed(
        "",
        f"{ranks} ranks, but the hosts have {counted(slots, 'slot')}",
        evidence,
        fix=filled(SLOTS.fix, hosts=hosts),
    )


SPREAD = CheckRow(
    id="BW222",
    name="line-spread",
    layer=Layer.LAUNCHER,
    title="ranks per host",
    right="the same number on all hosts",
    why=(
        "mpirun fills the first host before the next. With fewer ranks than slots the last host "
        "gets few or none. The run then measures a different network than intended: some hosts use "
        "fewer GPUs and NICs than others."
    ),
    fix="-n {ranks}",
    stays=CHANGE_SCRIPT,
    reads=("the command line", "environment"),
    sources=("Open MPI documentation, mpirun, mapping",),
)


@rule(SPREAD)
def check_spread(line: CommandLine) -> Iterator[Finding]:
    """The ranks of each host, in the order in which mpirun fills the hosts."""
    ranks, nodes = line.ranks, line.nodes
    if not ranks or not nodes or nodes == 1 or line.launcher == "torchrun":
        yield skipped("the line does not give ranks for several hosts")
        return
    by_map = line.value("map-by") or ""
    if line.per_node or line.launcher != "mpirun" or "node" in by_map:
        yield _judge_division(ranks, nodes)
        return
    slots = line.slots
    mapped = by_map.startswith(("ppr", "seq", "rankfile", "dist"))
    if not slots or mapped or line.has("rankfile", "rf", *HOSTFILES):
        yield skipped("the line does not give the ranks of each host")
        return
    unplaced, taken = ranks, {}
    for name, count in slots.items():
        taken[name] = min(count, unplaced)
        unplaced -= taken[name]
    evidence = Evidence(
        "-H", ",".join(line.values("H", "host")), f"{ranks} ranks, the same on each host"
    )
    spread = ", ".join(f"{name}: {count}" for name, count in taken.items())
    if unplaced or len(set(taken.values())) == 1:
        yield passed("", spread, evidence)
    else:
        per_host = max(ranks // nodes, 1)
        yield warned(
            "",
            f"ranks by host: {spread}",
            evidence,
            fix=filled(
                f"-n {per_host * nodes} -H {{hosts}}",
                hosts=",".join(f"{name}:{per_host}" for name in slots),
            ),
        )


def _judge_division(ranks: int, nodes: int) -> Finding:
    evidence = Evidence("ranks and hosts", f"{ranks} on {nodes}")
    if ranks % nodes == 0:
        return passed("", f"{ranks // nodes} ranks on each of {nodes} hosts", evidence)
    return warned(
        "",
        f"{ranks} ranks do not divide over {nodes} hosts",
        evidence,
        fix=f"-n {max(ranks // nodes, 1) * nodes}",
    )


PER_NODE = CheckRow(
    id="BW229",
    name="line-per-node",
    layer=Layer.LAUNCHER,
    title="total ranks, hosts and ranks per host",
    right=(
        "-n is at most hosts times -npernode, ppr or --ntasks-per-node; only one of -npernode "
        "and --map-by; srun starts one torchrun per host"
    ),
    why=(
        "mpirun stops if -n is larger; srun then ignores --ntasks-per-node. -npernode is --map-by"
        " ppr: with both, Open MPI 5 stops and 4 follows --map-by. torchrun starts the ranks of a"
        " host itself: eight torchruns on a host start eight times as many."
    ),
    fix="-n {ranks}",
    stays=CHANGE_SCRIPT,
    reads=("the command line", "environment"),
    sources=(
        "Open MPI documentation, mpirun, --map-by",
        "srun(1), --ntasks-per-node",
        "PyTorch documentation, torchrun",
    ),
)


@rule(PER_NODE)
def check_per_node(line: CommandLine) -> Iterator[Finding]:
    """Ranks, hosts and ranks per host, compared with each other."""
    per_host, nodes, ranks = line.per_node, line.nodes, line.ranks
    several_torchruns = False
    if line.launcher == "srun" and per_host and per_host > 1:
        started = parse(inner(line.program))
        several_torchruns = started.launcher == "torchrun" and started.per_node != 1
    if line.launcher not in ("mpirun", "srun") or not per_host:
        yield skipped("the line gives no number of ranks per host")
    elif mapped := _mapped_twice(line):
        by_map = line.value("map-by") or ""
        evidence = Evidence("ranks per host", f"{mapped} and --map-by {by_map}", "one of the two")
        message = (
            f"{per_host} ranks per host, but --map-by {by_map}: Open MPI 5 stops, 4 follows"
            " --map-by"
        )
        # Open MPI 4 starts as many as meant if both give the same number.
        same = by_map.startswith(f"ppr:{per_host}:")
        differs = by_map.startswith("ppr:") and not same
        report = failed if line.major >= 5 or differs else warned
        fix = f"leave out {mapped}" if same else f"--map-by ppr:{per_host}:node without {mapped}"
        yield report("", message, evidence, fix=fix)
    elif several_torchruns:
        evidence = Evidence("--ntasks-per-node", str(per_host), "1")
        message = (
            f"srun starts {per_host} torchruns on each host, and each starts all ranks of a host"
        )
        yield failed("", message, evidence, fix="--ntasks-per-node=1")
    elif not ranks or not nodes or any(host.wrong for host in line.hosts):
        yield skipped("the line does not give both ranks and hosts")
    elif ranks > per_host * nodes:
        evidence = Evidence("ranks", str(ranks), f"at most {nodes} hosts x {per_host}")
        message = f"{nodes} hosts with {per_host} ranks each are {per_host * nodes}, not {ranks}"
        report = failed if line.launcher == "mpirun" else warned
        yield report("", message, evidence, fix=f"-n {per_host * nodes}")
    else:
        yield passed("", f"{ranks} ranks, at most {per_host} on each of {nodes} hosts")


def _mapped_twice(line: CommandLine) -> str:
    """-npernode, -N or -pernode as it is written, if a different mapping is given too; else ''."""
    by_map = line.value("map-by") or ""
    options = [option for option in line.options if option.name in ("npernode", "N", "pernode")]
    if line.launcher != "mpirun" or not options or not by_map or by_map.startswith(":"):
        return ""
    last = options[-1]
    number = last.values[0] if last.values else "1"
    if 0 < line.major < 5 and (
        not by_map.startswith("ppr:") or by_map.startswith(f"ppr:{number}:")
    ):
        return ""
    return " ".join((last.spelled, *last.values))
