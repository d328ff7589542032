"""What a reference curve was measured on, as options would describe it."""

from dataclasses import replace
from functools import cache

from busbw.core.errors import UsageError
from busbw.model.estimate import EstimateInputs, by_links
from busbw.model.nccl.choice import AllowedAlgorithms, ExpectedChoice
from busbw.model.nccl.constants import MODELLED, fitted_release, release
from busbw.model.networks import networks
from busbw.model.reference.curves import ReferenceCurve
from busbw.model.reference.similar import ReferenceJob, nics_rate, rails
from busbw.model.systems import parse_system, with_nics

SHARP = "SHARP"  # of a source: reduction in the network's switches, by whichever algorithm


@cache
def setting_of(curve: ReferenceCurve) -> EstimateInputs:
    system = parse_system(f"{curve.gpu}x{curve.per_host}")
    if curve.nics:
        system = with_nics(system, curve.nics)
    if curve.fabric:
        system = replace(system, network=networks()[curve.fabric])
    system = replace(system, collnet=curve.algorithm == SHARP)
    may = AllowedAlgorithms()
    if curve.algorithm in MODELLED:
        may = AllowedAlgorithms(algorithms=(curve.algorithm,))
    nccl = release(curve.nccl) if curve.nccl else fitted_release()
    return EstimateInputs(system, nccl, may, dtype=curve.dtype or "float")


def job_of(curve: ReferenceCurve) -> ReferenceJob:
    return ReferenceJob(
        curve.gpu,
        curve.collective,
        curve.hosts,
        curve.per_host,
        nics_rate(curve.nics),
        rails(curve.nics, curve.per_host),
        curve.fabric,
        curve.dtype or "float",
    )


@cache
def choice_of(curve: ReferenceCurve, size_bytes: int) -> ExpectedChoice | None:
    """What NCCL's model expects of a size of a curve's job; None for a system, perhaps a user's
    own, that options cannot describe.
    """
    try:
        setting = setting_of(curve)
    except UsageError:
        return None
    return by_links(setting, curve.collective, curve.hosts, curve.per_host, size_bytes)
