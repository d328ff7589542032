"""The kind of run that measures backends of a collective in turn, and what rank 0 reports."""

from busbw.backends.types import BackendsJob, BackendsResult, BackendsRow
from busbw.backends.verdicts import choices
from busbw.core.result import Outcome
from busbw.measure.events import Event
from busbw.measure.job import RunKind


class BackendRunning(Event, tag="running"):
    """A backend is about to run at a size, or without one to start. If the job ends now, it is the
    one to leave out, in this mode or in all.
    """

    backend: str
    mode: str = ""
    size_bytes: int = 0

    @property
    def name(self) -> str:
        """Of what is left out: `nccl graph`."""
        return f"{self.backend} {self.mode}".rstrip()


class SizeMeasured(Event, tag="size"):
    """All backends were measured at one size."""

    row: BackendsRow

    def add_to(self, result: Outcome) -> bool:
        assert isinstance(result, BackendsResult)
        result.add(self.row)
        result.choices = choices(result)
        return True


BACKENDS = RunKind(
    BackendsJob, BackendsResult, ("busbw.backends.job", "measure"), (BackendRunning, SizeMeasured)
)
