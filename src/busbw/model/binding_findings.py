"""The finding on ranks that are bound to fewer processors than they are, which delays
collectives on GPUs too when the host is busy.
"""

from busbw.core.finding import Verdict
from busbw.core.result import SHARED_PROCESSORS, RankDevice
from busbw.host.settings import cpu_set
from busbw.model.rule import Conclusion, FindingRule, Run

MAX_NAMED_RANKS = 4  # ranks
EVIDENCE = "Cpus_allowed_list in /proc/self/status of each rank"
FIX = (
    "give each rank processors of its own (mpirun --bind-to core, srun --cpu-bind=cores), and start"
    " busbw without taskset or numactl -C"
)


def _find_shared_processors(run: Run) -> Conclusion | None:
    """The first host with more processes bound to a set of processors than the set has."""
    host_cpus = {host.hostname: host.cpus for host in run.topology.hosts}
    bound: dict[tuple[str, str], list[RankDevice]] = {}
    for device in run.result.world.devices:
        bound.setdefault((device.host, device.cpus), []).append(device)
    for (host, cpus), devices in bound.items():
        processors = len(cpu_set(cpus))
        processes = len({device.pid for device in devices})
        narrowed = 0 < processors < host_cpus.get(host, 0)
        if narrowed and processors < processes:
            return Conclusion(
                Verdict.WARN, _message(host, cpus, processors, devices), EVIDENCE, FIX
            )
    return None


def _message(host: str, cpus: str, processors: int, devices: list[RankDevice]) -> str:
    ranks = ", ".join(str(device.rank) for device in devices[:MAX_NAMED_RANKS])
    others = f" and {len(devices) - MAX_NAMED_RANKS} more" if len(devices) > MAX_NAMED_RANKS else ""
    where = f"{processors} processors ({cpus})"
    if processors == 1:
        where = f"processor {cpus} alone"
    return f"ranks {ranks}{others} on {host} are bound to {where}, so they take turns"


RULES = (
    FindingRule(
        SHARED_PROCESSORS,
        (Verdict.WARN,),
        "ranks of a host are bound to fewer processors than they are, although the host has more",
        _find_shared_processors,
    ),
)
