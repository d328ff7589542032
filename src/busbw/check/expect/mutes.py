"""The mutes of an expectations file that have ended."""

from collections.abc import Iterator

from busbw.check.base import skipped, warned
from busbw.check.expect.base import Asked, expectation
from busbw.check.expect.spec import Mute
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer

HOSTNAME = "/proc/sys/kernel/hostname"

MUTE_ENDED = CheckRow(
    id="BW299",
    name="mute-ended",
    layer=Layer.EXPECTED,
    title="mutes of an expectations file",
    right="no [[mute]] for this host has an end, until, before today",
    why=(
        "A finding that was accepted for some days is forgotten. From the end of its mute on it"
        " counts again."
    ),
    fix="fix what {check} finds and delete the mute, or give it a later until",
    stays="yes, in the file",
    reads=("the file given with --expect",),
    sources=(),
)


@expectation(MUTE_ENDED)
def expect_no_ended_mute(asked: Asked) -> Iterator[Found]:
    """Each mute that is for this host."""
    host, none = asked.machine.text(HOSTNAME), True
    for number, mute in enumerate(asked.node.mute):
        if mute.host in (None, host):
            none = False
            yield _judge_mute(asked, number, mute)
    if none:
        yield skipped("the file mutes nothing on this host")


def _judge_mute(asked: Asked, number: int, mute: Mute) -> Found:
    what = f"{mute.check} {mute.subject or ''}".strip()
    if asked.today <= mute.until:
        return skipped(f"{what} is muted until {mute.until}: {mute.reason}", what)
    where = asked.where("mute", number, "until")
    evidence = Evidence(where, f"until {mute.until}", f"{asked.today} or later")
    return warned(
        what,
        f"the mute of {what} ended on {mute.until}: {mute.reason}",
        evidence,
        fix=MUTE_ENDED.fix.format(check=mute.check),
    )
