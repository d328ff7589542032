"""Words on the command line that several commands share."""

import math
from typing import Any

import click

from busbw.core.errors import UsageError


class Share(click.ParamType[float]):
    """A share of one: `5%`, or a fraction such as 0.05; above `least` and below `most`."""

    name = "share"

    def __init__(self, least: float, most: float) -> None:
        self.least, self.most = least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The fraction; UsageError for what is none, and for a number above 1 without its percent sign."""
        text = str(value).strip()
        name = param.opts[0] if param else "share"
        try:
            number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            number = math.nan
        if not text.endswith("%") and number > 1:
            raise UsageError(f"{name} {text}: a fraction is at most 1", f"write {name} {text}% for percent")
        if not self.least < number < self.most:
            usual = 0.95 if self.least >= 0.5 else 0.05
            bounds = f"above {100 * self.least:g}% and below {100 * self.most:g}%"
            raise UsageError(
                f"{name} {text}: must be {bounds}", f"write percent or a fraction, like {name} {usual:.0%} or {name} {usual:g}"
            )
        return number
