"""Horovod's exception types, so that scripts that catch them keep working.

They are also errors of busbw.
"""

from busbw.core.errors import NoMeasurement, UsageError


class HorovodInternalError(NoMeasurement, RuntimeError):
    """An operation failed on all its ranks.

    The requests disagree, a rank is lost, or a rank has shut down.
    """


class Shutdown(HorovodInternalError):
    """The job has ended without an error."""

    def __init__(self) -> None:
        super().__init__(
            "Horovod has been shut down", "every rank calls hvd.shutdown() after its last operation"
        )


class HostsUpdatedInterrupt(RuntimeError):
    """The set of hosts or slots has changed.

    `commit` and `check_host_updates` raise it, and `elastic.run` catches it.
    """

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__("the set of hosts has changed")
        self.skip_sync = skip_sync


class Refused(UsageError, ValueError):
    """Invalid arguments or settings. Nothing was sent."""


class Unsupported(UsageError, NotImplementedError):
    """A feature of Horovod that busbw does not support."""


class NotInitialized(Refused):
    """A call before `init` or after `shutdown`."""

    def __init__(self) -> None:
        super().__init__("Horovod has not been initialized", "call hvd.init() first")
