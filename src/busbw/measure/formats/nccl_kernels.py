"""Reads from NCCL's log, at NCCL_DEBUG_SUBSYS=TUNING, what it ran an operation of each size with.

The lines of NCCL 2.20 to 2.32, each behind `host:pid:tid [gpu] NCCL INFO`; from 2.23 on they name
the function, before 2.24 they have numbers for names and a time in place of the channels:

    256 Bytes -> Algo 1 proto 0 time 10.8
    AllReduce: 256 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}

Kernels over symmetric memory (NCCL 2.27 and newer) and copy engines (2.29 and newer) have others:

    AllReduce [Symmetric]: 256 Bytes -> Kernel AllReduce_AGxLL_R nchannels 1 nthreads 512 nWorks 1
    AllGather [Copy Engine]: 8388608 Bytes -> cudaMemcpy
    AllGather [Hierarchical CE]: 8388608 Bytes -> RMA proxy + CE
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator

from busbw.core.pattern import key, nccl_algorithm, nccl_protocol
from busbw.core.ran import COPY_ENGINE, SYMMETRIC, NcclKernel
from busbw.core.result import Result

_CHANNELS = re.compile(r"\d{1,4}", re.ASCII)
_CHOICE = re.compile(
    r"NCCL INFO +(?:(?P<name>\w{1,32})(?: \[(?P<kind>[\w ]{1,20})\])?: +)?"
    r"(?P<size>\d{1,18}) Bytes -> (?P<what>.{1,200})",
    re.ASCII,
)
_ALGORITHM = re.compile(
    r"Algo (\w{1,20}) proto (\w{1,20})"
    r"(?: channel\{Lo\.\.Hi\}=\{(\d{1,4})\.\.(\d{1,4})\})?",
    re.ASCII,
)
_SYMMETRIC = re.compile(r"Kernel (\w{1,64}) nchannels (\d{1,4})", re.ASCII)
_COPIES = ("Copy Engine", "Hierarchical CE")


def kernel(algorithm: str, protocol: str, channels: str) -> NcclKernel | None:
    """The kernel for NCCL's names or numbers; None if one is unknown, such as N/A."""
    known = nccl_algorithm(algorithm), nccl_protocol(protocol)
    if known[0] is None or known[1] is None:
        return None
    return NcclKernel(known[0], known[1], int(channels) if _CHANNELS.fullmatch(channels) else 0)


def kernels(text: str) -> list[NcclKernel]:
    """The kernels of all calls in a log, in order."""
    return [found for _, _, found in _lines(text)]


def add(result: Result, text: str) -> None:
    """Complete the rows of a log by its kernels; of several for a size, the most frequent."""
    chosen = _chosen(text, result.spec.row.title)
    for row in result.rows:
        if row.ran is None and chosen[row.size_bytes]:
            row.ran = chosen[row.size_bytes].most_common(1)[0][0]


def _chosen(text: str, function: str) -> dict[int, Counter[NcclKernel]]:
    """How often each kernel was chosen, by bytes."""
    chosen: dict[int, Counter[NcclKernel]] = defaultdict(Counter)
    for name, size, found in _lines(text):
        if not name or key(name) == key(function):
            chosen[size][found] += 1
    return chosen


def _lines(text: str) -> Iterator[tuple[str, int, NcclKernel]]:
    """Function ('' if it is not named), bytes, and kernel of each line that states a kernel."""
    for match in _CHOICE.finditer(text):
        found = _kernel(match["kind"], match["what"])
        if found:
            yield match["name"] or "", int(match["size"]), found


def _kernel(kind: str | None, what: str) -> NcclKernel | None:
    """The kernel by the word in brackets, and by what follows the size."""
    if kind in _COPIES:
        return NcclKernel(COPY_ENGINE, "")
    if kind == SYMMETRIC:
        symmetric = _SYMMETRIC.match(what)
        return NcclKernel(SYMMETRIC, "", int(symmetric[2]), symmetric[1]) if symmetric else None
    match = _ALGORITHM.match(what)
    if kind or match is None:
        return None
    algorithm, protocol, first, last = match.groups()
    return kernel(algorithm, protocol, str(int(last) - int(first) + 1) if last else "")
