"""Horovod's exceptions, with its names and base classes: programs catch them by these."""

from collections.abc import Sequence


class HorovodInternalError(RuntimeError):
    """An operation failed, on every rank of its process set. `lost` names the ranks that are gone; with none, `init` again may help."""

    def __init__(self, message: str = "", lost: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.lost = tuple(lost)


class HostsUpdatedInterrupt(RuntimeError):
    """The set of hosts is about to change; `skip_sync` says that states need not be exchanged afterwards."""

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__("hosts were updated")
        self.skip_sync = skip_sync
