"""What operations raise: Horovod's own exception types, so that scripts which catch them go on working, as errors of busbw."""

from busbw.core.errors import CannotTell, UsageError


class HorovodInternalError(CannotTell, RuntimeError):
    """An operation that failed on all its ranks: they did not ask for the same, a rank is lost, or somebody shut down."""


class Shutdown(HorovodInternalError):
    """The job has ended as it should."""

    def __init__(self) -> None:
        super().__init__("Horovod has been shut down", "every rank calls hvd.shutdown() after its last operation")


class HostsUpdatedInterrupt(RuntimeError):
    """The set of hosts has changed; raised by scripts and schedulers, and caught by `elastic.run`."""

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__("the set of hosts has changed")
        self.skip_sync = skip_sync


class Refused(UsageError, ValueError):
    """A call that cannot be meant; nothing was sent."""


class Unsupported(UsageError, NotImplementedError):
    """Something of Horovod's that is not here."""


class NotInitialized(Refused):
    """A call before `init` or after `shutdown`."""

    def __init__(self) -> None:
        super().__init__("Horovod has not been initialized", "call hvd.init() first")
