"""Notes under a prediction on the network above the leaf switches, where it is oversubscribed."""

from collections.abc import Sequence

from busbw.core.sizes import counted
from busbw.model.bounds import P2P
from busbw.model.estimate import EstimateInputs
from busbw.model.types import Forecast

OF_COMMS = "the hosts of each communicator decide how much crosses the spine"


def spine_notes(setting: EstimateInputs, answers: Sequence[tuple[str, Forecast]]) -> list[str]:
    """How much of the traffic crosses the spine, and what that leaves of the NICs' rate; `answers`
    are collectives and their forecasts, none for a recorded application.
    """
    spine = setting.spine
    notes = []
    over = f"oversubscription {spine.oversubscription:g}"
    if spine.oversubscription > 1 and not spine.hosts_per_leaf:
        notes.append(
            f"{over}: traffic between hosts has 1/{spine.oversubscription:g} of the NICs' rate, as"
            " if all of it crossed the spine; --hosts-per-leaf says what does not"
        )
    if spine.hosts_per_leaf:
        crossings = _crossings(setting, answers) if answers else [OF_COMMS]
        leaf = f"{counted(spine.hosts_per_leaf, 'host')} under each leaf switch"
        notes += [f"{over}, {leaf}: {crossing}" for crossing in crossings]
    if spine.uplinks:
        notes.append(
            "the slow end of the range counts the collisions to expect where ECMP hashes the flows"
            f" of a leaf switch to {counted(spine.uplinks, 'uplink')} at random: an assumption, not"
            " a measurement"
        )
    return notes


def _crossings(setting: EstimateInputs, answers: Sequence[tuple[str, Forecast]]) -> list[str]:
    """For each algorithm, what the spine leaves of the NICs' rate on the most hosts."""
    between = [(collective, row) for collective, row in answers if row.hosts > 1]
    largest = max((row.hosts for _, row in between), default=0)
    texts = []
    for collective, row in between:
        share = setting.spine_share(collective, row.algorithm, row.hosts)
        if row.hosts < largest:
            continue
        per_host = row.ranks // row.hosts
        divisor = setting.nic_divisor(collective, row.algorithm, row.hosts, per_host)
        left = f"1/{divisor:.3g} of their rate" if divisor > 1 else "their whole rate"
        name = collective if row.algorithm == P2P else row.algorithm
        texts.append(
            f"{100 * share:.2g} % of what the NICs send in {name} on"
            f" {counted(row.hosts, 'host')} crosses the spine, which leaves them {left}"
        )
    return list(dict.fromkeys(texts))
