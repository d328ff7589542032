"""The seconds that the bytes of an operation take on each kind of link, if nothing else limits
them: the load of links that `busbw explain` prints.
"""

from busbw.core.collectives import Collective
from busbw.model.bounds import ALGORITHMS
from busbw.model.estimate import EstimateInputs, narrow_links


def link_times(
    setting: EstimateInputs,
    row: Collective,
    hosts: int,
    per_host: int,
    size_bytes: int,
    algorithm: str,
) -> tuple[float, float]:
    """The seconds on a GPU's links to its peers, and on a NIC; 0 for links that are not used."""
    fabric = narrow_links(setting, row.name, algorithm, hosts, per_host)
    busbw_bytes = size_bytes * float(row.bus_factor(hosts * per_host))
    gpu_s = nic_s = 0.0
    for possible in ALGORITHMS:
        if possible.name != algorithm or row.name not in possible.collectives:
            continue
        if not possible.runs(fabric, setting.system.features()):
            continue
        factor = float(row.bus_factor(hosts * per_host)) if possible.times_factor else 1.0
        for term in possible.terms(fabric):
            if term.link == fabric.nic_link:
                nic_s = busbw_bytes / factor / term.rate
            elif term.link == fabric.gpu_link:
                gpu_s = busbw_bytes / factor / term.rate
        break
    return gpu_s, nic_s
