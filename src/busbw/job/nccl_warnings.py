"""What the log of a job that failed says of NCCL's reason: the lines `NCCL WARN`, `Last error:` of
PyTorch, which has the last of them, `Test NCCL failure` of nccl-tests, and the error of servers.

Each rank warns, mostly because another has failed. So a warning of a cause counts before others,
wherever it stands in the log. Sources: NCCL's src/misc/ibvwrap.cc, socket.cc and shmutils.cc,
transport/net_ib, bootstrap.cc and init.cc, 2.4 to 2.32; ibv_wc_status of libibverbs.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from busbw.core.finding import Verdict
from busbw.core.sizes import counted
from busbw.job.types import JobReport

MARK, LAST, TEST = "NCCL WARN ", "Last error:", "Test NCCL failure "
RAISED = "RuntimeError: NCCL error: "  # of vLLM and SGLang
MARKS = (MARK, LAST, TEST, RAISED)
# What NCCL may survive, but is the cause if anything failed; what is never a consequence; what may
# be one, and counts if it comes first; what always is one.
_SURVIVED, _CAUSE, _FIRST, _FOLLOWS = range(4)
_LONGEST = 2000  # characters before and after the mark that are read
_MOST_SEEN = 8  # warnings that differ
_LINE = re.compile(
    r"(?P<host>[A-Za-z0-9][\w.-]{0,252}):(?P<pid>\d{1,10}):\d{1,10}(?: \[(?P<gpu>-?\d{1,4})\])?"
    r"(?: \S{1,200})? NCCL WARN (?P<text>.+)"
)
_TEST = re.compile(r"([\w.-]{1,255}): Test NCCL failure \S{1,200} '(.+)'")
# `[rank3]:` of PyTorch, `(RayWorkerWrapper pid=291, ip=10.0.0.168)` of Ray
_PLACE = re.compile(r"\b(rank ?\d{1,9}|pid=\d{1,10}(?:, ip=[\w.:]{1,60})?)\b")
_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+")
_UNKNOWN = "whether the job failed is unknown"
_GPU_FIX = "on that host: dmesg | grep -iE 'xid|nvlink'; nvidia-smi; busbw check"
_MEMORY_FIX = (
    "GPUDirect RDMA or the registration of memory failed: NCCL_NET_GDR_LEVEL=LOC tells whether it"
    " works without; " + _GPU_FIX
)
_LINK_FIX = (
    "busbw check on both hosts: ports, GIDs, MTU, PFC; busbw link --hosts H1,H2 measures between"
    " them; with RoCE also NCCL_IB_GID_INDEX"
)
_PEER_FIX = "look in the log of that peer: why it ended stands there"


class _WarningKind(NamedTuple):
    """Warnings that match `pattern`; its groups fill `reason`."""

    pattern: re.Pattern[str]
    order: int
    reason: str
    fix: str


def _completion(status: str) -> str:
    """A pattern of a transfer that ended with this status: `status=12`, or with its name too."""
    peer = r"(?:from peer (?P<peer>\S+) )?"
    return rf"Got completion {peer}with (?:status|error)[ =](?:\w+\()?(?:{status})\b"


_KINDS = tuple(
    _WarningKind(re.compile(pattern), order, reason, fix)
    for pattern, order, reason, fix in (
        (
            r"Cuda failure(?: \d+)? '?(?P<why>out of memory)|Failed to CUDA [mc]alloc",
            _CAUSE,
            "its GPU has no memory left for NCCL's buffers",
            "leave NCCL more memory: a smaller batch, or a lower share for PyTorch or the server",
        ),
        (r"Cuda failure(?: \d+)? '?(?P<why>[^'\n]+)", _FIRST, "CUDA failed: {why}", _GPU_FIX),
        (
            r"(?:Error while .{1,60}|failed to create) shared memory|posix_fallocate failed",
            _CAUSE,
            "no shared memory: /dev/shm is full, or too small",
            "df -h /dev/shm; a container needs --shm-size=8g or --ipc=host",
        ),
        (
            r"Duplicate GPU detected : (?P<why>.+)",
            _CAUSE,
            "ranks use the same GPU: {why}",
            "give each rank a GPU of its own: torch.cuda.set_device(LOCAL_RANK)",
        ),
        (
            r"no socket interface found",
            _CAUSE,
            "no network interface for NCCL",
            "ip -br addr; set NCCL_SOCKET_IFNAME to one of them",
        ),
        (
            r"[Mm]ismatched NCCL version detected|NCCL version mismatch",
            _CAUSE,
            "ranks have different releases of NCCL",
            "busbw check --hosts H1,H2 --differences",
        ),
        (
            r"[Mm]essage truncated : (?P<why>.+)",
            _CAUSE,
            "ranks made different calls: {why}",
            "make all ranks call the same collectives in the same order and with the same sizes",
        ),
        (
            r"Failed to bind NVLink SHARP",
            _CAUSE,
            "NVLink SHARP (NVLS) gave no memory",
            "systemctl restart nvidia-fabricmanager, or NCCL_NVLS_ENABLE=0",
        ),
        (
            r"NET/IB : (?P<port>\S+:\d+)[: ].*?async (?:fatal )?event.*?access violation",
            _FIRST,
            "the NIC of port {port} could not access memory",
            _MEMORY_FIX,
        ),
        (
            r"NET/IB : (?P<port>\S+:\d+)[: ].*?async (?:fatal )?event.*?: (?P<why>[^:\n]+)$",
            _CAUSE,
            "port {port} reports: {why}",
            "dmesg | grep mlx5; " + _LINK_FIX,
        ),
        (
            r"NET/IB : (?P<port>\S+:\d+) (?:Got async error event: )?(?P<why>port error|GID table"
            r" changed)",
            _SURVIVED,
            "port {port} reports: {why}",
            "dmesg | grep mlx5; " + _LINK_FIX,
        ),
        (
            r"Call to (?P<call>ibv_\w+) failed with error (?P<why>Cannot allocate memory)",
            _CAUSE,
            "{call} failed: {why}",
            "ulimit -l must be unlimited in the job: busbw check --layer limits",
        ),
        (
            r"Call to (?P<call>ibv_\w+) failed(?: with error (?P<why>.+?))?(?: errno \d+)?$",
            _CAUSE,
            "{call} failed: {why}",
            _LINK_FIX,
        ),
        (
            _completion("12"),
            _FIRST,
            "{peer} did not answer (status 12, retries exceeded): its process ended, or its port or"
            " the network lost packets",
            _LINK_FIX,
        ),
        (
            _completion("4|9|10|11"),
            _FIRST,
            "the NIC could not access memory in a transfer with {peer}",
            _MEMORY_FIX,
        ),
        (_completion(r"\d+"), _FOLLOWS, "a transfer with {peer} ended with an error", _PEER_FIX),
        (
            r"Call to (?:recv|send) \w+ (?P<peer>\S+) failed : (?:Connection reset|Broken pipe)",
            _FOLLOWS,
            "{peer} closed the connection: it ended first",
            _PEER_FIX,
        ),
        (
            r"(?:[Cc]onnect(?:ing|ion)? to \S+ failed :|connect returned|Call to (?:recv|send) \w+"
            r" \S+ failed :) (?P<why>.+?)(?:, retrying.*)?$",
            _FIRST,
            "no connection: {why}",
            "a firewall or the wrong interface: busbw check launch --hosts H1,H2, and"
            " NCCL_SOCKET_IFNAME",
        ),
        (
            r"(?P<why>unhandled (?:cuda|system) error|invalid (?:argument|usage)(?= \(run)"
            r"|internal error(?= - please))",
            _FOLLOWS,
            "an {why}, and not NCCL's warning of it",
            "NCCL_DEBUG=WARN in a new run: NCCL then says what failed",
        ),
        (
            r"remote process exited or there was a network error",
            _FOLLOWS,
            "another process ended, or the network failed",
            "look first at the hosts that the lines below do not name; " + _LINK_FIX,
        ),
        (
            r"[Cc]onnection closed by remote peer (?P<peer>\S+)",
            _FOLLOWS,
            "{peer} closed the connection: it ended first",
            _PEER_FIX,
        ),
    )
)


class Warned(NamedTuple):
    """A warning, and who gave it: `h1, GPU 3`; of PyTorch `rank 3`, or `a rank`."""

    place: str
    process: str
    text: str


def report(text: str) -> JobReport | None:
    """What the log says; None if it has no warning. The verdict is unknown if none of them is of a
    failure that is known: NCCL also warns of what it does without.
    """
    warnings = list(_warnings(text))
    if not warnings:
        return None
    found = [(kind, warned, match) for warned in warnings for kind, match in _known(warned)]
    evidence = _evidence(warnings)
    if not found and MARK not in text:
        return None  # other programs have a last error too
    if not found:
        return JobReport(
            at="",
            seconds=0.0,
            message=f"NCCL warned, first on {warnings[0].place}; {_UNKNOWN}",
            evidence=evidence,
            fix="look for the first error in the output of that process",
        )
    kind, warned, match = min(found, key=lambda one: one[0].order)  # the first of its order
    groups = {name: value.strip() for name, value in match.groupdict().items() if value}
    words = {"peer": "its peer", "why": "no reason given", **groups}
    reason = f"on {warned.place}: {kind.reason.format(**words)}"
    survived = all(kind.order == _SURVIVED for kind, _, _ in found)
    return JobReport(
        at="",
        seconds=0.0,
        verdict=Verdict.UNKNOWN if survived else Verdict.FAIL,
        message=f"NCCL warned {reason}; {_UNKNOWN}" if survived else f"NCCL failed {reason}",
        evidence=evidence,
        fix=kind.fix,
    )


def _warnings(text: str) -> Iterator[Warned]:
    label = None  # of a line before that ends in LAST
    for line in text.splitlines():
        if label is not None:
            yield Warned(_who(label), label, line[:_LONGEST].removeprefix(label).strip())
        label = line.rstrip()[: -len(LAST)][:_LONGEST] if line.rstrip().endswith(LAST) else None
        at = line.find(MARK)
        if at >= 0 and (match := _LINE.search(line[max(0, at - _LONGEST) : at + _LONGEST])):
            host, pid, gpu, warning = match.groups()
            place = f"{host}, GPU {gpu}" if gpu else host
            yield Warned(place, f"{host}:{pid}", warning.strip())
        elif (at := line.find(RAISED)) >= 0:
            place = _who(line[:at])
            yield Warned(place, place, line[at + len(RAISED) :][:_LONGEST])
        elif TEST in line and (match := _TEST.search(line[:_LONGEST])):
            yield Warned(match[1], match[1], match[2].removesuffix(" / "))


def _who(label: str) -> str:
    """What stands before a line of a rank, in words: `rank 3`."""
    place = _PLACE.search(label)
    return re.sub(r"^rank(?=\d)", "rank ", place[1]) if place else "a rank"


def _known(warned: Warned) -> Iterator[tuple[_WarningKind, re.Match[str]]]:
    for kind in _KINDS:
        if match := kind.pattern.search(warned.text):
            yield kind, match
            return


def _evidence(warnings: Sequence[Warned]) -> list[str]:
    """Warnings that differ in more than numbers, each as it came first."""
    alike: dict[str, list[Warned]] = defaultdict(list)
    for warned in warnings:
        alike[_NUMBERS.sub("0", warned.text)].append(warned)
    texts = []
    for same in list(alike.values())[:_MOST_SEEN]:
        processes = len({warned.process for warned in same})
        of_others = f", in {counted(processes, 'process', 'es')}" if processes > 1 else ""
        texts.append(f"{same[0].place}: {same[0].text}{of_others}")
    if len(alike) > _MOST_SEEN:
        texts.append(f"and {counted(len(alike) - _MOST_SEEN, 'other warning')}")
    return texts
