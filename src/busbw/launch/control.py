"""The control channel between the processes of a job, outside of what is measured."""

import os
import sys
from typing import Any, Protocol


class Control(Protocol):
    """The channel between the processes of a job, outside what is measured.

    Every method is collective but `abort`.
    """

    @property
    def process(self) -> int:
        """This process' number."""

    @property
    def processes(self) -> int:
        """Number of processes."""

    def bcast(self, value: Any) -> Any:
        """Process 0's value, on all."""

    def gather(self, value: Any) -> list[Any] | None:
        """All values in order of process, on process 0; None elsewhere."""

    def allgather(self, value: Any) -> list[Any]:
        """All values in order of process, on all."""

    def barrier(self) -> None:
        """Returns once all processes have called it."""

    def reduce_all(self, values: list[float], how: str) -> list[float]:
        """Element by element `sum`, `min` or `max` over processes, on all."""

    def split(self, color: int) -> "Control":
        """The channel of the processes that gave the same color."""

    def abort(self, code: int, reason: str) -> None:
        """End the whole job on every host with this exit code; does not return."""

    def close(self) -> None:
        """Leave in order."""


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
