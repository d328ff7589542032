"""What the exporter serves: the sums of all counters and the patterns of the last sample."""

import time

from busbw.core.link_samples import Exposition, Sample, Watched
from busbw.watch.totals import Totals


class Page:
    """Follows the samples; each replaces `shown`, which other threads read."""

    def __init__(self, first: Sample) -> None:
        self._totals, self._samples, self._missed = Totals(), 0, 0
        self.shown = self._expose(first, Watched(host="", at="", seconds=0.0))

    def take(self, sample: Sample, watched: Watched) -> None:
        """Take a sample and its evaluation."""
        self.shown = self._expose(sample, watched)

    def _expose(self, sample: Sample, watched: Watched) -> Exposition:
        self._totals.take(sample)
        self._samples += 1
        self._missed += watched.missed
        values = self._totals.of(sample)
        return Exposition(
            links=sample.links,
            values=values,
            said=watched.said,
            samples=self._samples,
            missed=self._missed,
            unix_s=time.time(),
        )
