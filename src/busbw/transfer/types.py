"""Transfers between two memories, as another program's benchmark measured them.

Seconds, bytes, and bytes per second.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from busbw.core.finding import RunFinding
from busbw.core.shown import Tabular

NIXLBENCH, UCX_PERFTEST = "nixlbench", "ucx_perftest"
BANDWIDTH, LATENCY = "bandwidth", "latency"
# Backends that move data between memory and files or objects (nixlbench/src/utils/utils.h).
STORAGE = ("GDS", "GDS_MT", "POSIX", "HF3FS", "OBJ", "GUSLI", "AZURE_BLOB", "INFINIA")


class TransferRun(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What was measured, as far as the output says it; empty where it does not."""

    backend: Annotated[str, Meta(description="of NIXL, such as UCX or GDS")] = ""
    operation: Annotated[
        str, Meta(description="READ or WRITE of nixlbench, the test of ucx_perftest")
    ] = ""
    kind: Annotated[
        str, Meta(description="what the test is for: bandwidth or latency; empty if unknown")
    ] = ""
    source: Annotated[str, Meta(description="memory of the initiator or sender: DRAM, cuda")] = ""
    target: Annotated[str, Meta(description="memory of the target or receiver")] = ""
    scheme: Annotated[str, Meta(description="scheme and mode of nixlbench: pairwise SG")] = ""
    threads: int | None = None
    depth: Annotated[int, Meta(description="requests that each thread has in flight")] = 1
    devices: Annotated[int, Meta(description="initiator devices")] = 1
    nics: Annotated[list[str], Meta(description="NICs that the output names")] = []

    @property
    def is_storage(self) -> bool:
        return self.backend.upper() in STORAGE

    @property
    def devices_in_process(self) -> int:
        """The devices whose data one process counts together (`printStats` of nixlbench)."""
        return self.devices if self.is_storage or self.scheme.endswith("MG") else 1


class Transfer(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One row: many transfers of one size."""

    run: Annotated[int, Meta(description="index into `runs`")]
    size_bytes: Annotated[
        int | None, Meta(description="of a block or message; null if it is not known")
    ]
    derived: Annotated[
        bool, Meta(description="the size follows from rate and time; it is not in the output")
    ] = False
    batch: Annotated[int, Meta(description="blocks of a request")] = 1
    rate: Annotated[float, Meta(description="bytes per second; of several pairs, of one of them")]
    total_rate: Annotated[
        float | None, Meta(description="bytes per second of all pairs together")
    ] = None
    time_s: Annotated[float, Meta(description="mean time of a thread for each block or message")]
    request_s: Annotated[
        float | None, Meta(description="mean time from the return of a request's post to its end")
    ] = None
    median_s: Annotated[
        float | None, Meta(description="median of the times, of tests of latency alone")
    ] = None
    p99_s: Annotated[
        float | None, Meta(description="99th percentile of the times, of requests if there are any")
    ] = None


class TransferReport(
    Tabular, msgspec.Struct, tag="busbw.transfers/1", tag_field="schema", kw_only=True
):
    """All rows that the output has, in its order, and what follows from them."""

    program: str
    runs: list[TransferRun] = []
    rows: list[Transfer] = []
    skipped: Annotated[
        int, Meta(description="lines of tables that are no whole row of finite figures")
    ] = 0
    unended: Annotated[int, Meta(description="tables or tests whose last rows are missing")] = 0
    system: Annotated[
        str, Meta(description="the system whose NICs the rates are compared with")
    ] = ""
    findings: list[RunFinding] = []

    def __post_init__(self) -> None:
        """ValueError, so a DecodeError of a file, for figures that no program printed."""
        for row in self.rows:
            if row.run not in range(len(self.runs)):
                raise ValueError(f"a row is of run {row.run}, but there are {len(self.runs)} runs")
            if min(row.size_bytes or 0, row.batch, row.time_s, row.rate) < 0:
                raise ValueError("a row has a figure below 0")

    def rows_of(self, run: int) -> list[Transfer]:
        return [row for row in self.rows if row.run == run]

    def in_flight(self, row: Transfer) -> int:
        """Blocks that nixlbench has in flight at once: it posts the next request of a thread when
        one has ended (`execTransferLoop`).
        """
        run = self.runs[row.run]
        return row.batch * (run.threads or 1) * run.depth * run.devices_in_process
