"""Open MPI's parameters: names by major version, and interfaces that are set for a part of it only.

Used for variables (OMPI_MCA_, PRTE_MCA_, PMIX_MCA_) and for command lines (--mca, --prtemca, --pmixmca).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from shlex import quote

PREFIXES = {"OMPI_MCA_": "mca", "PRTE_MCA_": "prtemca", "PMIX_MCA_": "pmixmca"}
RENAMED = (("plm_rsh_", "plm_ssh_"), ("oob_tcp_if_", "prte_if_"), ("orte_", "prte_"))  # from Open MPI 4 to 5
TCP, OOB, PRTE, PMIX = "btl_tcp_if", "oob_tcp_if", "prte_if", "ptl_tcp_if"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter. `where` is how it was given: `--mca NAME` or `$OMPI_MCA_NAME`."""

    kind: str
    name: str
    value: str
    where: str


def of_environment(environment: Mapping[str, str]) -> tuple[Parameter, ...]:
    """The parameters that variables set."""
    found = []
    for variable, value in environment.items():
        prefix = next((one for one in PREFIXES if variable.startswith(one)), None)
        if prefix:
            found.append(Parameter(PREFIXES[prefix], variable.removeprefix(prefix), value, f"${variable}"))
    return tuple(found)


def given(parameters: Sequence[Parameter], name: str) -> Parameter | None:
    """The first of this name."""
    return next((one for one in parameters if one.name == name), None)


def contradiction(parameters: Sequence[Parameter]) -> tuple[Parameter, Parameter] | None:
    """An include and an exclude of the same part, which exclude each other."""
    for part in (TCP, OOB, PRTE, PMIX):
        include, exclude = given(parameters, f"{part}_include"), given(parameters, f"{part}_exclude")
        if include and exclude:
            return include, exclude
    return None


def without_loopback(parameters: Sequence[Parameter]) -> Parameter | None:
    """A list of interfaces to exclude that replaces Open MPI's own, which has the loopback interface."""
    exclude = given(parameters, f"{TCP}_exclude")
    listed = exclude.value.split(",") if exclude else []
    return None if any(one == "lo" or one.startswith("127.") for one in listed) else exclude


def unset_half(parameters: Sequence[Parameter], major: int) -> tuple[Parameter, str] | None:
    """The interface of MPI's own traffic where the daemons' one is left to chance, and the options that set it. `major` 0: not known."""
    for sign in ("include", "exclude"):
        traffic = given(parameters, f"{TCP}_{sign}")
        if traffic is None:
            continue
        names = [f"{OOB}_{sign}", f"{PRTE}_{sign}"] if major == 0 else [f"{PRTE}_{sign}" if major >= 5 else f"{OOB}_{sign}"]
        if any(given(parameters, name) for name in names) or (major >= 5 and given(parameters, f"{OOB}_{sign}")):
            return None
        return traffic, options(traffic.value, sign, major)
    return None


def options(value: str, sign: str, major: int) -> str:
    """The options that set the daemons' interface."""
    four, five = f"--mca {OOB}_{sign} {value}", f"--prtemca {PRTE}_{sign} {value} --pmixmca {PMIX}_{sign} {value}"
    return five if major >= 5 else four if major else f"{four} (Open MPI 4) or {five} (Open MPI 5)"


def misplaced(parameter: Parameter, major: int) -> str:
    """What to write in place of a parameter that Open MPI `major` has under another name; '' if it is at home there.

    Open MPI 5 starts its daemons with PRRTE: plm_rsh_* became plm_ssh_*, orte_* became prte_*, oob_tcp_if_* became prte_if_*. PRRTE
    translates some of the old names; which ones depends on its version. PMIX_MCA_ is read by both.
    """
    name, value = parameter.name, parameter.value
    if major >= 5:
        new = _renamed(name)
        return "" if new == name else f"--prtemca {new} {quote(value)}"
    old = _renamed(name, back=True)
    return "" if old == name and parameter.kind != "prtemca" else f"--mca {old} {quote(value)}"


def _renamed(name: str, *, back: bool = False) -> str:
    for four, five in RENAMED:
        before, after = (five, four) if back else (four, five)
        if name.startswith(before):
            return after + name.removeprefix(before)
    return name
