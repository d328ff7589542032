"""Samples of this host's counters while a cell and a row are measured."""

from collections.abc import Sequence

import msgspec

from busbw.core.gpu_events import REASON_SEVERITY, Severity
from busbw.core.result import Device
from busbw.core.vitals import UNREAD_KEPT, HostChange, Reading, XidEvent, change
from busbw.host.vitals import Vitals
from busbw.measure.link_sampler import LinkSampler

GPU_SHARE = 0.05  # of the time of a sweep


class HostSampler:
    """Readings of this host, by the one of its processes that gets its `devices`; others read nothing.

    With `watch`, a row also has what each link carried.
    """

    def __init__(self, devices: Sequence[Device], *, watch: bool = False) -> None:
        self._vitals = Vitals(devices, gpu_share=GPU_SHARE) if devices else None
        self._links = LinkSampler(devices) if devices and watch else None
        self._row = self._latest = self._vitals.read() if self._vitals else None
        self._events: list[XidEvent] = []

    def throttled_since_last(self) -> bool:
        """Whether heat or a power brake slowed a GPU of this host since the last reading."""
        if self._vitals is None or not self._vitals.gpus_due:
            return False
        before, after = self._latest, self._read()
        if before is None or after is None:
            return False
        throttled = change(before, after).throttled
        return any(REASON_SEVERITY.get(reason) is Severity.BAD for reasons in throttled.values() for reason in reasons)

    def begin(self) -> None:
        """What came before, a warm-up, is no part of the next row; its errors of GPUs are."""
        self._row = self._read()
        if self._links is not None:
            self._links.row()

    def row(self) -> HostChange | None:
        """The changes since the last row."""
        first, last = self._row, self._read()
        if first is None or last is None:
            return None
        whole: Reading = msgspec.structs.replace(last, events=self._events)
        self._row, self._events = last, []
        found = change(first, whole)
        if self._links is None:
            return found
        links, resent = self._links.row()
        unread = list(dict.fromkeys([*found.unread, *self._links.unread]))[:UNREAD_KEPT]
        return msgspec.structs.replace(found, links=links, resent=resent, unread=unread)

    def _read(self) -> Reading | None:
        if self._vitals is not None:
            self._latest = self._vitals.read()
            self._events += self._latest.events
        return self._latest

    def close(self) -> None:
        """Close the readers."""
        for reader in (self._vitals, self._links):
            if reader is not None:
                reader.close()
