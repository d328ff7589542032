"""The job that every rank receives, and the kinds of runs.

A job says what to measure, with which engine, and the call to record in the result. The kind of a
run says which job the ranks receive, which events rank 0 reports, and what the result is.
"""

from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any, Union

import msgspec

from busbw.core.errors import NoMeasurement
from busbw.core.extensions import added
from busbw.core.nccl_library import NcclLibrary
from busbw.core.result import Outcome, Result
from busbw.core.sweep import SweepSpec, from_first_full_row
from busbw.engines.registry import AUTO
from busbw.launch.control import Control
from busbw.measure.events import Emit, Ended, EnterPhase, Event, Note, RowDone, Started

# The tag of a job, and the module and name of its kind. A rank imports only its own. Extensions
# add others.
KINDS = {
    "sweep": ("busbw.measure.job", "SWEEP"),
    "tune": ("busbw.tune.types", "TUNE"),
    "replay": ("busbw.pattern.replay.kind", "REPLAY"),
    "backends": ("busbw.backends.kind", "BACKENDS"),
    "overlap": ("busbw.overlap.types", "OVERLAP"),
    "moe": ("busbw.moe.types", "MOE"),
}


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind"):
    """The fields of all jobs."""

    engine: str = AUTO
    # the expected number, so that a split job is detected; 0: as many as were started
    ranks: int = 0
    gpus_per_process: int = 1
    program: str = "busbw"
    argv: list[str] = []
    # the job is stopped after so long without a completed operation; 0: no limit
    limit_s: float = 0.0
    launch_limit_s: float = 0.0  # the same before the first operation
    net: str = ""  # the network that NCCL must use; '' for NCCL's choice
    nccl: NcclLibrary | None = None  # the file it is loaded from; None for the one installed
    progress: bool = False  # rank 0 reports once a second what it is doing


class SweepJob(Job, frozen=True, kw_only=True, omit_defaults=True, tag="sweep"):
    """One collective over many sizes. Each process drives `gpus_per_process` ranks."""

    sweep: SweepSpec
    ideal: str = ""  # the user's own bound, like 450GB/s; '' for that of the topology
    simulation: dict[str, float] = {}  # parameters of the sim engine
    compat: bool = False  # behave as nccl-tests does
    inject: str = ""  # a fault to inject, as measure.fault_injection.parse reads it
    watch: bool = False  # each row has what the links of every host carried
    table: str = ""  # the text of a table for NCCL's tuner
    full_rows: bool = False  # begin at the first size at which every rank has an element
    # fields of the sweep that nobody has chosen, so that ranks on CPUs take defaults of their own
    unset: tuple[str, ...] = ()


def encode(job: Job) -> str:
    """The job as one command-line argument, without default values."""
    fields = msgspec.to_builtins(job)
    if isinstance(job, SweepJob):
        defaults = msgspec.to_builtins(SweepSpec(collective=""))
        sweep = fields["sweep"]
        fields["sweep"] = {name: value for name, value in sweep.items() if value != defaults[name]}
    return msgspec.json.encode(fields).decode()


@dataclass(frozen=True)
class RunKind:
    """One kind of run."""

    job: type[Job]
    result: type[Outcome]
    perform: tuple[str, str]  # module and function of a rank's part
    events: tuple[type[Event], ...] = ()  # those that other kinds do not have

    @cached_property
    def _decoder(self) -> msgspec.json.Decoder[Any]:
        events = (Started[self.result], Note, Ended, *self.events)  # type: ignore[name-defined]
        # The tuple of types is made at run time.
        return msgspec.json.Decoder(Union[events], strict=False)  # noqa: UP007

    def decode_event(self, line: bytes) -> Event:
        """The event of one line of rank 0; msgspec.DecodeError if it is none."""
        event: Event = self._decoder.decode(line)
        return event

    def performer(self) -> Any:
        """The function of a rank's part: (job, control, emit, enter_phase) -> None."""
        module, function = self.perform
        return getattr(import_module(module), function)


SWEEP = RunKind(SweepJob, Result, ("busbw.measure.sweep", "measure"), (RowDone,))


def kind_of(job: Job) -> RunKind:
    return _kind_by_tag(str(job.__struct_config__.tag))


def decode_job(text: str) -> Job:
    """The job in a command-line argument that measure.job.encode made."""
    tag = msgspec.json.decode(text, type=dict[str, Any])["kind"]
    return msgspec.json.decode(text, type=_kind_by_tag(tag).job)


def _kind_by_tag(tag: str) -> RunKind:
    if tag in KINDS:
        module, name = KINDS[tag]
        kind: RunKind = getattr(import_module(module), name)
    else:
        (kind,) = added("runs", tag)
    return kind


def perform(
    job: Job, control: Control, emit: Emit, enter_phase: EnterPhase = lambda *_: None
) -> None:
    """Run this process' part of a job.

    `emit` is called on process 0 only, `enter_phase` before every phase. Only what this kind of job
    needs is imported: ranks start faster, and the command line that starts them needs none of it.

    NoMeasurement if a package that it needs cannot be imported.
    """
    if isinstance(job, SweepJob) and job.full_rows:
        ranks = control.processes * job.gpus_per_process
        job = msgspec.structs.replace(job, sweep=from_first_full_row(job.sweep, ranks))
    try:
        kind_of(job).performer()(job, control, emit, enter_phase)
    except ImportError as error:
        message = f"{error.name or 'a package'} cannot be imported: {error}"
        raise NoMeasurement(message, "pip install 'busbw[torch]', or another PyTorch") from error


def with_timeout(job: Job) -> Job:
    """The job with -T as its limit, for engines that block in their library."""
    if isinstance(job, SweepJob) and job.sweep.timeout and job.engine in ("mpi", "torch", AUTO):
        return msgspec.structs.replace(job, limit_s=float(job.sweep.timeout))
    return job
