"""The kinds of runs: the job that every rank receives, what rank 0 reports, and what the result
is.
"""

from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any, Union

import msgspec

from busbw.core.result import Outcome, Result
from busbw.measure.events import Ended, Event, Note, RowDone, Started
from busbw.measure.job import Job, SweepJob

# The tag of a job, and where its kind is. A rank imports its own alone.
KINDS = {
    "sweep": ("busbw.measure.kind", "SWEEP"),
    "tune": ("busbw.tune.kind", "TUNE"),
    "train": ("busbw.train.kinds", "TRAIN"),
    "plan": ("busbw.train.kinds", "PLAN"),
    "replay": ("busbw.pattern.replay.kind", "REPLAY"),
}


@dataclass(frozen=True)
class Kind:
    """One kind of run.

    `perform` is the module and function of a rank's part; `events` are those that other kinds do
    not have.
    """

    job: type[Job]
    result: type[Outcome]
    perform: tuple[str, str]
    events: tuple[type[Event], ...] = ()

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


SWEEP = Kind(SweepJob, Result, ("busbw.measure.sweep", "measure"), (RowDone,))


def kind_of(job: Job) -> Kind:
    """The kind of a job."""
    return _named(str(job.__struct_config__.tag))


def decode_job(text: str) -> Job:
    """The job in a command-line argument that measure.job.encode made."""
    tag = msgspec.json.decode(text, type=dict[str, Any])["kind"]
    return msgspec.json.decode(text, type=_named(tag).job)


def _named(tag: str) -> Kind:
    module, name = KINDS[tag]
    kind: Kind = getattr(import_module(module), name)
    return kind
