"""Which host's data are slow, lost or not acknowledged, from the TCP connections between hosts.

A sender sees what becomes of its data, but not in which direction: data whose acknowledgments wait
on the way back look like data that wait on the way there, only less. So the two directions between
two hosts are compared, and none is named if they look alike.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import zip_longest

from busbw.core.sizes import counted, span
from busbw.host.tcp_connections import MIN_TIMEOUTS
from busbw.job.live.connections import Flow, PathEvidence
from busbw.job.live.types import JobLook
from busbw.job.live.words import rate_text
from busbw.ui.number_formats import percent_text

SLOWER, LEAST_LOST = 1.3, 0.05  # times the wait per byte before; share of the time that is lost
READINGS = 3  # one after the other, that decide a direction
UNLIKE = 1.25  # times what the way back loses, whose acknowledgments wait too
ALIKE = 0.5  # of what the slowest direction loses: such a direction is slow as well
MIN_LOST, LOST_SHARE, LOST_TIMES = 5.0, 0.005, 3.0  # segments; times before, and the way back
SMALL = 0.5  # of the bytes of a segment before
MIN_BYTES = 0.1  # of the direction that carries most: what carries less says nothing
LATER_S = 3.0  # hosts are read every 2 s: times that differ by less are the same
STUCK_S = 3.0  # without an acknowledgment
Pair = tuple[str, str]  # of hosts: the sender and the receiver


@dataclass(frozen=True, slots=True)
class Direction:
    """What is named: `what gpu01 sends to gpu02`, what is wrong with it, and the ranks at fault."""

    name: str
    why: str
    ranks: tuple[int, ...] = ()


@dataclass(slots=True)
class _Paths:
    """The paths between hosts of a job, by sender and receiver."""

    by_pair: dict[Pair, list[PathEvidence]]
    by_ends: dict[tuple[str, str], PathEvidence]  # by address
    readers: set[str]  # the hosts that were read
    ranks: Mapping[int, str]  # their hosts

    @classmethod
    def of(cls, look: JobLook) -> "_Paths":
        hosts = {path.local: path.host for path in look.host.paths}
        by_pair: dict[Pair, list[PathEvidence]] = {}
        for path in look.host.paths:
            pair = path.host, hosts.get(path.peer, path.peer)
            by_pair.setdefault(pair, []).append(path)
        ranks = {number: rank.host for number, rank in look.ranks.items()}
        by_ends = {(path.local, path.peer): path for path in look.host.paths}
        return cls(by_pair, by_ends, set(hosts.values()), ranks)

    def of_host(self, host: str) -> tuple[int, ...]:
        """The ranks of a host."""
        return tuple(sorted(rank for rank, own in self.ranks.items() if own == host))

    def with_data(self) -> dict[Pair, list[PathEvidence]]:
        """Those that carry much, and do not wait after timeouts."""
        waiting = {pair for pair, of in self.by_pair.items() if any(map(_has_timeouts, of))}
        waiting |= {(there, here) for here, there in waiting}
        sums = {
            pair: sum(one.now.acked for one in of)
            for pair, of in self.by_pair.items()
            if pair not in waiting
        }
        most = max(sums.values(), default=0.0)
        return {
            pair: self.by_pair[pair] for pair, acked in sums.items() if acked > MIN_BYTES * most
        }

    def lost_in_readings(self, pair: Pair) -> list[float]:
        """The share of the time that was lost in each of the last readings, the last one first."""
        of = [
            [_lost_time(path, part) for part in path.parts] for path in self.by_pair.get(pair, ())
        ]
        return [max(lost) for lost in zip_longest(*map(reversed, of), fillvalue=0.0)]

    def named(self, slow: Collection[Pair], others: Collection[Pair], why: str) -> Direction | None:
        """What the slow directions have in common, and few of the `others` have; None if nothing.

        Of one direction of several of a sender the hosts at its ends are named, and no rank.
        """
        senders, receivers = {sender for sender, _ in slow}, {receiver for _, receiver in slow}
        if len(slow) == 1:
            ((sender, receiver),) = slow
            alone = not any(one[0] == sender for one in others)
            ranks = self.of_host(sender) if alone else ()
            return Direction(f"what {sender} sends to {receiver}", why, ranks)
        if len(senders) == 1:
            (sender,) = senders
            if sum(one[0] == sender for one in others) >= len(slow):
                return None
            return Direction(f"what {sender} sends", why, self.of_host(sender))
        if len(receivers) == 1:
            (receiver,) = receivers
            if sum(one[1] == receiver for one in others) >= len(slow):
                return None
            return Direction(f"what {receiver} receives", why, self.of_host(receiver))
        common = set.intersection(*map(set, slow)) if slow else set()
        if len(common) == 1:  # what it sends, and what it should acknowledge
            (host,) = common
            return Direction(f"what {host} sends and receives", why, self.of_host(host))
        return None


def slow(look: JobLook, slower: float = SLOWER, least_lost: float = LEAST_LOST) -> Direction | None:
    """The direction whose data wait longer for the network than before; None if none does.

    `slower` is how many times as long at least, `least_lost` which share of the time is lost.
    """
    paths = _Paths.of(look)
    known = paths.with_data()
    lost = {pair: max(map(_lost_time, of)) for pair, of in known.items()}
    most = max(lost.values(), default=0.0)
    worst = max((path for of in known.values() for path in of), key=_lost_time, default=None)
    if worst is None or most < least_lost or worst.before.rate < slower * worst.now.rate:
        return None
    slow_pairs = {pair for pair, share in lost.items() if share >= ALIKE * most}
    decided = {pair for pair in slow_pairs if _is_worse(pair, lost, paths)}
    why = _slow_text(worst)
    if not decided:
        hosts = {host for pair in slow_pairs for host in pair}
        return Direction(_between(hosts), why) if len(hosts) == 2 else None
    return paths.named(decided, known.keys() - slow_pairs, why)


def _is_worse(pair: Pair, lost: Mapping[Pair, float], paths: _Paths) -> bool:
    """Whether a direction is slow, and not only the way back of its acknowledgments."""
    sender, receiver = pair
    way_back = receiver, sender
    if receiver not in paths.readers or lost[pair] < UNLIKE * lost.get(way_back, 0.0):
        return False
    if not all(path.before.rate for path in paths.by_pair.get(way_back, ())):
        return False  # what is usual of the way back is not known yet
    own, back = paths.lost_in_readings(pair), paths.lost_in_readings(way_back)
    lately = list(zip_longest(own[:READINGS], back[:READINGS], fillvalue=0.0))
    return len(lately) == READINGS and all(here > there for here, there in lately)


def lossy(look: JobLook) -> Direction | None:
    """The direction in which segments are lost."""
    paths = _Paths.of(look)
    known = paths.with_data()
    shares = {pair: max(map(_lost_share, of)) for pair, of in known.items()}
    found = {pair for pair, share in shares.items() if share >= LOST_SHARE}
    found = {
        (sender, receiver)
        for sender, receiver in found
        if shares[sender, receiver] >= LOST_TIMES * shares.get((receiver, sender), 0.0)
    }
    if not found:
        return None
    worst = max(found, key=lambda pair: shares[pair])
    found = {pair for pair in found if shares[pair] >= ALIKE * shares[worst]}
    return paths.named(found, known.keys() - found, _lossy_text(known[worst]))


def silent(look: JobLook) -> Direction | None:
    """The direction in which nothing arrives, while data wait after timeouts.

    What one host has sent lately and the other has not heard was lost on the way there. What the
    other has heard, without an acknowledgment that arrives, was lost on the way back.
    """
    paths = _Paths.of(look)
    stuck = {pair: of for pair, of in paths.by_pair.items() if any(map(_is_stuck, of))}
    broken: dict[Pair, PathEvidence] = {}
    undecided: set[str] = set()
    for pair, of in stuck.items():
        worst = max(of, key=lambda path: path.stuck_s)
        back = paths.by_ends.get((worst.peer, worst.local))  # what the other host sees of it
        if back is None or worst.sent_s > worst.stuck_s:
            undecided |= set(pair)
        elif worst.sent_s + LATER_S <= back.heard_s:
            broken[pair] = worst
        elif back.sent_s + LATER_S <= worst.heard_s or back.heard_s + LATER_S <= worst.heard_s:
            broken.setdefault((pair[1], pair[0]), worst)
        else:
            undecided |= set(pair)
    if broken:
        worst = max(broken.values(), key=lambda path: path.stuck_s)
        both = {(there, here) for here, there in broken} & broken.keys()
        if both:
            return Direction(_between({host for pair in both for host in pair}), _stuck_text(worst))
        return paths.named(broken.keys(), (), _stuck_text(worst))
    if len(undecided) != 2:
        return None
    worst = max((path for of in stuck.values() for path in of), key=lambda path: path.stuck_s)
    return Direction(_between(undecided), _stuck_text(worst))


def _has_timeouts(path: PathEvidence) -> bool:
    return path.timeouts >= MIN_TIMEOUTS


def _is_stuck(path: PathEvidence) -> bool:
    return _has_timeouts(path) and path.stuck_s >= STUCK_S and path.queued > 0


def _lost_time(path: PathEvidence, lately: Flow | None = None) -> float:
    """Share of the time by which its data waited longer than as many bytes did before: of the last
    10 s, or of one reading.

    0 where messages are smaller than before, as in an evaluation: each waits for the round trip.
    """
    now, before = lately or path.now, path.before
    if not now.seconds or not before.rate or now.segment < SMALL * before.segment:
        return 0.0
    usual_us = 1e6 * now.acked / before.rate
    if now.waited_us < SLOWER * usual_us:
        return 0.0
    return (now.waited_us - usual_us) / (1e6 * now.seconds)


def _lost_share(path: PathEvidence) -> float:
    """Share of its segments that were lost; 0 if as many were before."""
    now, before = path.now, path.before
    if now.lost < MIN_LOST or now.lost_share < LOST_TIMES * before.lost_share:
        return 0.0
    return now.lost_share


def _between(hosts: Collection[str]) -> str:
    return f"what {' and '.join(sorted(hosts))} send to each other"


def _slow_text(path: PathEvidence) -> str:
    return (
        f"its data are acknowledged at {rate_text(path.now.rate)} while they wait for the network,"
        f" before at {rate_text(path.before.rate)}"
    )


def _lossy_text(of: Collection[PathEvidence]) -> str:
    now = max(of, key=_lost_share).now
    share = percent_text(now.lost, now.data_sent)
    return f"{now.lost:.0f} of {now.data_sent:.0f} segments ({share} %)"


def _stuck_text(path: PathEvidence) -> str:
    return (
        f"{path.queued} bytes from {path.local} to {path.peer} are not acknowledged since"
        f" {span(path.stuck_s)}: {counted(path.timeouts, 'timeout')} in a row"
    )
