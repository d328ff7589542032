"""Samples of this host's counters while a cell and a row are measured."""

from collections.abc import Sequence

import msgspec

from busbw.core.gpu_events import REASON_SEVERITY, Severity
from busbw.core.result import Device
from busbw.core.telemetry import UNREAD_KEPT, HostChange, Reading, XidEvent, change
from busbw.host.vitals import Vitals
from busbw.measure.link_sampler import LinkSampler

GPU_SHARE = 0.05  # of the time of a sweep


class HostSampler:
    """Readings of this host, by the one of its processes that gets its `devices`; others read
    nothing.

    With `watch`, a row also has what each link carried.
    """

    def __init__(self, devices: Sequence[Device], *, watch: bool = False) -> None:
        self._vitals = Vitals(devices, gpu_share=GPU_SHARE) if devices else None
        self._links = LinkSampler(devices) if devices and watch else None
        self._row = self._latest = self._vitals.read() if self._vitals else None
        self._events: list[XidEvent] = []
        self._slowed = False

    def throttled_since_last(self) -> bool:
        """Whether heat or a power brake slowed a GPU of this host since this was last asked, as
        far as NVML has been asked since.
        """
        if self._vitals is None:
            return False
        if self._vitals.gpus_due:
            self._read()
        slowed, self._slowed = self._slowed, False
        if slowed:
            self._vitals.ask_gpus_again()  # what is measured again must not pass unseen
        return slowed

    def begin(self) -> None:
        """What came before, a warm-up, is no part of the next row; its errors of GPUs are."""
        self._row, self._slowed = self._read(), False
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
        if self._vitals is None or self._latest is None:
            return None
        before, self._latest = self._latest, self._vitals.read()
        self._events += self._latest.events
        if self._latest.gpus is not before.gpus:  # NVML has been asked
            reasons = change(before, self._latest).throttled.values()
            self._slowed |= any(
                REASON_SEVERITY.get(reason) is Severity.BAD for held in reasons for reason in held
            )
        return self._latest

    def close(self) -> None:
        """Close the readers."""
        for reader in (self._vitals, self._links):
            if reader is not None:
                reader.close()
