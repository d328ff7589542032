"""The constants of NCCL's cost model by release (model/nccl/releases.toml).

Units are NCCL's: microseconds and GB/s (10^9 bytes). A triple holds one value for each protocol:
LL, LL128, Simple. Tables of rates by host count hold three values: one host, two hosts, more than
two.
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import msgspec

from busbw.core.errors import UsageError
from busbw.core.pattern import ALGORITHMS, PROTOCOLS
from busbw.core.table_file import nested

LL, LL128, SIMPLE = PROTOCOLS
TREE, RING, COLLNET_DIRECT, COLLNET_CHAIN, NVLS, NVLS_TREE, PAT = ALGORITHMS
# The algorithms with a model of their time; CollNet has only bounds.
MODELLED = (TREE, RING, NVLS, NVLS_TREE, PAT)
Triple = tuple[float, float, float]
NVLINK, PCI, NET = "NVLink", "PCI", "network"
VOLTA, AMPERE, HOPPER, BLACKWELL = "Volta", "Ampere", "Hopper", "Blackwell"
TREE_SIZES = 23  # how many of the values of `tree_shares` Tree uses
# NCCL's getNetOverhead; Simple has three times as much.
NET_OVERHEAD_US = {"intel": 1.0, "amd": 2.0, "arm": 1.0}
# Simple all_reduce over several hosts: GPUs from Ampere on, and earlier ones
RING_PLATEAU = {True: 1.4, False: 1.9}
# Inside a host of Blackwell, 2.32: how much the plateau shrinks, from this part of a rank's on.
PLATEAU_DELTA, LARGE_PART = 0.1, 256 << 10
PAT_RANK_US, PAT_LOG = 2.8, 3.5


@dataclass(frozen=True, slots=True)
class Release:
    """The constants of the releases from `first` on, up to the next row."""

    first: tuple[int, ...]
    source: str
    base: dict[str, Triple]
    hops: dict[str, dict[str, Triple]]
    ll_max: dict[str, Triple]
    ring_ll128: dict[str, Triple]
    tree: dict[str, Triple]
    tree_ll128: dict[str, Triple]
    # LL's share of a ring's rate: (on one host without reduction, otherwise)
    ring_ll: tuple[float, float] = (0.5, 0.5)
    ring_ll128_alone: float = 0.92
    # None before 2.28, which took 5/6 of the channels' rate as algbw instead
    nvls_efficiency: dict[str, float] | None = None
    nvls_tree: dict[str, Triple] | None = None
    nvls_tree_corrected: bool = False
    ll128_from_100: bool = True
    inter_steps_extra: int = 0  # a ring's network steps beyond 2 (hosts - 1) in all_reduce
    alone_uses_tree_hop: bool = True
    pat: bool = True
    # sends to another host get as many channels as the NICs need; before 2.29 at most two
    p2p_by_rate: bool = False
    # from 2.31 on, of those inside and between hosts, also on two hosts
    slower_speed_of_trees: bool = False
    plateau_inside: bool = False  # from 2.32 on, of rings of Blackwell on one host
    most_heads: int | None = None  # from 2.32 on, GPUs among which NVLS gathers and scatters
    note: str = ""  # on a run by a newer release than the last row

    @property
    def name(self) -> str:
        """`2.28` or `2.28.7`: the first release of the row."""
        return ".".join(map(str, self.first))


# The release of times, and of a run whose release is not stated: the coefficients of several hosts
# are fitted to published runs with its constants, none of which is of a later release.
FITTED = "2.30"
NEWEST_READ = (2, 32)
ANY_PATCH = 999


@cache
def releases() -> tuple[Release, ...]:
    """All rows, from the oldest release on: each is the one before with what it changed."""
    rows: list[Release] = []
    constants: dict[str, Any] = {}
    for changed in _table()["release"]:
        constants = _merged(constants, changed)
        rows.append(msgspec.convert(constants, Release))
    return tuple(rows)


@cache
def tree_shares() -> dict[str, tuple[float, ...]]:
    """Shares of Tree's rate by protocol and size, one value for each power of two from 64 B on."""
    return msgspec.convert(_table()["tree_shares"], dict[str, tuple[float, ...]])


@cache
def fitted_release() -> Release:
    """The row of FITTED."""
    return release(FITTED)


@cache
def _table() -> dict[str, Any]:
    return nested("model/nccl/releases.toml")


def _merged(table: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The table with the changes, which may be of tables in it."""
    inner = {
        key: _merged(table.get(key, {}), value)
        for key, value in changes.items()
        if isinstance(value, dict)
    }
    return table | changes | inner


def release(version: str) -> Release:
    """The row for `2.21`, `2.21.5` or `latest`; UsageError for other text, and for releases whose
    model is not in the table.

    Two numbers mean the last release that begins with them.
    """
    if version == "latest":
        return releases()[-1]
    numbers = version.split(".")
    numeric = all(part.isdecimal() and len(part) < 4 for part in numbers)
    if not numeric or len(numbers) not in (2, 3):
        raise UsageError(
            f"--nccl: '{version}' is not a version of NCCL",
            "give two or three numbers, like --nccl 2.28.9",
        )
    wanted = tuple(int(part) for part in numbers)
    if wanted[:2] > NEWEST_READ:
        newest = ".".join(map(str, NEWEST_READ))
        raise UsageError(
            f"--nccl {version}: the model knows NCCL up to {newest}", f"--nccl {newest}"
        )
    row = _row(wanted if len(wanted) == 3 else (*wanted, ANY_PATCH))
    if row is None:
        raise UsageError(
            f"--nccl {version}: the model knows NCCL from {releases()[0].name} on",
            f"--nccl {releases()[0].name}",
        )
    return row


def of_number(nccl: int) -> Release:
    """The row for NCCL's version number, such as 22809; the latest for 0, which is an unknown
    version, the first for older ones. For one newer than the table, the last with a note.
    """
    if nccl == 0:
        return fitted_release()
    numbers = nccl // 10000, nccl // 100 % 100, nccl % 100
    if numbers[:2] > NEWEST_READ:
        ran = ".".join(map(str, numbers))
        note = f"the model does not know NCCL {ran}, which ran: it is that of {releases()[-1].name}"
        return replace(releases()[-1], note=note)
    return _row(numbers) or releases()[0]


def _row(numbers: tuple[int, ...]) -> Release | None:
    """The last row that is not newer than a release; None if there is none."""
    rows = [row for row in releases() if row.first <= numbers]
    return rows[-1] if rows else None


def family(sm: int) -> str:
    """The row of the rate tables for a compute capability such as 90."""
    if sm >= 100:
        return BLACKWELL
    if sm >= 90:
        return HOPPER
    return AMPERE if sm >= 80 else VOLTA
