"""The job that every rank receives: what to measure, with which engine, and the call to record
in the result.
"""

import msgspec

from busbw.core.sweep import SweepSpec
from busbw.engines.registry import AUTO


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind"):
    """The fields of all jobs.

    `ranks` is the expected number (0: as many as the launcher started), so that a split job is
    detected. After `limit_s` without a completed operation, or `launch_limit_s` before the first,
    the job is stopped (0: no limit). `net` is the network that NCCL must use ('' for NCCL's
    choice). With `progress` rank 0 reports once a second what it is doing.
    """

    engine: str = AUTO
    ranks: int = 0
    gpus_per_process: int = 1
    program: str = "busbw"
    argv: list[str] = []
    limit_s: float = 0.0
    launch_limit_s: float = 0.0
    net: str = ""
    progress: bool = False


class SweepJob(Job, frozen=True, kw_only=True, omit_defaults=True, tag="sweep"):
    """One collective over many sizes.

    Each process drives `gpus_per_process` ranks. `ideal` is the user's own bound in GB/s ('' for
    that of the topology), `simulation` configures the sim engine, `inject` is a fault to inject
    (measure.fault_injection), and `compat` selects the behavior of nccl-tests. With `watch` each
    row has what the links of every host carried. `table` is the text of a table for NCCL's tuner.
    With `full_rows` the sweep begins at the first size at which every rank has an element, which
    its number of ranks decides.
    """

    sweep: SweepSpec
    ideal: str = ""
    simulation: dict[str, float] = {}
    compat: bool = False
    inject: str = ""
    watch: bool = False
    table: str = ""
    full_rows: bool = False


def encode(job: Job) -> str:
    """The job as one command-line argument, without default values."""
    fields = msgspec.to_builtins(job)
    if isinstance(job, SweepJob):
        plain = msgspec.to_builtins(SweepSpec(collective=""))
        fields["sweep"] = {
            name: value for name, value in fields["sweep"].items() if value != plain[name]
        }
    return msgspec.json.encode(fields).decode()
