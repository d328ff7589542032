"""What differs between the set-ups of two runs of one machine: NCCL, drivers, kernel, packages,
settings.
"""

import re

from busbw.core.result import Outcome
from busbw.ui.number_formats import nccl_version_text

# others name processes and paths, which differ from run to run
SETTING = re.compile(r"NCCL_|UCX_|OMPI_MCA_(btl|coll|pml)")


def changes(before: Outcome, after: Outcome) -> list[str]:
    """`NCCL 2.27.3 -> 2.28.9`, `NCCL_ALGO unset -> Ring`: what both results know and differs.

    Logs do not know what is unset.
    """
    first, second = _software(before), _software(after)
    if before.tool == after.tool == "busbw":
        settings = sorted(
            name
            for name in before.environment.keys() | after.environment.keys()
            if SETTING.match(name)
        )
        first |= {name: before.environment.get(name, "unset") for name in settings}
        second |= {name: after.environment.get(name, "unset") for name in settings}
    return [
        f"{name} {value} -> {second[name]}"
        for name, value in first.items()
        if second.get(name, value) != value
    ]


def _software(result: Outcome) -> dict[str, str]:
    """Names and versions, only those that are known; of several hosts each value once."""
    hosts = result.topology.hosts
    facts = {
        "NCCL": nccl_version_text(result.library.nccl) if result.library.nccl else "",
        **result.library.versions,
    }
    facts |= {"network": result.library.network}
    for name in ("driver", "kernel"):
        facts[name] = ", ".join(sorted({value for host in hosts if (value := getattr(host, name))}))
    return {name: value for name, value in facts.items() if value}
