"""What the connections of ranks show of the network between hosts."""

import itertools
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest
from live_job import write_job

from busbw.core.finding import Verdict
from busbw.host.tcp_sockets import TcpSocket
from busbw.job.live import path_causes
from busbw.job.live.connections import MOST_PATHS, Flow, HostConnections, PathEvidence
from busbw.job.live.files import HostFiles, HostNews
from busbw.job.live.host_watch import HostEvidence, PortEvidence
from busbw.job.live.judge import judge
from busbw.job.live.reader import JobFolder
from busbw.job.live.types import JobLook, LiveRank, StepTimes
from busbw.pattern.pending_collective import Outstanding

ADDRESSES = {"a": "10.0.0.1", "b": "10.0.0.2", "c": "10.0.0.3"}
MB = 1_000_000


def connection(identity: int = 1, peer: str = "b", **counts: int) -> TcpSocket:
    known = {"queued": 0, "timeouts": 0} | counts
    local = ADDRESSES["a"]
    return TcpSocket(id=bytes([identity]), local=local, peer=ADDRESSES.get(peer, peer), **known)


def test_a_path_is_compared_with_the_time_before() -> None:
    """Each second 10 MB wait for 0.1 s, and from 40 s on for 0.5 s with lost segments."""
    host = HostConnections("a")
    for second in range(76):
        slow = max(0, second - 40)
        bulk = connection(
            acked=10 * MB * second,
            waited_us=100_000 * second + 400_000 * slow,
            resent=20 * slow,
            doubled=5 * slow,
            data_sent=1000 * second,
        )
        small = connection(2, acked=100 * second, waited_us=900_000 * second)
        own = connection(3, peer=ADDRESSES["a"], acked=50 * MB * second)
        host.take(100.0 + second, [bulk, small, own])
    (path,) = host.evidence()
    assert (path.host, path.local, path.peer) == ("a", ADDRESSES["a"], ADDRESSES["b"])
    assert path.now == Flow(10.0, 100.0 * MB, 5_000_000.0, 150.0, 10_000.0)
    assert path.now.rate == pytest.approx(20 * MB)
    assert path.before.rate == pytest.approx(100 * MB)
    assert (path.before.seconds, path.before.lost_share) == (4.0, 0.0)


def test_data_that_stand_still_and_who_is_heard() -> None:
    """From 4 s on nothing is acknowledged: two timeouts follow. From 6 s on nothing is heard."""
    host = HostConnections("a")
    for second in range(0, 20, 2):
        moved = min(second, 4)
        stuck = connection(
            acked=moved, queued=96, timeouts=2 if second > 6 else 0, sent=second, heard=0
        )
        other = connection(2, acked=second, queued=0, heard=min(second, 6))
        host.take(float(second), [stuck, other])
    (path,) = host.evidence()
    assert (path.timeouts, path.stuck_s, path.queued) == (2, 14.0, 96)
    assert (path.sent_s, path.heard_s) == (0.0, 12.0)
    host.take(20.0, [connection(acked=5, queued=96, timeouts=0, sent=19)])
    (path,) = host.evidence()
    assert (path.timeouts, path.stuck_s, path.queued) == (0, 0.0, 0)


def test_a_path_whose_connections_are_closed_is_forgotten() -> None:
    host = HostConnections("a")
    assert host.evidence() == []
    host.take(1.0, [connection()])
    host.take(3.0, [])
    assert host.evidence() == []


def test_of_many_paths_those_that_carry_most_are_sent() -> None:
    host = HostConnections("a")
    peers = [f"10.0.1.{number}" for number in range(2 * MOST_PATHS)]
    for second in (1, 2):
        sockets = [
            connection(number, peer=peer, acked=number * second, timeouts=2 * (number == 0))
            for number, peer in enumerate(peers)
        ]
        host.take(float(second), sockets)
    found = [path.peer for path in host.evidence()]
    assert found == [peers[0], *reversed(peers[MOST_PATHS + 1 :])]


def path(sender: str, receiver: str, **changes: Any) -> PathEvidence:
    """A path that carries 100 MB in 10 s, for which they wait 1 s; changes are of now."""
    found = PathEvidence(sender, ADDRESSES[sender], ADDRESSES[receiver])
    found.before = Flow(100.0, 1000.0 * MB, 10e6, 10, 100_000)
    found.now = Flow(10.0, 100.0 * MB, 1e6, 1, 10_000)
    for name, value in changes.items():
        setattr(found if hasattr(found, name) else found.now, name, value)
    now = found.now
    fifth = Flow(2.0, now.acked / 5, now.waited_us / 5, now.lost / 5, now.data_sent / 5)
    found.parts = changes.get("parts", [fifth] * 5)
    return found


def look(*paths: PathEvidence) -> JobLook:
    """Two ranks on each of the hosts."""
    found = JobLook(host=HostEvidence(paths=list(paths)))
    for number in range(2 * len(ADDRESSES)):
        host = list(ADDRESSES)[number // 2]
        found.ranks[number] = LiveRank(rank=number, host=host, pid=1, state="S", still_s=20.0)
    return found


SLOW, ACKS = {"waited_us": 6e6}, {"waited_us": 4e6}


def ring(**changes: Any) -> list[PathEvidence]:
    """Paths in both directions between three hosts; those named `ab` are from a to b."""
    pairs = [(one, other) for one in ADDRESSES for other in ADDRESSES if one != other]
    return [path(one, other, **changes.get(one + other, {})) for one, other in pairs]


@pytest.mark.parametrize(
    ("paths", "name", "ranks"),
    [
        (ring(), "", ()),
        (ring(ab={"waited_us": 1.2e6}), "", ()),  # no more than 1.3 times
        ([path("a", "b", **SLOW), path("b", "a", **ACKS)], "what a sends to b", (0, 1)),
        ([path("a", "b", **ACKS), path("b", "a", **SLOW)], "what b sends to a", (2, 3)),
        (
            [path("a", "b", **SLOW), path("b", "a", waited_us=5.9e6)],
            "what a and b send to each other",
            (),
        ),
        # Nothing is known of what b sends.
        ([path("a", "b", **SLOW)], "what 10.0.0.2 and a send to each other", ()),
        (ring(ab=SLOW, ac=SLOW, ba=ACKS, ca=ACKS), "what a sends", (0, 1)),
        (ring(ac=SLOW, bc=SLOW, ca=ACKS, cb=ACKS), "what c receives", (4, 5)),
        (ring(ab=SLOW, ba=ACKS), "what a sends to b", ()),  # but not what it sends to c
        (ring(ab=SLOW, bc=SLOW, ca=SLOW), "", ()),  # nothing in common
        # One way around: b sends to c, and as much as nothing to a.
        (
            [path("a", "b", **SLOW), path("b", "c"), path("b", "a", acked=100.0, **ACKS)],
            "what a sends to b",
            (0, 1),
        ),
        # Smaller messages, each of which waits for the round trip.
        ([path("a", "b", data_sent=30_000, **SLOW), path("b", "a")], "", ()),
        ([path("a", "b", before=Flow(), **SLOW), path("b", "a")], "", ()),  # no time before
    ],
)
def test_the_direction_that_is_slow_is_named(
    paths: list[PathEvidence], name: str, ranks: tuple[int, ...]
) -> None:
    found = path_causes.slow(look(*paths))
    assert (found.name if found else "", found.ranks if found else ()) == (name, ranks)
    if found:
        assert found.why.startswith("its data are acknowledged at 0.133 Gbit/s while they wait for")
        assert found.why.endswith("the network, before at 0.8 Gbit/s")


LOSSY = {"lost": 200.0}


@pytest.mark.parametrize(
    ("paths", "name", "ranks"),
    [
        (ring(), "", ()),
        (ring(ab={"lost": 40.0}), "", ()),  # 0.4 %
        (ring(ab=LOSSY, ac=LOSSY), "what a sends", (0, 1)),
        (ring(ab=LOSSY), "what a sends to b", ()),
        (ring(ab=LOSSY, ba={"lost": 100.0}), "", ()),  # both directions
        ([path("a", "b", **LOSSY)], "what a sends to 10.0.0.2", (0, 1)),  # b is not read
        ([path("a", "b", before=Flow(100.0, 1.0, 1.0, 1000, 100_000), **LOSSY)], "", ()),
    ],
)
def test_the_direction_that_loses_segments_is_named(
    paths: list[PathEvidence], name: str, ranks: tuple[int, ...]
) -> None:
    found = path_causes.lossy(look(*paths))
    assert (found.name if found else "", found.ranks if found else ()) == (name, ranks)
    if found:
        assert found.why == "200 of 10000 segments (2.0 %)"


def stuck(
    sent_s: float, heard_s: float, timeouts: int = 5, stuck_s: float = 12.0
) -> dict[str, Any]:
    return {
        "timeouts": timeouts,
        "stuck_s": stuck_s,
        "queued": 96,
        "sent_s": sent_s,
        "heard_s": heard_s,
    }


IDLE = {"timeouts": 0}


@pytest.mark.parametrize(
    ("a", "b", "name", "ranks"),
    [
        # All that a sends is lost. b also waits for acknowledgments, but a hears its segments.
        (stuck(2, 2), stuck(2, 12), "what a sends to b", (0, 1)),
        (stuck(2, 12), stuck(2, 2), "what b sends to a", (2, 3)),
        # The same while the other host has no data to send.
        (stuck(2, 12), IDLE | {"sent_s": 12, "heard_s": 12}, "what a sends to b", (0, 1)),
        # b has heard a lately, and its acknowledgments do not arrive.
        (stuck(2, 12), IDLE | {"sent_s": 2, "heard_s": 2}, "what b sends to a", (2, 3)),
        (stuck(2, 12), stuck(2, 12), "what a and b send to each other", ()),  # a cable
        (stuck(4, 4), IDLE | {"sent_s": 5, "heard_s": 5}, "what a and b send to each other", ()),
        (stuck(2, 2, timeouts=1), IDLE, "", ()),
        (stuck(2, 2, stuck_s=1.0), IDLE, "", ()),
        # A stopped process: its kernel acknowledges, and the sender only waits for room.
        ({"queued": 90_000, "timeouts": 0, "stuck_s": 0.0, "heard_s": 30.0}, IDLE, "", ()),
    ],
)
def test_the_direction_in_which_nothing_arrives_is_named(
    a: dict[str, Any], b: dict[str, Any], name: str, ranks: tuple[int, ...]
) -> None:
    found = path_causes.silent(look(path("a", "b", **a), path("b", "a", **b)))
    assert (found.name if found else "", found.ranks if found else ()) == (name, ranks)
    if found:
        assert found.why.endswith("are not acknowledged since 12 s: 5 timeouts in a row")


def test_all_that_a_host_sends_is_lost() -> None:
    paths = [path("a", "b", **stuck(2, 2)), path("b", "a", **stuck(2, 12))]
    paths += [path("a", "c", **stuck(2, 2)), path("c", "a", **stuck(2, 12))]
    found = path_causes.silent(look(*paths))
    assert found and (found.name, found.ranks) == ("what a sends", (0, 1))


def test_a_path_that_waits_after_timeouts_is_not_judged_slow_or_lossy() -> None:
    for own, other in ((stuck(2, 2), {}), ({}, stuck(2, 2))):
        job = look(path("a", "b", **SLOW | LOSSY | own), path("b", "a", **other))
        assert path_causes.slow(job) is None
        assert path_causes.lossy(job) is None


@pytest.mark.parametrize("absent", [{}, {5: "number 8"}])
def test_a_call_that_is_held_while_nothing_arrives_names_the_host(absent: dict[int, str]) -> None:
    job = look(path("a", "b", **stuck(2, 2)), path("b", "a", **stuck(2, 12)))
    job.world = len(job.ranks)
    call = Outstanding(group="0", seq=9, function="all_reduce", since_ns=0, absent=dict(absent))
    call.waiting = list(range(5))
    job.pending = [call]
    found = judge(job)
    assert (found.verdict, found.kind, found.suspects) == (Verdict.FAIL, "stalled", (0, 1))
    assert found.message == (
        "nothing arrives of what a sends to b; ranks 0-4 have waited for 20 s in all_reduce"
        " number 9 of group 0"
    )
    assert (found.cause, found.why) == (
        "link",
        "96 bytes from 10.0.0.1 to 10.0.0.2 are not acknowledged since 12 s: 5 timeouts in a row",
    )


def test_losses_that_do_not_make_steps_longer_are_a_warning() -> None:
    job = look(path("a", "b", **LOSSY), path("b", "a"))
    job.world = len(job.ranks)
    for rank in job.ranks.values():
        rank.still_s = 0.0
    found = judge(job)
    assert (found.verdict, found.kind, found.suspects) == (Verdict.WARN, "lossy", (0, 1))
    assert found.message == "what a sends to b is lost in part: 200 of 10000 segments (2.0 %)"
    assert "200 of 10000" in found.why


def test_a_direction_is_named_once_some_readings_have_said_so() -> None:
    slow, usual = Flow(2.0, 20.0 * MB, 1.2e6, 0, 2000), Flow(2.0, 20.0 * MB, 0.2e6, 0, 2000)
    for times, named in ((2, "what a and b send to each other"), (3, "what a sends to b")):
        parts = [usual] * (5 - times) + [slow] * times
        job = look(path("a", "b", **SLOW, parts=parts), path("b", "a"))
        found = path_causes.slow(job)
        assert found and found.name == named


def test_a_host_is_named_whose_data_and_acknowledgments_are_slow() -> None:
    found = path_causes.slow(look(*ring(ab=SLOW, ca=SLOW)))
    assert found and (found.name, found.ranks) == ("what a sends and receives", (0, 1))


@pytest.mark.parametrize(
    ("waited_us", "kind"),
    [(6e6, "slow-link"), (1.4e6, "unjudged"), (1.9e6, "unjudged"), (2.1e6, "slow-link")],
)
def test_a_link_that_is_surely_slow_is_a_warning(waited_us: float, kind: str) -> None:
    job = look(path("a", "b", waited_us=waited_us), path("b", "a"))
    job.world = len(job.ranks)
    for rank in job.ranks.values():
        rank.still_s = 0.0
    found = judge(job)
    assert (found.kind, found.suspects) == (kind, (0, 1) if kind == "slow-link" else ())
    if kind == "slow-link":
        assert found.message.startswith("what a sends to b is slower than before: its data are")


def test_another_programs_bytes_may_make_a_link_slow() -> None:
    job = look(path("a", "b", **SLOW), path("b", "a"))
    job.world = len(job.ranks)
    for rank in job.ranks.values():
        rank.still_s = 0.0
    port = PortEvidence("a eth0", 1.25e9, 1.25e9, 1.1e9, 2e8, host="a", sends=True)
    job.host.ports.append(port)
    job.times = StepTimes(50e3, 50e3, 50e3, 60e3, 5e3, None, mean_us=52e3, usual_mean_us=50e3)
    found = judge(job)
    assert (found.kind, found.cause, list(found.suspects)) == ("slow-link", "traffic", [0, 1])
    assert found.message == "another program's bytes slow what a sends"


class Hosts:
    """Two hosts that answer with evidence of these turns."""

    def __init__(self) -> None:
        self.turns: dict[str, int] = {}
        self.lost = ""

    def read(self, _wanted: Mapping[str, Collection[int]]) -> dict[str, HostNews]:
        return {
            name: HostNews(host=HostEvidence(paths=[path(name, other)], turn=self.turns[name]))
            for name, other in (("a", "b"), ("b", "a"))
            if name != self.lost
        }

    def silent(self) -> dict[str, tuple[float, str]]:
        return {self.lost: (5.0, "no answer")} if self.lost else {}


def test_paths_of_two_moments_are_not_compared(tmp_path: Path) -> None:
    hosts = Hosts()
    watched = JobFolder(tmp_path, hosts)
    for turns, lost, count in (
        ({"a": 1, "b": 2}, "", 0),
        ({"a": 2, "b": 2}, "", 2),
        ({"a": 3, "b": 2}, "", 2),  # those of turn 2
        ({"a": 3, "b": 2}, "b", 1),
    ):
        hosts.turns, hosts.lost = turns, lost
        assert len(watched.look(1.0).host.paths) == count


def test_the_use_is_read_once_in_a_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_job(tmp_path)
    files = HostFiles(tmp_path)
    clock_s = itertools.count(1000, 100)  # threads of other tests may read it too
    monkeypatch.setattr("time.monotonic", lambda: float(next(clock_s)))
    found = [files.look(turn=turn).host for turn in (5, 5, 6)]
    assert [host.turn if host else None for host in found] == [5, None, 6]
