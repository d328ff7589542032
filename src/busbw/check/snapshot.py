"""The snapshot of a machine: everything that the checks read there, as one text with secrets
masked.
"""

from busbw.check.expect.learn import learn
from busbw.check.facts import facts
from busbw.check.machine import Machine
from busbw.check.registry import examine, read_boot
from busbw.check.trend.growth import error_counts
from busbw.host.snapshot import Recording
from busbw.host.source import Source


def snapshot(source: Source) -> str:
    """The archive of a machine, which `host.snapshot.parse_archive` reads."""
    recording = Recording(source)
    read_boot(recording)
    examine(recording)
    facts(Machine(recording))
    learn(Machine(recording))
    error_counts(Machine(recording))
    return recording.archive()
