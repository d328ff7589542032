"""Open MPI: its version, and its variables."""

from collections.abc import Iterator, Mapping, Sequence

from busbw.check.base import (
    ENVIRONMENT,
    check,
    failed,
    not_offered,
    passed,
    skipped,
    unread,
    warned,
)
from busbw.check.launcher import parameters, programs
from busbw.check.launcher.parameters import McaParameter
from busbw.check.launcher.programs import HOSTFILE, OPERATOR_VARIABLES
from busbw.check.machine import Machine
from busbw.check.shell_words import assignment, word
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer

FAULTS = {"5.0.5": "mishandles lists of interfaces to include or exclude (open-mpi/ompi 13155)"}

MPIRUN_VERSION = CheckRow(
    id="BW200",
    name="mpirun-version",
    layer=Layer.LAUNCHER,
    title="mpirun next to busbw's Python, else the first on PATH",
    right="Open MPI 4 or 5",
    why=(
        "Command lines of Open MPI 4 and 5 differ: interface names, ssh options and variables "
        "changed with the daemons. A line written for the other version starts, and hangs."
    ),
    fix=(
        "install Open MPI 4.1 or 5.0.8: pip install 'busbw[mpi]', or put its bin directory first in"
        " PATH"
    ),
    stays=(
        "set PATH in ~/.bashrc before its check for interactive shells; use the same version on all"
        " hosts"
    ),
    reads=("mpirun --version",),
    sources=("Open MPI 5 documentation, launching MPI applications",),
)
VARIABLES = {"OMPI_MCA_plm": 4, "PRTE_MCA_plm": 5}
PML = "OMPI_MCA_pml"
COLL = "OMPI_MCA_coll"
HCOLL = "OMPI_MCA_coll_hcoll_enable"
NET = "UCX_NET_DEVICES"
TRANSPORTS = "UCX_TLS"
RDMA = ("mlx5", "mlx4", "bnxt", "irdma", "rdmap", "all")


@check(MPIRUN_VERSION)
def check_mpirun_version(machine: Machine) -> Iterator[Finding]:
    """The version of the mpirun that busbw starts."""
    mpirun = programs.open_mpi(machine)
    if mpirun is None:
        yield unread("", programs.open_mpi_reading(machine), "the version of mpirun")
        return
    evidence = Evidence(
        f"{mpirun.path} --version", mpirun.version or mpirun.error, "Open MPI 4 or newer"
    )
    if not mpirun.path:
        yield skipped("no mpirun next to busbw's Python or on PATH; torchrun and srun need none")
    elif mpirun.error:
        yield warned("", mpirun.error, evidence, fix=MPIRUN_VERSION.fix)
    elif mpirun.version in FAULTS:
        yield warned(
            "",
            f"Open MPI {mpirun.version} {FAULTS[mpirun.version]}",
            evidence,
            fix=MPIRUN_VERSION.fix,
        )
    else:
        yield passed("", f"Open MPI {mpirun.version}", evidence)


MPIRUN_ISOLATED = CheckRow(
    id="BW201",
    name="mpirun-isolated",
    layer=Layer.LAUNCHER,
    title="OMPI_MCA_plm and PRTE_MCA_plm",
    right="not isolated",
    why=(
        "With isolated, mpirun starts ranks on its own host only. With several hosts it only"
        " reports too few slots."
    ),
    fix="unset {variable}",
    stays="remove it from the image's environment, or unset it in the job script",
    reads=("environment", "mpirun --version"),
    sources=("Open MPI documentation, MCA parameters of plm",),
)


@check(MPIRUN_ISOLATED, needs=ENVIRONMENT)
def check_mpirun_isolated(machine: Machine) -> Iterator[Finding]:
    """The variable of the installed Open MPI, or both if its version is unknown."""
    environment = machine.environment or {}
    mpirun = programs.open_mpi(machine)
    major = mpirun.major if mpirun else 0
    names = [name for name, of_major in VARIABLES.items() if major in (0, of_major)]
    values = {name: environment.get(name, "") for name in names}
    isolated = [name for name, value in values.items() if value == "isolated"]
    for name in isolated:
        message = f"{name}=isolated: mpirun starts no rank on another host"
        yield failed("", message, Evidence(f"${name}", "isolated", "not set"), fix=f"unset {name}")
    if not isolated:
        yield passed(
            "",
            "mpirun may start ranks on other hosts",
            *(Evidence(f"${name}", value or "not set") for name, value in values.items()),
        )


MPI_INTERFACES = CheckRow(
    id="BW206",
    name="mpi-interfaces",
    layer=Layer.LAUNCHER,
    title="interfaces in OMPI_MCA_ and PRTE_MCA_ variables",
    right="the same for MPI and for its daemons; either an include or an exclude list",
    why=(
        "btl_tcp_if_include is only for MPI's own traffic. The daemons choose for themselves, "
        "perhaps docker0 or an interface behind a firewall, and mpirun hangs without output. An "
        "include and an exclude list together are an error. An exclude list without lo keeps MPI "
        "from sending over TCP."
    ),
    fix="export OMPI_MCA_oob_tcp_if_include={netdev}",
    stays="set it in the job script, or in Open MPI's openmpi-mca-params.conf",
    reads=("environment", "mpirun --version"),
    sources=(
        "Open MPI documentation, TCP, and general run-time support notes",
        "PRRTE, prte_if_include",
    ),
)


@check(MPI_INTERFACES, needs=ENVIRONMENT)
def check_mpi_interfaces(machine: Machine) -> Iterator[Finding]:
    """The variables, compared with each other."""
    environment = machine.environment or {}
    variables = parameters.of_environment(environment)
    mpirun = programs.open_mpi(machine)
    major = mpirun.major if mpirun else 0
    contradicting = parameters.contradiction(variables)
    looped = parameters.without_loopback(variables)
    half, crash = parameters.unset_half(variables, major), parameters.crashing(variables, major)
    if contradicting:
        message = f"{contradicting[0].where} and {contradicting[1].where} exclude each other"
        fix = f"unset {word(contradicting[1].where.removeprefix('$'))}"
        yield failed("", message, *map(_evidence, contradicting), fix=fix)
    elif looped:
        message = (
            f"{looped.where}={looped.value} has no loopback interface: MPI cannot send over TCP"
        )
        evidence = Evidence(looped.where, looped.value, "lo in it")
        fix = f"export {assignment(looped.where[1:], f'{looped.value},lo')}"
        yield failed("", message, evidence, fix=fix)
    elif half:
        message = f"{half.where}={half.value} does not set the interface of the daemons"
        fix = f"export {parameters.variables(parameters.for_daemons(half, major))}"
        yield warned("", message, Evidence(half.where, half.value), fix=fix)
    elif crash:
        message = (
            f"{crash.where}={crash.value}: mpirun of Open MPI 5 crashes with more than one"
            " interface for its daemons"
        )
        evidence = Evidence(crash.where, crash.value, "one name or network")
        include = crash.where[1:].replace("exclude", "include")
        subnet = assignment(include, "10.1.0.0/16")
        fix = f"with the subnet that connects the hosts: export {subnet}"
        yield failed("", message, evidence, fix=fix)
    else:
        interfaces = [parameter for parameter in variables if "_if_" in parameter.name]
        message = "interfaces agree"
        if not interfaces:
            message = "no variable sets an interface of Open MPI"
        yield passed("", message, *map(_evidence, interfaces))


def _evidence(parameter: McaParameter) -> Evidence:
    return Evidence(parameter.where, parameter.value)


MPI_VARIABLES = CheckRow(
    id="BW207",
    name="mpi-variables",
    layer=Layer.LAUNCHER,
    title="OMPI_MCA_ and PRTE_MCA_ variables, compared with the mpirun version",
    right="names of the installed version",
    why=(
        "Open MPI 5 reads its daemons' settings from PRTE_MCA_ and PMIX_MCA_, and renamed many. "
        "Depending on the version it translates some old names. Open MPI 4 ignores all new ones."
    ),
    fix="export PRTE_MCA_{name}={value}",
    stays="set it in the job script or image",
    reads=("environment", "mpirun --version"),
    sources=("Open MPI 5 documentation, MCA parameters",),
)


@check(MPI_VARIABLES, needs=ENVIRONMENT)
def check_mpi_variables(machine: Machine) -> Iterator[Finding]:
    """A finding for each variable with a name of another version."""
    environment = machine.environment or {}
    variables = parameters.of_environment(environment)
    mpirun = programs.open_mpi(machine)
    if not variables:
        yield passed("", "no variable sets a parameter of Open MPI")
    elif mpirun is None:
        yield not_offered("", "the version of mpirun is not known", *map(_evidence, variables))
    elif not mpirun.major:
        yield skipped("no mpirun on PATH")
    else:
        yield from _judge_names(mpirun, variables, environment)


def _judge_names(
    mpirun: programs.OpenMpi, variables: Sequence[McaParameter], environment: Mapping[str, str]
) -> Iterator[Finding]:
    # An MPIJob sets names of Open MPI 4 for all images.
    operator_names = {HOSTFILE, *OPERATOR_VARIABLES} if HOSTFILE in environment else set()
    strange = False
    for parameter in variables:
        variable = parameter.where.removeprefix("$")
        new = parameters.misplaced(parameter, mpirun.major)
        if not new or variable in operator_names:
            continue
        strange = True
        message = (
            f"Open MPI {mpirun.version} may ignore {parameter.where}, a name of another major"
            " version"
        )
        fix = f"unset {word(variable)}; export {_as_assignment(new)}"
        yield warned("", message, _evidence(parameter), fix=fix)
    if not strange:
        yield passed("", f"all are names of Open MPI {mpirun.major}", *map(_evidence, variables))


def _as_assignment(option: str) -> str:
    kind, name, value = option.removeprefix("--").split(" ", 2)
    prefixes = {kind: prefix for prefix, kind in parameters.PREFIXES.items()}
    return assignment(f"{prefixes[kind]}{name}", value)


MPI_TRANSPORT = CheckRow(
    id="BW209",
    name="mpi-transport",
    layer=Layer.LAUNCHER,
    title="transport of MPI when NCCL moves the data",
    right="TCP: pml ob1, or UCX on an interface without RDMA; no hcoll",
    why=(
        "In nccl-tests and most training, MPI only starts the ranks. UCX opens queue pairs on "
        "the ports that NCCL uses, and hcoll may offload to the same switches. A fault in either "
        "stops the start."
    ),
    fix="export OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,self OMPI_MCA_coll=^hcoll",
    stays="set it in the job script",
    reads=("environment",),
    sources=(
        "Open MPI documentation, point-to-point messaging",
        "OpenUCX documentation, environment variables",
    ),
)


@check(MPI_TRANSPORT, needs=ENVIRONMENT)
def check_mpi_transport(machine: Machine) -> Iterator[Finding]:
    """The transport that variables choose for MPI."""
    environment = machine.environment or {}
    evidence = [
        Evidence(f"${name}", environment[name])
        for name in (PML, COLL, HCOLL, NET, TRANSPORTS)
        if name in environment
    ]
    coll = environment.get(COLL, "")
    hcoll_set = environment.get(HCOLL, "0").lower() not in ("0", "false")
    hcoll_listed = "hcoll" in coll.split(",") and not coll.startswith("^")
    pml, devices = environment.get(PML), environment.get(NET, "all")
    over_tcp = _only_tcp(devices, environment.get(TRANSPORTS, "all"))
    if hcoll_set or hcoll_listed:
        yield warned(
            "",
            "hcoll is on: MPI's collectives use the network's offloads",
            *evidence,
            fix=MPI_TRANSPORT.fix,
        )
    elif pml == "ucx" and not over_tcp:
        yield warned(
            "",
            f"{PML}=ucx without {NET} on an interface: MPI and NCCL both use RDMA",
            *evidence,
            fix=MPI_TRANSPORT.fix,
        )
    elif pml is None and NET in environment and not over_tcp:
        yield warned(
            "",
            f"{NET}={devices}: if Open MPI was built with UCX, MPI and NCCL both use RDMA",
            *evidence,
            fix=MPI_TRANSPORT.fix,
        )
    else:
        yield passed(
            "",
            "MPI is not set to RDMA" if evidence else "no variable sets MPI's transport",
            *evidence,
        )


def _only_tcp(devices: str, transports: str) -> bool:
    """Whether UCX is kept to interfaces without RDMA."""
    if not any(device.startswith(RDMA) for device in devices.split(",")):
        return True
    return set(transports.split(",")) <= {"tcp", "self", "sm"}
