"""Backends over given NICs alone: their names, and what a rank does for it."""

import os
from collections.abc import Sequence
from dataclasses import replace

from busbw.backends.registry import BackendRow
from busbw.backends.types import ALL_RAILS, MeasuredRail
from busbw.core.errors import UsageError
from busbw.core.rates import LINK_EXAMPLE, parse_rate
from busbw.host.rails import NicChoice, of_this_host, select
from busbw.host.source import LiveMachine
from busbw.launch.control import Control


def parse(texts: Sequence[str]) -> list[NicChoice]:
    """The rails of `eth1`, `mlx5_0=400Gbit/s`, `10.1.0.0/16`, and with `all` those of this host.

    UsageError for one that is named twice, and if this host has none.
    """
    rails = list[NicChoice]()
    for text in texts:
        name, _, rate = text.partition("=")
        given = _line_rate(name, rate) if rate else None
        names = of_this_host(LiveMachine()) if name == ALL_RAILS else [name]
        if not names:
            raise UsageError(
                "--rail all: no NIC of this host has a known rate",
                "name them, as `ip -br address` does: --rail eth0 --rail eth1=100Gbit/s",
            )
        rails += [NicChoice(each, given) for each in names]
    known = [rail.name for rail in rails]
    twice = next((name for name in known if known.count(name) > 1), "")
    if twice:
        raise UsageError(f"--rail {twice} is named twice", "name each once")
    return rails


def _line_rate(name: str, text: str) -> float:
    try:
        return parse_rate(text, "--rail", LINK_EXAMPLE)
    except UsageError as error:
        raise UsageError(
            f"--rail {name}={text}: {text} is not a rate", f"--rail {name}={LINK_EXAMPLE}"
        ) from error


def on_rails(row: BackendRow, rails: Sequence[NicChoice]) -> BackendRow:
    """The backend under the name that it has on these rails: `nixl@mlx5_0`, `nixl@all`."""
    return replace(row, name=f"{row.name}@{group_name(rails)}") if rails else row


def group_name(rails: Sequence[NicChoice]) -> str:
    """What rails are called that are used at the same time."""
    return rails[0].name if len(rails) == 1 else ALL_RAILS


def use_rails(rails: Sequence[NicChoice], control: Control) -> tuple[list[MeasuredRail], bool]:
    """Let libraries that are opened from now on use these alone. Returns the group with the least
    line rate of any rank, and whether they are RDMA devices. Collective.

    NoMeasurement if this host has no such NIC; UsageError if two are the same.
    """
    if not rails:
        return [], False
    chosen = select(rails, LiveMachine())
    os.environ.update(chosen.variables)
    rates = [rail.rate or 0.0 for rail in chosen.rails]
    total = sum(rates) if all(rates) else 0.0
    least = control.reduce_all([total], "min")[0]
    return [MeasuredRail(group_name(rails), least or None, chosen.variables)], chosen.rdma
