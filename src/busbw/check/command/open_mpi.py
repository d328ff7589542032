"""Open MPI's parameters, its user and its binding."""

from collections.abc import Iterator, Sequence

from busbw.check.base import failed, passed, skipped, unknown, warned
from busbw.check.command.line import CHANGE_SCRIPT, CommandLine, needs_shell, rule
from busbw.check.command.nccl_tests import perf
from busbw.check.launcher import parameters
from busbw.check.launcher.parameters import McaParameter
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer

SUBNET = "10.1.0.0/16"
PARTS = (parameters.TCP, parameters.OOB, parameters.PRTE, parameters.PMIX)

INTERFACES = CheckRow(
    id="BW224",
    name="line-interfaces",
    layer=Layer.LAUNCHER,
    title="interfaces of MPI and of its daemons",
    right="both set, to one network that connects the hosts; either an include or an exclude list",
    why=(
        "btl_tcp_if_include is only for MPI's own traffic. The daemons choose for themselves,"
        " perhaps docker0 or an interface behind a firewall, and mpirun hangs without output. With"
        " an exclude list without lo, ranks connect to themselves, and MPI over TCP hangs. Two"
        " interfaces for the daemons of Open MPI 5 crash mpirun in most runs (5.0.8, 5.0.11;"
        " openpmix/prrte#2553)."
    ),
    fix="--mca oob_tcp_if_include {netdev}",
    stays=CHANGE_SCRIPT,
    reads=("the command line", "environment", "/sys/class/net"),
    sources=(
        "Open MPI documentation, TCP, and general run-time support notes",
        "PRRTE, prte_if_include",
    ),
)
ROOT_OPTION = "allow-run-as-root"
ROOT_VARIABLES = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
NARROW_BINDINGS = ("core", "hwthread", "l1cache", "l2cache")
CPU_OPTIONS = ("cpus-per-proc", "cpus-per-rank", "cpu-set", "cpu-list", "rankfile", "rf")
MAX_RANKS_BOUND_TO_CORES = 2  # up to this many ranks Open MPI binds each to a core
POLICY_OF_OPEN_MPI_4, POLICY_OF_OPEN_MPI_5 = (
    "hwloc_base_binding_policy",
    "hwloc_default_binding_policy",
)


@rule(INTERFACES)
def check_interfaces(line: CommandLine) -> Iterator[Finding]:
    """The parameters of interfaces, on the line and in the environment."""
    if line.launcher != "mpirun":
        yield skipped("not a line of mpirun")
        return
    parameters_given = (*line.parameters, *parameters.of_environment(line.environment or {}))
    evidence = [
        Evidence(parameter.where, parameter.value)
        for parameter in parameters_given
        if parameter.name.startswith(PARTS)
    ]
    faults = list(_interface_faults(line, parameters_given, evidence))
    yield from faults
    if not evidence:
        yield skipped("the line sets no interface of MPI")
    elif not faults:
        yield passed("", "interfaces are set for MPI and its daemons", *evidence)


def _interface_faults(
    line: CommandLine, parameters_given: Sequence[McaParameter], evidence: Sequence[Evidence]
) -> Iterator[Finding]:
    contradicting = parameters.contradiction(parameters_given)
    if contradicting:
        message = f"{contradicting[0].where} and {contradicting[1].where} exclude each other"
        yield failed(
            "",
            message,
            *evidence,
            fix=filled(
                f"leave out {contradicting[1].where} {{value}}", value=contradicting[1].value
            ),
        )
    absent = next((parameter for parameter in line.parameters if _is_absent(line, parameter)), None)
    if absent:
        message = f"{absent.where} {absent.value}: this host has no such interface"
        have = Evidence("/sys/class/net", ", ".join(sorted(line.interfaces)))
        fix = f"{absent.where} NAME, or a network such as {SUBNET} where names differ between hosts"
        yield failed("", message, *evidence, have, fix=fix)
    looped = parameters.without_loopback(parameters_given)
    if looped and not needs_shell(looped.value):
        message = (
            f"{looped.where} {looped.value} has no loopback interface: MPI over TCP between hosts"
            " hangs"
        )
        report = failed if line.several else warned
        fix = filled(f"{looped.where} {{value}}", value=f"{looped.value},lo")
        yield report("", message, *evidence, fix=fix)
    crash = parameters.crashing(parameters_given, line.major)
    if crash:
        message = (
            f"{crash.where} {crash.value}: mpirun of Open MPI 5 crashes with more than one"
            " interface for its daemons"
        )
        fix = (
            f"{crash.where.replace('exclude', 'include')} {SUBNET}, the subnet that connects the"
            " hosts"
        )
        yield failed("", message, *evidence, fix=fix)
    half = parameters.unset_half(parameters_given, line.major)
    if half and line.nodes != 1:
        message = (
            f"{half.where} {half.value} is only for MPI's traffic: the daemons choose their own"
            " interface"
        )
        yield warned("", message, *evidence, fix=_fix_for_daemons(half, line.major))


def _is_absent(line: CommandLine, parameter: McaParameter) -> bool:
    names = [
        name for name in parameter.value.split(",") if "/" not in name and not needs_shell(name)
    ]
    # mpirun itself always runs here.
    parts = PARTS if line.ranks_here else (parameters.OOB, parameters.PRTE)
    listed = parameter.name.startswith(parts) and parameter.name.endswith("_include")
    return listed and bool(line.interfaces) and any(name not in line.interfaces for name in names)


def _fix_for_daemons(half: McaParameter, major: int) -> str:
    four, five = (parameters.options(parameters.for_daemons(half, version)) for version in (4, 5))
    subnet = ""
    if "SUBNET" in five and major != 4:
        subnet = f", with the subnet that connects the hosts, like {SUBNET}"
    options = f"{four} (Open MPI 4) or {five} (Open MPI 5)"
    if major:
        options = five if major >= parameters.FIVE else four
    return f"add {options}{subnet}"


MPI_VERSION = CheckRow(
    id="BW225",
    name="line-mpi-version",
    layer=Layer.LAUNCHER,
    title="parameters, compared with the Open MPI version",
    right="names of the version that runs the line",
    why=(
        "Open MPI 5 starts its daemons with PRRTE and renamed plm_rsh_args, oob_tcp_if_include "
        "and orte_*. After --mca it translates the old names (5.0.8, 5.0.11). After --prtemca it "
        "ignores plm_rsh_args, and mpirun connects to the wrong port. Open MPI 4 ignores the new "
        "names, and stops at --prtemca and --pmixmca."
    ),
    fix="--prtemca {name} {value}",
    stays=CHANGE_SCRIPT,
    reads=("the command line", "mpirun --version"),
    sources=("Open MPI 5 documentation, MCA parameters", "PRRTE documentation"),
)


@rule(MPI_VERSION)
def check_mpi_version(line: CommandLine) -> Iterator[Finding]:
    """A finding for each parameter with a name of another version."""
    if line.launcher != "mpirun" or not line.parameters:
        yield skipped("the line has no parameter of Open MPI")
        return
    if not line.major:
        yield _judge_without_version(line.parameters)
        return
    wrong = []
    for parameter in line.parameters:
        new = parameters.misplaced(parameter, line.major)
        if new:
            wrong.append((parameter, new))
    for parameter, new in wrong:
        stops = line.major < parameters.FIVE and parameter.kind != "mca"
        message = f"Open MPI {line.major} {'stops at' if stops else 'ignores'} {parameter.where}"
        report = failed if stops else warned
        evidence = Evidence(parameter.where, parameter.value, new)
        yield report("", message, evidence, fix=new)
    if not wrong:
        yield passed("", f"Open MPI {line.major} accepts these names")


def _judge_without_version(line_parameters: Sequence[McaParameter]) -> Finding:
    """The finding where the version of Open MPI is not known."""
    of_five = [parameter for parameter in line_parameters if parameters.misplaced(parameter, 4)]
    of_four = [parameter for parameter in line_parameters if parameters.misplaced(parameter, 5)]
    evidence = [Evidence(parameter.where, parameter.value, "Open MPI 5") for parameter in of_five]
    evidence += [Evidence(parameter.where, parameter.value, "Open MPI 4") for parameter in of_four]
    if not evidence:
        return passed("", "Open MPI 4 and 5 have these names")
    if not of_four and any(parameter.kind != "mca" for parameter in of_five):
        return passed("", "the line is for Open MPI 5", *evidence)
    message = "the Open MPI version is unknown, and names on the line differ between 4 and 5"
    return unknown("", message, *evidence)


ROOT = CheckRow(
    id="BW226",
    name="line-root",
    layer=Layer.LAUNCHER,
    title="mpirun as root",
    right=f"--{ROOT_OPTION}, as in most containers, or another user",
    why=(
        "Open MPI refuses to start as root without it, or without the variables"
        " OMPI_ALLOW_RUN_AS_ROOT and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM. -x sets them for the ranks,"
        " not for mpirun."
    ),
    fix=f"--{ROOT_OPTION}",
    stays=CHANGE_SCRIPT,
    reads=("the command line", "the user"),
    sources=("Open MPI documentation, mpirun, running as root",),
)


@rule(ROOT)
def check_root(line: CommandLine) -> Iterator[Finding]:
    """Whether the line lets root run mpirun."""
    if line.launcher != "mpirun":
        yield skipped("not a line of mpirun")
    elif line.root is None:
        yield skipped("the user is unknown")
    elif not line.root:
        yield passed("", "the user is not root")
    elif line.has(ROOT_OPTION):
        yield passed("", f"--{ROOT_OPTION} is given")
    elif ROOT_VARIABLES.items() <= {**(line.environment or {}), **dict(line.before)}.items():
        yield passed("", f"{' and '.join(ROOT_VARIABLES)} are set")
    else:
        yield failed(
            "",
            "mpirun refuses to run as root",
            Evidence("user here", "root"),
            fix=f"mpirun --{ROOT_OPTION} ...",
        )


BINDING = CheckRow(
    id="BW227",
    name="line-binding",
    layer=Layer.LAUNCHER,
    title="binding of ranks with GPUs",
    right="--bind-to none, or numa",
    why=(
        "NCCL's proxy and network threads run on the cores of their rank. Open MPI binds each "
        "rank to one core by default if there are at most two ranks in total, and with --bind-to "
        "core in any case. The threads then take turns on that core."
    ),
    fix="--bind-to none",
    stays=CHANGE_SCRIPT,
    reads=("the command line",),
    sources=("Open MPI documentation, mpirun, binding",),
)


@rule(BINDING)
def check_binding(line: CommandLine) -> Iterator[Finding]:
    """The binding, for nccl-tests and lines that set NCCL variables."""
    uses_nccl = perf(line) is not None or any(
        name.startswith("NCCL_") for name, _ in line.variables
    )
    if line.launcher != "mpirun" or not uses_nccl:
        yield skipped("not a line of mpirun with a program known to use NCCL")
        return
    if "pe=" in (line.value("map-by") or "").lower() or line.has(*CPU_OPTIONS):
        yield passed("", "the line gives each rank its cores")
        return
    binding = (line.value("bind-to") or _policy(line)).lower().partition(":")[0]
    if not binding and line.ranks is not None and line.ranks <= MAX_RANKS_BOUND_TO_CORES:
        evidence = Evidence("--bind-to", "not given: core for 1 and 2 ranks", "none or numa")
        bound = "1 rank without --bind-to is bound to one core"
        if line.ranks > 1:
            bound = f"{line.ranks} ranks without --bind-to are bound to one core each"
        yield warned("", bound, evidence, fix="--bind-to none")
    elif binding in NARROW_BINDINGS:
        message = f"--bind-to {binding}: NCCL's threads share it with their rank"
        yield warned(
            "", message, Evidence("--bind-to", binding, "none or numa"), fix="--bind-to none"
        )
    elif binding:
        yield passed("", f"--bind-to {binding}")
    else:
        yield passed("", "more than two ranks are bound to a NUMA node by default")


def _policy(line: CommandLine) -> str:
    """The binding that a parameter sets; '' if none does. Open MPI 5 ignores the parameter of 4."""
    names: tuple[str, ...] = (POLICY_OF_OPEN_MPI_4, POLICY_OF_OPEN_MPI_5)
    if line.major:
        names = (POLICY_OF_OPEN_MPI_4,) if line.major == 4 else (POLICY_OF_OPEN_MPI_5,)
    parameters_given = (*line.parameters, *parameters.of_environment(line.environment or {}))
    for name in names:
        parameter = parameters.find_parameter(parameters_given, name)
        if parameter:
            return parameter.value
    return ""


BTL = CheckRow(
    id="BW235",
    name="line-btl",
    layer=Layer.LAUNCHER,
    title="Open MPI's list of transports",
    right="an include list with self, or an exclude list, which begins with ^",
    why=(
        "Without self a rank cannot send to itself, and MPI_Init fails: a pair of processes, a rank"
        " and itself, cannot reach each other."
    ),
    fix="--mca btl tcp,self",
    stays=CHANGE_SCRIPT,
    reads=("the command line", "environment"),
    sources=("Open MPI documentation, general run-time support notes",),
)


@rule(BTL)
def check_btl(line: CommandLine) -> Iterator[Finding]:
    """The parameter btl, on the line or in the environment."""
    parameters_given = (*line.parameters, *parameters.of_environment(line.environment or {}))
    btl = parameters.find_parameter(parameters_given, "btl")
    pml = parameters.find_parameter(parameters_given, "pml")
    if line.launcher != "mpirun" or btl is None:
        yield skipped("the line does not set Open MPI's transports")
    elif pml and pml.value in ("ucx", "cm"):
        yield skipped("messages do not go over these transports")
    elif btl.value.startswith("^") or "self" in btl.value.split(","):
        yield passed("", f"{btl.where} {btl.value}", Evidence(btl.where, btl.value))
    else:
        message = f"{btl.where} {btl.value}: without self a rank cannot send to itself"
        yield failed(
            "",
            message,
            Evidence(btl.where, btl.value, "self in it"),
            fix=filled(f"{btl.where} {{value}}", value=f"{btl.value},self"),
        )
