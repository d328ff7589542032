"""Facts of a host that show a fault which a mute accepts: they are no difference between hosts.

A value is of a muted fault if a muted finding read the same value of the same part, or of the same
file, or if a muted check is one of those that find their faults in the fact, and none of these has
a finding that counts. A port that is down has no rate and no addresses, whatever its link would
have.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from busbw.check.facts import FILES, OF_LINK, Values, facts_by_part
from busbw.check.machine import Machine
from busbw.check.types import CheckReport, Evidence, MutedFinding, NodeFindings
from busbw.core.finding import Verdict

WHOLE = ""  # stands for the node, where a fact is not of parts
_LOST_GPU = ("gpu-count", "gpu-missing", "gpu-driver", "gpu-nouveau", "expect-gpus")
_LOST_PORT = ("nic-present", "nic-missing", "nic-state", "expect-ports")
_RDMA, _ROCE, _OTHER = "of RDMA ports", "of RoCE ports", "of other interfaces"
_BOND, _OF_FILE = "bond ", "variable in a file"
# The checks whose faults change a fact.
SHOWN_BY: dict[str, tuple[str, ...]] = {
    "GPUs": _LOST_GPU,
    "GPU model": _LOST_GPU,
    "PCI addresses of the GPUs in NVML": _LOST_GPU,
    "NVLinks per GPU": (*_LOST_GPU, "nvlink-links", "expect-nvlinks"),
    "NVIDIA driver": ("gpu-count", "gpu-driver", "gpu-nouveau", "expect-versions"),
    "NVIDIA kernel module": ("gpu-driver", "gpu-nouveau", "gpudirect-path", "expect-versions"),
    "nvidia_peermem": ("gpu-driver", "gpu-nouveau", "gpudirect-path"),
    "operating system": ("expect-versions",),
    "CPUs": ("expect-cpus",),
    "memory, GiB": ("expect-memory",),
    "kernel option iommu": ("pcie-iommu",),
    "kernel option intel_iommu": ("pcie-iommu",),
    "kernel option amd_iommu": ("pcie-iommu",),
    "kernel option isolcpus": ("cpu-isolated",),
    "kernel option hugepages": ("mem-hugepages",),
    "locked memory limit": ("memlock",),
    "open file limit": ("open-files",),
    "stack size limit": ("stack",),
    "RDMA ports": _LOST_PORT,
    f"PCI addresses {_RDMA}": _LOST_PORT,
    f"interfaces {_RDMA}": (*_LOST_PORT, "nic-netdev"),
    f"firmware {_RDMA}": ("nic-firmware", "expect-ports"),
    f"rate {_RDMA}": ("nic-rate", "expect-ports"),
    f"state {_RDMA}": ("nic-state", "nic-physical-state", "expect-ports"),
    f"link layer {_RDMA}": ("nic-link-layer", "expect-ports"),
    f"partition keys {_RDMA}": ("nic-link-layer", "nic-pkey"),
    f"GID indices for RoCE v2 {_RDMA}": ("nic-gid", "nic-gid-order", "nic-link-layer"),
    f"MTU {_RDMA}": ("nic-mtu", "nic-mtu-equal", "nic-netdev"),
    f"driver {_RDMA}": ("nic-driver", "nic-netdev"),
    f"trust mode {_ROCE}": ("roce-trust", "roce-alike"),
    f"flow control {_ROCE}": ("roce-pfc", "roce-alike"),
    f"notification point {_ROCE}": ("roce-ecn", "roce-alike"),
    f"reaction point {_ROCE}": ("roce-ecn", "roce-alike"),
    f"traffic class {_ROCE}": ("roce-traffic-class", "roce-alike"),
    f"RDMA-CM type of service {_ROCE}": ("roce-cm-tos", "roce-alike"),
    f"DSCP of CNPs {_ROCE}": ("roce-alike",),
    "files that set RoCE at boot": ("roce-at-start",),
    "other interfaces": ("expect-interfaces",),
    f"MTU {_OTHER}": ("expect-interfaces", "nic-erdma-mtu"),
    f"rate {_OTHER}": ("expect-interfaces",),
    _BOND: ("nic-bond",),
    "NCCL": ("nccl-libraries",),
    _OF_FILE: ("nccl-conf-files",),
    "mpirun": ("mpirun-version",),
}


def note_accepted(node: NodeFindings, machine: Machine) -> None:
    """Note in the node the values of each part, and which of them show a muted fault."""
    by_part = facts_by_part(machine)
    node.parts = {fact: value for fact, value in by_part.items() if not isinstance(value, str)}
    # The fault may have taken a fact away.
    places = (entry.where for of in node.report.muted for entry in of.finding.evidence)
    variables = [place for place in places if place.startswith("$")]
    missing: dict[str, Values] = dict.fromkeys([*SHOWN_BY, *variables], "")
    for fact, value in (missing | by_part).items():
        accepted = list(_accepted_parts(fact, value, node.report, machine))
        if accepted:
            node.accepted[fact] = accepted


def _accepted_parts(
    fact: str, value: Values, report: CheckReport, machine: Machine
) -> Iterator[str]:
    muted, showing = report.muted, _showing(fact, report)
    if isinstance(value, str):
        places = {entry.where for of in muted for entry in of.finding.evidence}
        if showing or places & {fact, FILES.get(fact)}:
            yield WHOLE
        return
    if any(not of.finding.subject for of in showing):
        yield WHOLE
        return
    netdevs = {port.name: port.netdev for port in machine.ports}
    down = {port.name for port in machine.ports if not port.active}
    for part, seen in value.items():
        names = {part, *part.split(), netdevs.get(part) or part}
        read = [entry for of in muted for entry in _read_of(of, names)]
        without_link = fact in OF_LINK and part in down and any(map(_is_state, read))
        shown = any(of.finding.subject in names or _read_of(of, names) for of in showing)
        if shown or without_link or any(entry.seen == seen for entry in read):
            yield part


def _showing(fact: str, report: CheckReport) -> list[MutedFinding]:
    """The muted findings of the checks whose faults change a fact; none if one of these checks has
    a finding that counts.
    """
    kind = _BOND if fact.startswith(_BOND) else fact
    checks = SHOWN_BY.get(_OF_FILE if " in /" in fact else kind, ())
    bad = (Verdict.FAIL, Verdict.WARN)
    if any(finding.name in checks and finding.verdict in bad for finding in report.findings):
        return []
    return [of for of in report.muted if of.finding.name in checks]


def _read_of(muted: MutedFinding, names: set[str]) -> list[Evidence]:
    """What a muted finding read of a part with these names."""
    evidence = muted.finding.evidence
    if muted.finding.subject in names:
        return list(evidence)
    return [entry for entry in evidence if names & set(entry.where.split("/"))]


def _is_state(entry: Evidence) -> bool:
    return entry.where.endswith(("/state", "/phys_state"))


def left_out(nodes: Mapping[str, NodeFindings]) -> set[tuple[str, str]]:
    """The facts that are not compared on a host, as (host, fact): but for values of muted faults
    they are what most of the hosts have that have the same values elsewhere.
    """
    return {
        (host, fact)
        for host, node in nodes.items()
        for fact, parts in node.accepted.items()
        if parts == [WHOLE] or _is_usual_elsewhere(host, fact, parts, nodes)
    }


def _is_usual_elsewhere(
    host: str, fact: str, parts: list[str], nodes: Mapping[str, NodeFindings]
) -> bool:
    """Whether all parts but these have the values that they have on the most other hosts."""
    others = [node for name, node in nodes.items() if name != host and fact not in node.accepted]
    count = Counter(node.facts.get(fact) for node in others)
    if not count:
        return True
    usual = count.most_common(1)[0][0]
    example = next(node for node in others if node.facts.get(fact) == usual)
    return same_but_for(parts, nodes[host].parts[fact], example.parts.get(fact, {}))


def is_accepted(fact: str, before: NodeFindings, after: NodeFindings) -> bool:
    """Whether a fact of a host has changed only where a fault is muted."""
    if not (before.compared and after.compared):
        return True
    parts = [*before.accepted.get(fact, ()), *after.accepted.get(fact, ())]
    values = before.parts.get(fact, {}), after.parts.get(fact, {})
    return bool(parts) and (WHOLE in parts or same_but_for(parts, *values))


def same_but_for(parts: list[str], values: Mapping[str, str], others: Mapping[str, str]) -> bool:
    """Whether two hosts have the same values of a fact in all parts but these."""
    names = {*values, *others} - set(parts)
    return all(values.get(name) == others.get(name) for name in names)
