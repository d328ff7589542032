"""Changes of one host in several visits of a row, as one."""

from busbw.core.telemetry import HostChange, LinkTraffic, XidEvent
from busbw.measure.host_sampler import add_changes

FIRST = HostChange(
    host="h1",
    seconds=1.5,
    sm_mhz=[1900],
    sm_before_mhz=[1980],
    temperature_c=[50],
    throttled={"0000:1b:00": {"hw_thermal": 0.5, "sw": None}},
    sent={"eth0": 5},
    received={"eth0": 7},
    moved={"tcp": {"RetransSegs": 2}},
    events=[XidEvent("0000:1b:00", 79)],
    unread=["a"],
    links=[LinkTraffic("eth0", "ethernet", sent=5, received=None, pause_in_s=0.25, lost=1)],
    resent=3,
)
SECOND = HostChange(
    host="h1",
    seconds=2.0,
    sm_mhz=[1980],
    temperature_c=[60],
    throttled={"0000:1b:00": {"hw_thermal": 0.25, "sw": None}},
    sent={"eth0": 10, "eth1": 1},
    moved={"tcp": {"RetransSegs": 1, "TCPTimeouts": 4}},
    unread=["a", "b"],
    links=[
        LinkTraffic("eth0", "ethernet", sent=6, received=8, pause_in_s=0.5, lost=2),
        LinkTraffic("eth1", "ethernet", sent=1),
    ],
    resent=4,
)


def test_counts_are_added_and_levels_are_those_of_the_last() -> None:
    total = add_changes([FIRST, SECOND])
    assert (total.seconds, total.sm_mhz, total.sm_before_mhz, total.temperature_c) == (
        3.5,
        [1980],
        [1980],
        [60],
    )
    assert total.throttled == {"0000:1b:00": {"hw_thermal": 0.75, "sw": None}}
    assert (total.sent, total.received) == ({"eth0": 15, "eth1": 1}, {"eth0": 7})
    assert total.moved == {"tcp": {"RetransSegs": 3, "TCPTimeouts": 4}}
    assert (total.events, total.unread, total.resent) == (FIRST.events, ["a", "b"], 7)


def test_a_value_unknown_in_one_part_is_unknown_for_the_link() -> None:
    links = add_changes([FIRST, SECOND]).links
    assert links == [
        LinkTraffic("eth0", "ethernet", sent=11, received=None, pause_in_s=0.75, lost=3),
        LinkTraffic("eth1", "ethernet", sent=1),
    ]


def test_one_part_is_itself() -> None:
    assert add_changes([SECOND]) == SECOND
