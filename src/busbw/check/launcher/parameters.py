"""Open MPI's MCA parameters: names by major version, and interfaces set for only a part of it.

They come from variables (OMPI_MCA_, PRTE_MCA_, PMIX_MCA_) and command lines (--mca, --prtemca,
--pmixmca).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from busbw.check.shell_words import word

PREFIXES = {"OMPI_MCA_": "mca", "PRTE_MCA_": "prtemca", "PMIX_MCA_": "pmixmca"}
# Prefixes of names that Open MPI 5 changed, with the new ones.
RENAMED = (("plm_rsh_", "plm_ssh_"), ("oob_tcp_if_", "prte_if_"), ("orte_", "prte_"))
# Old prefixes that mpirun of Open MPI 5 (5.0.8 and 5.0.11) translates after --mca, but not in
# variables.
TRANSLATED = ("plm_rsh_", "oob_tcp_if_", "orte_")
TCP, OOB, PRTE, PMIX = "btl_tcp_if", "oob_tcp_if", "prte_if", "ptl_tcp_if"
FIVE = 5  # the version with PRRTE


@dataclass(frozen=True, slots=True)
class McaParameter:
    """One parameter. `where` is how it was given: `--mca NAME` or `$OMPI_MCA_NAME`."""

    kind: str
    name: str
    value: str
    where: str


def of_environment(environment: Mapping[str, str]) -> tuple[McaParameter, ...]:
    """The parameters that variables set."""
    parameters = []
    for variable, value in environment.items():
        prefix = next((known for known in PREFIXES if variable.startswith(known)), None)
        if prefix:
            parameters.append(
                McaParameter(PREFIXES[prefix], variable.removeprefix(prefix), value, f"${variable}")
            )
    return tuple(parameters)


def find_parameter(parameters: Sequence[McaParameter], name: str) -> McaParameter | None:
    return next((parameter for parameter in parameters if parameter.name == name), None)


def contradiction(parameters: Sequence[McaParameter]) -> tuple[McaParameter, McaParameter] | None:
    """An include and an exclude list for the same part, which exclude each other."""
    for part in (TCP, OOB, PRTE, PMIX):
        include = find_parameter(parameters, f"{part}_include")
        exclude = find_parameter(parameters, f"{part}_exclude")
        if include and exclude:
            return include, exclude
    return None


def without_loopback(parameters: Sequence[McaParameter]) -> McaParameter | None:
    """An exclude list that replaces Open MPI's default, which contains the loopback interface."""
    exclude = find_parameter(parameters, f"{TCP}_exclude")
    listed = exclude.value.split(",") if exclude else []
    return None if any(entry == "lo" or entry.startswith("127.") for entry in listed) else exclude


def _parameters_of_daemons(parameters: Sequence[McaParameter], major: int) -> list[McaParameter]:
    """The parameters that set the interfaces of Open MPI's daemons.

    `major` is its version, 0 for 4 or 5.
    """
    old = [
        parameter
        for parameter in parameters
        if parameter.name.startswith(OOB) and (major < FIVE or _is_translated(parameter))
    ]
    new = [
        parameter
        for parameter in parameters
        if parameter.name.startswith(PRTE)
        and (parameter.kind == "prtemca" or parameter.where.startswith("-"))
    ]
    return old + new if major == 0 or major >= FIVE else old


def crashing(parameters: Sequence[McaParameter], major: int) -> McaParameter | None:
    """A list of two or more interfaces for the daemons of Open MPI 5.

    Its mpirun crashes then in most runs (openpmix/prrte#2553).
    """
    for parameter in _parameters_of_daemons(parameters, major):
        entries = parameter.value.split(",")
        named = len(entries) > 1 and any("/" not in entry for entry in entries)
        if named and (major == FIVE or (major == 0 and parameter.name.startswith(PRTE))):
            return parameter
    return None


def unset_half(parameters: Sequence[McaParameter], major: int) -> McaParameter | None:
    """The parameter for MPI's own traffic if none sets the daemons' interface; `major` may be 0."""
    if _parameters_of_daemons(parameters, major):
        return None
    include = find_parameter(parameters, f"{TCP}_include")
    return include or find_parameter(parameters, f"{TCP}_exclude")


def for_daemons(traffic: McaParameter, major: int) -> list[McaParameter]:
    """Parameters that give the daemons the interface of MPI's traffic.

    Open MPI 5 gets a single include, as a list crashes it.
    """
    sign = traffic.name.rpartition("_")[2]
    if major < FIVE:
        return [McaParameter("mca", f"{OOB}_{sign}", traffic.value, "")]
    interface = traffic.value.partition(",")[0] if sign == "include" else "SUBNET"
    return [
        McaParameter("prtemca", f"{PRTE}_include", interface, ""),
        McaParameter("pmixmca", f"{PMIX}_include", interface, ""),
    ]


def options(parameters: Sequence[McaParameter]) -> str:
    """Parameters as they are written on a command line."""
    return " ".join(
        f"--{parameter.kind} {parameter.name} {word(parameter.value)}" for parameter in parameters
    )


def variables(parameters: Sequence[McaParameter]) -> str:
    """Parameters as they are set in the environment."""
    prefixes = {kind: prefix for prefix, kind in PREFIXES.items()}
    return " ".join(
        f"{prefixes[parameter.kind]}{parameter.name}={word(parameter.value)}"
        for parameter in parameters
    )


def misplaced(parameter: McaParameter, major: int) -> str:
    """What to write instead of a parameter that Open MPI `major` has under another name.

    '' if the name is right. Open MPI 5 starts its daemons with PRRTE: plm_rsh_* became plm_ssh_*,
    orte_* became prte_*, oob_tcp_if_* became prte_if_*. Its mpirun translates the old names after
    --mca. It ignores them in variables, and plm_rsh_* after --prtemca. Open MPI 4 has no --prtemca
    and no --pmixmca, but reads PMIX_MCA_.
    """
    name, value = parameter.name, parameter.value
    if major >= FIVE:
        new = _rename(name)
        return "" if new == name or _is_translated(parameter) else f"--prtemca {new} {word(value)}"
    if parameter.kind == "pmixmca":
        if parameter.where.startswith("$"):
            return ""
        return f"leave out {parameter.where} {word(value)}"
    old = _rename(name, back=True)
    return "" if old == name and parameter.kind == "mca" else f"--mca {old} {word(value)}"


def _is_translated(parameter: McaParameter) -> bool:
    """Whether mpirun of Open MPI 5 takes an old name for the new one."""
    oob = parameter.kind == "prtemca" and parameter.name.startswith("oob_tcp_if_")
    return oob or (
        parameter.where.startswith("-")
        and parameter.kind == "mca"
        and parameter.name.startswith(TRANSLATED)
    )


def _rename(name: str, *, back: bool = False) -> str:
    for four, five in RENAMED:
        before, after = (five, four) if back else (four, five)
        if name.startswith(before):
            return after + name.removeprefix(before)
    return name
