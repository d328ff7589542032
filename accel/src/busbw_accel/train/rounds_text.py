"""Texts of figures with their intervals over rounds, and of figures that contradict each other."""

from collections.abc import Sequence

from busbw.core.result import Outcome
from busbw.core.sizes import counted
from busbw.stats.rounds import Bound, Interval, RoundValues, is_too_wide

MS = 1e3
# From here on half intervals are in scientific notation: the figure is unknown
LARGE_HALF_WIDTH = 1e5
NOTE = "+- is the 95 % interval over {rounds} rounds, by Student's t"


def plus_minus(value: float, interval: Interval | None, scale: float, decimals: int) -> str:
    """A value and the wider side of its interval, if there is one: `523.10 +-4.20`.

    The unit is 1/scale.
    """
    text = f"{scale * value:.{decimals}f}"
    if interval is None:
        return text
    half = scale * max(interval.high - value, value - interval.low)
    return f"{text} +-{half:.{decimals}f}" if half < LARGE_HALF_WIDTH else f"{text} +-{half:.0e}"


def percent_plus_minus(share: float, interval: Interval | None) -> str:
    """A share with its interval: `90.4 % +-0.7`.

    For an `unclear` interval, whose ends are not equally far from the value: `12.1 - 88.0 %`.
    """
    if interval is not None and is_too_wide(interval):
        return f"{100 * interval.low:.1f} - {100 * interval.high:.1f} %"
    value, plus, half = plus_minus(share, interval, 100, 1).partition(" +-")
    return f"{value} %{plus}{half}"


def note(rounds: int) -> str:
    """A note on the meaning of `+-`; '' for a single round, which has no interval."""
    return NOTE.format(rounds=rounds) if rounds > 1 else ""


def contradiction_text(lead: str, bounds: Sequence[Bound], result: Outcome, rounds: int) -> str:
    """`lead`, the figures that contradict each other, and what to do; '' without any."""
    if not bounds:
        return ""
    lines = dict.fromkeys(f"  {_bound(bound)}\n" for bound in bounds)
    return (
        f"\n{lead}: figures contradict each other:\n"
        f"{''.join(lines)}"
        f"hint: {remedy(result, rounds)}\n"
    )


def unclear_text(
    lead: str, name: str, interval: Interval, base: str, result: Outcome, rounds: int
) -> str:
    """`lead`, the uncertain share of `base` that a method reaches, and what to do."""
    between = f"between {100 * interval.low:.1f} and {100 * interval.high:.1f} % of {base}"
    return f"\n{lead}: {name} is {between}\nhint: {remedy(result, rounds)}\n"


def _bound(bound: Bound) -> str:
    if not any(bound.figure.values):
        return f"{_figure(bound.limit)}: no time is negative"
    return f"{_figure(bound.figure)}, more than {_figure(bound.limit)}"


def _figure(figure: RoundValues) -> str:
    """`a step alone 141.20 ms (139.80 to 142.60)`."""
    scale, decimals, unit = (100.0, 1, "%") if figure.share else (MS, 2, "ms")
    text = f"{figure.name} {scale * figure.value:.{decimals}f} {unit}"
    interval = figure.interval
    if interval is None or interval.low == interval.high:
        return text
    return f"{text} ({scale * interval.low:.{decimals}f} to {scale * interval.high:.{decimals}f})"


def remedy(result: Outcome, rounds: int) -> str:
    """Advice that makes figures vary less."""
    crowded = crowding(result)
    first = "measure while nothing else runs on these hosts"
    if crowded:
        first = f"{crowded}: start at most one for each core"
    return f"{first}, or measure for longer: --rounds {2 * rounds}"


def crowding(result: Outcome) -> str:
    """`4 ranks share 2 cores` if a machine has more ranks that compute on CPUs than cores, else ''.

    Hosts with the same boot id are containers or emulated hosts on one machine.
    """
    if any(device.bus for device in result.world.devices):
        return ""
    machines = {
        host.hostname: (host.boot_id or host.hostname, host.cpus) for host in result.topology.hosts
    }
    ranks: dict[tuple[str, int], int] = {}
    for device in result.world.devices:
        if device.host in machines:
            machine = machines[device.host]
            ranks[machine] = ranks.get(machine, 0) + 1
    crowded = [(count, cores) for (_, cores), count in ranks.items() if 0 < cores < count]
    if not crowded:
        return ""
    count, cores = crowded[0]
    return f"{counted(count, 'rank')} share {counted(cores, 'core')}"
