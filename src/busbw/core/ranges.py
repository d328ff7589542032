"""Refuses numbers outside their range, as the options of the commands do."""

import math

from busbw.core.errors import UsageError


def require_between(name: str, value: object, least: float, most: float = math.inf) -> None:
    """UsageError for anything but a number in this range; a whole one, if `least` is whole and of
    type int.
    """
    kinds = int if isinstance(least, int) else (int, float)
    if isinstance(value, kinds) and not isinstance(value, bool) and least <= value <= most:
        return
    number = "a whole number" if isinstance(least, int) else "a number"
    bounds = f"{least:g} or more" if most == math.inf else f"{least:g} to {most:g}"
    raise UsageError(
        f"{name} {value!r}: must be {number}, {bounds}", f"write it like {name}={least:g}"
    )
