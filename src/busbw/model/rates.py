"""Two samples of counters into increases, whole or per second. Pure."""

from dataclasses import dataclass, field

from busbw.core.link_samples import Group, Sample
from busbw.core.telemetry import increase
from busbw.core.watch_counters import BY_NAME, LEVELS

Key = tuple[str, str]
RESET, SATURATED = "reset", "saturated"


@dataclass(slots=True)
class Rates:
    """Of one interval, by group.

    `per_s` has levels as they are; `unknown` the counters whose increase is unknown, and why.

    Those of `increases` are of the whole interval.
    """

    per_s: dict[Key, dict[str, float]] = field(default_factory=dict)
    unknown: dict[Key, dict[str, str]] = field(default_factory=dict)

    def of(self, subject: str) -> dict[str, float]:
        """All values of one link, interface, or of TCP."""
        found: dict[str, float] = {}
        for (owner, _), values in self.per_s.items():
            if owner == subject:
                found |= values
        return found


def rates(before: Sample, after: Sample, held: Rates | None = None) -> Rates:
    """The increases between two samples of one host.

    A group that was not read in between has those of `held`, the rates before, since its counters
    show nothing new yet. A device that was not there before, or that came back, has levels alone.
    """
    found = Rates()
    for key, group in after.groups.items():
        earlier = before.groups.get(key)
        if earlier is not None and earlier.at_s == group.at_s:
            found.per_s[key] = _levels(group) | (held.per_s.get(key, {}) if held else {})
            continue
        same = earlier is not None and earlier.identity == group.identity
        found.per_s[key], unknown = _of(
            earlier if same else None, group, group.at_s - earlier.at_s if earlier else 0.0
        )
        if unknown:
            found.unknown[key] = unknown
    return found


def increases(before: Sample, after: Sample) -> Rates:
    """The whole increases between two samples of one host; none of a group that was not read in
    between.
    """
    found = Rates()
    for key, group in after.groups.items():
        earlier = before.groups.get(key)
        if earlier is not None and earlier.at_s < group.at_s:
            found.per_s[key], unknown = _of(
                earlier if earlier.identity == group.identity else None, group, 1.0
            )
            found.unknown |= {key: unknown} if unknown else {}
    return found


def _levels(group: Group) -> dict[str, float]:
    return {name: value for name, value in group.values.items() if name in LEVELS}


def _of(
    before: Group | None, after: Group, seconds: float
) -> tuple[dict[str, float], dict[str, str]]:
    """Increases since `before`, divided by `seconds`, and levels."""
    per_s = _levels(after)
    unknown: dict[str, str] = {}
    was = before.values if before else {}
    for name, value in after.values.items():
        if name in was and name not in LEVELS:
            earlier, row = was[name], BY_NAME[name]
            if value == earlier and not row.saturates:
                per_s[name] = 0.0
                continue
            by = increase(row, earlier, value)
            if by is None:
                unknown[name] = RESET if value < earlier else SATURATED
            else:
                per_s[name] = by / seconds
    return per_s, unknown
