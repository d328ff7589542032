"""Finds out whether a file is the output of a benchmark of transfers, and reads it."""

import re

from busbw.core.errors import UsageError
from busbw.core.sizes import counted
from busbw.transfer import findings, nixlbench, ucx_perftest
from busbw.transfer.types import NIXLBENCH, UCX_PERFTEST, TransferReport

HEAD = 16 << 20  # bytes in which the titles of a table must stand
_NCCL_TESTS = b"algbw"  # a log that has also a table of nccl-tests is read as that
_BOX = re.compile(rb"\| API: +(?:protocol|transport) layer")
_CSV = b"_lat,avg_lat,overall_lat,avg_bw,overall_bw"


def program(data: bytes) -> str:
    """The program that printed this: `nixlbench` or `ucx_perftest`; '' for another file."""
    head = data[:HEAD]
    if _NCCL_TESTS in head or head.lstrip()[:1] == b"{":
        return ""
    table = nixlbench.BLOCK.encode() in head and nixlbench.RATE.encode() in head
    if table or nixlbench.CONFIGURATION.encode() in head:
        return NIXLBENCH
    table = ucx_perftest.TITLES.encode() in head and b"(MB/s)" in head
    return UCX_PERFTEST if table or _CSV in head or _BOX.search(head) else ""


def read(data: bytes, source: str) -> TransferReport | None:
    """The transfers, judged without the rate of a NIC; None for another file. UsageError, which
    names `source`, if the output has no row.
    """
    name = program(data)
    if not name:
        return None
    text = data.decode("utf-8", "replace")
    report = nixlbench.read(text) if name == NIXLBENCH else ucx_perftest.read(text)
    if not report.rows:
        raise _without_rows(name, source, report.skipped)
    report.findings = findings.findings(report, None)
    return report


def _without_rows(name: str, source: str, skipped: int) -> UsageError:
    if skipped:
        return UsageError(
            f"{source}: output of {name}: {counted(skipped, 'row')}, cut off or without finite"
            " figures",
            "give the output as its program wrote it, of a run that ended",
        )
    if name == UCX_PERFTEST:
        return UsageError(
            f"{source}: output of ucx_perftest without a row of results",
            "give what the client prints: the server prints no results",
        )
    return UsageError(
        f"{source}: output of nixlbench without a row of results",
        "give what the first initiator prints, of a run that measured at least one block size",
    )
