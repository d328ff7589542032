"""The constants of NCCL's cost model by release, each with its source.

Units are NCCL's: microseconds and GB/s (10^9 bytes). A triple holds one value for each protocol:
LL, LL128, Simple. Tables of rates by host count hold three values: one host, two hosts, more than
two.
"""

from dataclasses import dataclass, replace

from busbw.core.errors import UsageError
from busbw.core.pattern import ALGORITHMS, PROTOCOLS

LL, LL128, SIMPLE = PROTOCOLS
TREE, RING, COLLNET_DIRECT, COLLNET_CHAIN, NVLS, NVLS_TREE, PAT = ALGORITHMS
# The algorithms with a model of their time; CollNet has only bounds.
MODELLED = (TREE, RING, NVLS, NVLS_TREE, PAT)
Triple = tuple[float, float, float]
NVLINK, PCI, NET = "NVLink", "PCI", "network"
VOLTA, AMPERE, HOPPER, BLACKWELL = "Volta", "Ampere", "Hopper", "Blackwell"
_BASE: dict[str, Triple] = {
    TREE: (6.8, 14.0, 8.4),
    RING: (6.6, 14.0, 8.4),
    NVLS: (0, 0, 0),
    NVLS_TREE: (0, 0, 0),
    PAT: (8.0, 8.0, 8.0),
}
_HOPS: dict[str, dict[str, Triple]] = {
    NVLINK: {
        TREE: (0.6, 1.25, 4.0),
        RING: (0.6, 1.9, 3.4),
        NVLS: (0, 0, 25.0),
        NVLS_TREE: (0, 0, 25.0),
        PAT: (0, 0, 4.0),
    },
    PCI: {
        TREE: (1.0, 1.9, 4.0),
        RING: (1.0, 2.5, 5.7),
        NVLS: (0, 0, 0),
        NVLS_TREE: (0, 0, 0),
        PAT: (0, 0, 4.0),
    },
    NET: {
        TREE: (5.0, 8.5, 14.0),
        RING: (2.7, 4.0, 14.0),
        NVLS: (0, 0, 18.0),
        NVLS_TREE: (0, 0, 14.0),
        PAT: (0, 0, 14.0),
    },
}
# On one host the row of LL is that of the GPU; over several hosts it is that of the CPU: Volta's
# for Intel, Ampere's for AMD.
_LL_MAX: dict[str, Triple] = {
    VOLTA: (39.0, 39.0, 20.4),
    AMPERE: (87.7, 22.5, 19.0),
    HOPPER: (141.0, 45.0, 35.0),
    BLACKWELL: (282.0, 90.0, 70.0),
}
_RING_LL128: dict[str, Triple] = {
    VOLTA: (20.0,) * 3,
    AMPERE: (20.0,) * 3,
    HOPPER: (36.7,) * 3,
    BLACKWELL: (73.4,) * 3,
}
_TREE: dict[str, Triple] = {
    VOLTA: (26.5, 18.5, 10.0),
    AMPERE: (24.0, 23.6, 17.8),
    HOPPER: (38.7, 41.4, 36.0),
    BLACKWELL: (77.4, 82.8, 72.0),
}
_TREE_LL128: dict[str, Triple] = {
    VOLTA: (20.0,) * 3,
    AMPERE: (20.0,) * 3,
    HOPPER: (36.7, 36.7, 29.0),
    BLACKWELL: (73.4, 73.4, 58.0),
}
_NVLS_TREE: dict[str, Triple] = {
    VOLTA: (26.5, 18.5, 10.0),
    AMPERE: (24.0, 23.6, 17.8),
    HOPPER: (0.0, 57.7, 45.5),
    BLACKWELL: (0.0, 96.0, 43.1),
}
_SLOW_TREE = {"nvlink": {TREE: 28.0}, "pci": {TREE: 28.0}, "net": {TREE: 28.0}}
# Shares of Tree's rate by size, one value for each power of two from 64 B on; treeCorrectionFactor
# of 2.30.7. Earlier releases lack the last value. Tree has none from 512 MiB on in any release.
# fmt: off
TREE_SHARES: dict[str, tuple[float, ...]] = {
    LL: (
        1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5,
        0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1, 1, 1, 1,
    ),
    LL128: (
        1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6,
        0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1, 1, 1,
    ),
    SIMPLE: (
        0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5,
        0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9, 0.9,
    ),
}
# fmt: on
TREE_SIZES = 23  # how many of these values Tree uses
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


def _hops(**simple_us: dict[str, float]) -> dict[str, dict[str, Triple]]:
    """The table of hops with other microseconds for Simple, by link: {algorithm: us}."""
    names = {"nvlink": NVLINK, "pci": PCI, "net": NET}
    hops = {link: dict(table) for link, table in _HOPS.items()}
    for name, values in simple_us.items():
        table = hops[names[name]]
        for algorithm, simple in values.items():
            ll, ll128, _ = table[algorithm]
            table[algorithm] = (ll, ll128, simple)
    return hops


_2_23 = Release(
    (2, 23),
    "src/graph/tuning.cc of 2.27.7, tables baseLat, hwLat, llMaxBws, perChMax*; 2.23.4 to 2.26.6"
    " have the same tables, those of Blackwell from 2.25.1 on, and 0.85 for PAT's 0.75 in 2.23",
    _BASE,
    _HOPS,
    _LL_MAX,
    _RING_LL128,
    _TREE,
    _TREE_LL128,
)
_2_21 = replace(
    _2_23,
    first=(2, 21),
    source="src/graph/tuning.cc of 2.21.5 and 2.22.3, which have the same tables",
    base={**_BASE, TREE: (6.8, 14.0, 0)},
    hops=_hops(**_SLOW_TREE),
    ring_ll128_alone=0.7,
    ll128_from_100=False,
    inter_steps_extra=2,
    alone_uses_tree_hop=False,
    pat=False,
)
_2_18 = replace(
    _2_21,
    first=(2, 18),
    source=(
        "src/graph/tuning.cc of 2.19.4 and 2.20.5, which have the same tables; 2.18.5 has other"
        " latencies of Tree and NVLS, which are not in the table"
    ),
    hops=_hops(
        nvlink={TREE: 28.0, NVLS: 23.0, NVLS_TREE: 23.0}, pci={TREE: 28.0}, net={TREE: 28.0}
    ),
    ll_max={**_LL_MAX, HOPPER: (87.7, 22.5, 19.0)},
    ring_ll=(1 / 3, 1 / 4),
)
_2_28 = replace(
    _2_23,
    first=(2, 28),
    source="src/graph/tuning.cc of 2.28.3, nvlsEfficiency and ncclTunerConstantsDefaults",
    tree={**_TREE, BLACKWELL: (70.0, 42.8, 24.0)},
    tree_ll128={**_TREE_LL128, BLACKWELL: (55.6, 31.67, 20.0)},
    nvls_efficiency={VOLTA: 0.0, AMPERE: 0.0, HOPPER: 0.85, BLACKWELL: 0.74},
    nvls_tree=_NVLS_TREE,
)
_2_28_7 = replace(
    _2_28,
    first=(2, 28, 7),
    source="src/graph/tuning.cc of 2.28.7, perChMaxRingLL128Bws",
    ring_ll128={**_RING_LL128, BLACKWELL: (73.4, 34.6, 73.4)},
)
_2_28_9 = replace(
    _2_28_7,
    first=(2, 28, 9),
    source="src/graph/tuning.cc of 2.28.9, hwLatencies and perChMaxNVLSTreeBws",
    hops=_hops(net={NVLS_TREE: 20.9}),
    nvls_tree={**_NVLS_TREE, BLACKWELL: (0.0, 96.0, 43.8)},
)
_2_29 = replace(
    _2_28_9,
    first=(2, 29),
    source=(
        "src/graph/tuning.cc of 2.29.2 and 2.29.3, perChMaxRingLL128Bws and treeCorrectionFactor;"
        " src/graph/paths.cc, ncclTopoGetNchannels"
    ),
    ring_ll128={**_RING_LL128, BLACKWELL: (34.5, 34.6, 34.5)},
    nvls_tree_corrected=True,
    p2p_by_rate=True,
)
_2_29_7 = replace(
    _2_29,
    first=(2, 29, 7),
    source="src/graph/tuning.cc of 2.29.7, perChMaxRingLL128Bws",
    ring_ll128={**_RING_LL128, BLACKWELL: (40.0,) * 3},
)
_2_30 = replace(
    _2_29_7,
    first=(2, 30),
    source="src/graph/tuning.cc of 2.30.3 to 2.30.7, which have the same tables",
    nvls_tree={**_NVLS_TREE, BLACKWELL: (0.0, 96.0, 80.0)},
)
_2_31 = replace(
    _2_30,
    first=(2, 31),
    source="src/tuning of the development branch as of 2026-06-13, 2.31.0: cost_model.cc, tree.cc",
    slower_speed_of_trees=True,
)
_2_32 = replace(
    _2_31,
    first=(2, 32),
    source="src/tuning/ring.cc, nvls.cc and pat.cc of 2.32.3; the pipeline model of 2.32.6 is for"
    " GPUs from Rubin on (src/tuning/platforms/platforms.h)",
    plateau_inside=True,
    most_heads=32,
)

RELEASES: tuple[Release, ...] = (
    _2_18,
    _2_21,
    _2_23,
    _2_28,
    _2_28_7,
    _2_28_9,
    _2_29,
    _2_29_7,
    _2_30,
    _2_31,
    _2_32,
)
# The constants of times, and of a release that is not stated: the coefficients of several hosts are
# fitted to published runs with these, none of which is of a later release.
LATEST = _2_30
NEWEST_READ = (2, 32)
ANY_PATCH = 999


def release(version: str) -> Release:
    """The row for `2.21`, `2.21.5` or `latest`; UsageError for other text, and for releases whose
    model is not in the table.

    Two numbers mean the last release that begins with them.
    """
    if version == "latest":
        return RELEASES[-1]
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
            f"--nccl {version}: the model knows NCCL from {RELEASES[0].name} on",
            f"--nccl {RELEASES[0].name}",
        )
    return row


def of_number(nccl: int) -> Release:
    """The row for NCCL's version number, such as 22809; the latest for 0, which is an unknown
    version, the first for older ones. For one newer than the table, the last with a note.
    """
    if nccl == 0:
        return LATEST
    numbers = nccl // 10000, nccl // 100 % 100, nccl % 100
    if numbers[:2] > NEWEST_READ:
        ran = ".".join(map(str, numbers))
        note = f"the model does not know NCCL {ran}, which ran: it is that of {RELEASES[-1].name}"
        return replace(RELEASES[-1], note=note)
    return _row(numbers) or RELEASES[0]


def _row(numbers: tuple[int, ...]) -> Release | None:
    """The last row that is not newer than a release; None if there is none."""
    rows = [row for row in RELEASES if row.first <= numbers]
    return rows[-1] if rows else None


def family(sm: int) -> str:
    """The row of the rate tables for a compute capability such as 90."""
    if sm >= 100:
        return BLACKWELL
    if sm >= 90:
        return HOPPER
    return AMPERE if sm >= 80 else VOLTA
