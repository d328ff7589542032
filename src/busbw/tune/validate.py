"""Which sweeps can be tuned, and with which variables the search is repeated.

A tuner can only lower the number of channels; a variable can raise it. NCCL reads the variables
once in a process, for all sizes and collectives.
"""

import os
from collections.abc import Mapping
from itertools import islice

from busbw.core.errors import UsageError
from busbw.core.networks import CHANNEL_VARIABLES, is_network_chosen
from busbw.core.sweep import SweepSpec, check_spec, dtypes, redops, sizes
from busbw.core.tuning import TUNED

MAX_SIZES = 64
MIN_CHANNELS = CHANNEL_VARIABLES[0]
SOCKET_THREADS, SOCKETS = "NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD"
NET_THREADS = "BUSBW_NET_THREADS"
# the only variables that a table may set
NAMES = (MIN_CHANNELS, SOCKET_THREADS, SOCKETS, NET_THREADS)
# Between two hosts on one machine one socket on each of many channels moved the most, and four
# threads with four sockets came next.
OF_NETWORK: dict[str, tuple[dict[str, str], ...]] = {
    "Socket": (
        {MIN_CHANNELS: "8"},
        {MIN_CHANNELS: "16", SOCKET_THREADS: "1", SOCKETS: "1"},
        {SOCKET_THREADS: "4", SOCKETS: "4"},
    ),
    "busbw": ({MIN_CHANNELS: "8"}, {MIN_CHANNELS: "16"}, {NET_THREADS: "4"}, {NET_THREADS: "8"}),
}
OTHER_NETWORKS: tuple[dict[str, str], ...] = ({MIN_CHANNELS: "16"}, {MIN_CHANNELS: "32"})


def count_sizes(spec: SweepSpec) -> int:
    """The number of sizes.

    UsageError if NCCL has nothing to choose for the collective, if there are several types or
    operations, or over 64 sizes.
    """
    if spec.collective not in TUNED:
        raise UsageError(
            f"{spec.collective}: NCCL has no choice of algorithms for it",
            f"tune {', '.join(TUNED)}",
        )
    check_spec(spec, strict=True)
    for option, values in (("datatype", dtypes(spec)), ("op", redops(spec))):
        if len(values) > 1:
            raise UsageError(
                f"--{option} {getattr(spec, option)}: a tuning is of one",
                f"name one, like busbw tune {spec.collective} -d float -o sum",
            )
    count = len(list(islice(sizes(spec, spec.max_bytes), MAX_SIZES + 1)))
    if count > MAX_SIZES:
        raise UsageError(
            f"more than {MAX_SIZES} sizes: a tuning measures at most {MAX_SIZES}",
            "give a larger --stepfactor",
        )
    return count


def candidates(network: str, environment: Mapping[str, str] = os.environ) -> list[dict[str, str]]:
    """The settings to try with NCCL's network, without variables that the user has set."""
    set_by_user = {name for name in (SOCKET_THREADS, SOCKETS, NET_THREADS) if environment.get(name)}
    if is_network_chosen(environment):
        set_by_user.add(MIN_CHANNELS)
    settings = OF_NETWORK.get(network, OTHER_NETWORKS)
    return [setting for setting in settings if not set_by_user & setting.keys()]
