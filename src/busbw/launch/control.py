"""The control channel between the processes of a job, outside of what is measured."""

import os
import sys
from typing import Any, Protocol


class Control(Protocol):
    """The channel between the processes of a job. Every method but `abort` is collective."""

    @property
    def process(self) -> int:
        """Number of this process, from 0."""

    @property
    def processes(self) -> int:
        """Number of processes."""

    def bcast(self, value: Any) -> Any:
        """Process 0's value, on all processes."""

    def gather(self, value: Any) -> list[Any] | None:
        """All values in order of process, on process 0; None on the others."""

    def allgather(self, value: Any) -> list[Any]:
        """All values in order of process, on all processes."""

    def barrier(self) -> None:
        """Return once all processes have called it."""

    def reduce_all(self, values: list[float], how: str) -> list[float]:
        """The `sum`, `min` or `max` of each element over the processes, on all processes."""

    def split(self, color: int) -> "Control":
        """The channel of the processes that passed the same color."""

    def abort(self, code: int, reason: str) -> None:
        """End the whole job on every host with this exit code; does not return."""

    def close(self) -> None:
        """Leave the job in order."""


class SoloControl:
    """The channel of a job of one process."""

    process = 0
    processes = 1

    def bcast(self, value: Any) -> Any:
        return value

    def gather(self, value: Any) -> list[Any]:
        return [value]

    def allgather(self, value: Any) -> list[Any]:
        return [value]

    def barrier(self) -> None:
        return

    def reduce_all(self, values: list[float], how: str) -> list[float]:
        return list(values)

    def split(self, color: int) -> "SoloControl":
        return self

    def abort(self, code: int, reason: str) -> None:
        """Exit without running exit handlers, like the other channels."""
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    def close(self) -> None:
        """Nothing to leave."""
