"""Which algorithm and protocol NCCL takes: those with the shortest expected time among those
that it may use.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from busbw.core.collectives import collective as collective_row
from busbw.core.pattern import ALGORITHMS, PROTOCOLS
from busbw.model.nccl.constants import LL128, MODELLED, NVLS, NVLS_TREE
from busbw.model.nccl.timing import Model, Parts, parts

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
SM_WITH_LL128 = (70, 80, 90)  # before NCCL 2.23


@dataclass(frozen=True, slots=True)
class Allowed:
    """What the settings of a run leave: names of algorithms and of protocols."""

    algorithms: tuple[str, ...] = MODELLED
    protocols: tuple[str, ...] = PROTOCOLS
    forced_ll128: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """One algorithm and protocol with its expected time."""

    algorithm: str
    protocol: str
    parts: Parts


def allowed(environment: Mapping[str, str], collective: str) -> Allowed:
    """What NCCL_ALGO, NCCL_PROTO and NCCL_NVLS_ENABLE leave for a collective.

    Unknown names count as not given.
    """
    algorithms = _listed(environment.get("NCCL_ALGO", ""), collective, ALGORITHMS)
    protocols = _listed(environment.get("NCCL_PROTO", ""), collective, PROTOCOLS)
    nvls = environment.get("NCCL_NVLS_ENABLE", "").strip() != "0"
    left = tuple(
        name for name in MODELLED if name in algorithms and (nvls or name not in (NVLS, NVLS_TREE))
    )
    wanted = environment.get("NCCL_PROTO", "").strip()
    return Allowed(
        left or MODELLED,
        protocols,
        forced_ll128=bool(wanted) and not wanted.startswith("^") and LL128 in protocols,
    )


def _listed(text: str, collective: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """The names in NCCL's syntax: `ring,tree`, `^ll128`, and since 2.24 `ring;allreduce:tree`."""
    left, title = names, collective_row(collective).title.lower()
    for part in text.lower().split(";"):
        prefix, colon, tail = part.partition(":")
        listed = (tail if colon else prefix).strip()
        if not listed or (colon and prefix.strip() != title):
            continue
        given = {name.strip() for name in listed.removeprefix("^").split(",")}
        known = tuple(name for name in names if (name.lower() in given) != listed.startswith("^"))
        left = known or left
    return left


def choices(
    model: Model, collective: str, size_bytes: int, may: Allowed | None = None
) -> list[Choice]:
    """Every combination that NCCL may use, the fastest first; empty for a collective that it
    builds of sends and receives.
    """
    if collective not in COLLECTIVES:
        return []
    may = may or Allowed()
    found = [
        Choice(algorithm, protocol, timed)
        for algorithm in may.algorithms
        for protocol in may.protocols
        if (protocol != LL128 or may.forced_ll128 or has_ll128(model))
        and (timed := parts(model, collective, size_bytes, algorithm, protocol)) is not None
    ]
    return sorted(found, key=lambda choice: choice.parts.time_s)


def has_ll128(model: Model) -> bool:
    """Whether NCCL uses LL128 unasked: over NVLink or with one GPU per host, over NICs near the
    GPUs, and before 2.23 on certain GPUs.
    """
    if (
        not (model.over_nvlink or model.per_host == 1)
        or model.sm < 70
        or (model.hosts > 1 and not model.near)
    ):
        return False
    return model.release.ll128_from_100 or model.sm in SM_WITH_LL128
