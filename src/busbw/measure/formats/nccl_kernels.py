"""Reads from NCCL's log, at NCCL_DEBUG_SUBSYS=TUNING, what it ran an operation of each size with.

The lines of NCCL 2.20 to 2.32, each behind `host:pid:tid [gpu] NCCL INFO`; from 2.23 on they name
the function, before 2.24 they have numbers for names and a time in place of the channels:

    256 Bytes -> Algo 1 proto 0 time 10.8
    AllReduce: 256 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}
"""

import re
from collections import Counter, defaultdict

from busbw.core.pattern import key, nccl_algorithm, nccl_protocol
from busbw.core.ran import NcclKernel
from busbw.core.result import Result

_CHANNELS = re.compile(r"\d{1,4}", re.ASCII)
_CHOICE = re.compile(
    r"NCCL INFO +(?:(\w{1,32}): +)?(\d{1,18}) Bytes -> Algo (\w{1,20}) proto (\w{1,20})"
    r"(?: channel\{Lo\.\.Hi\}=\{(\d{1,4})\.\.(\d{1,4})\})?",
    re.ASCII,
)


def kernel(algorithm: str, protocol: str, channels: str) -> NcclKernel | None:
    """The kernel for NCCL's names or numbers; None if one is unknown, such as N/A."""
    known = nccl_algorithm(algorithm), nccl_protocol(protocol)
    if known[0] is None or known[1] is None:
        return None
    return NcclKernel(known[0], known[1], int(channels) if _CHANNELS.fullmatch(channels) else 0)


def add(result: Result, text: str) -> None:
    """Complete the rows of a log by its kernels; of several for a size, the most frequent."""
    chosen = _chosen(text, result.spec.row.title)
    for row in result.rows:
        if row.ran is None and chosen[row.size_bytes]:
            row.ran = chosen[row.size_bytes].most_common(1)[0][0]


def _chosen(text: str, function: str) -> dict[int, Counter[NcclKernel]]:
    """How often each kernel was chosen, by bytes."""
    chosen: dict[int, Counter[NcclKernel]] = defaultdict(Counter)
    for match in _CHOICE.finditer(text):
        name, size, algorithm, protocol, first, last = match.groups()
        if name and key(name) != key(function):
            continue
        channels = str(int(last) - int(first) + 1) if last else ""
        found = kernel(algorithm, protocol, channels)
        if found:
            chosen[int(size)][found] += 1
    return chosen
